// What a job can be told by hand: a deadline, whose quote is shown before; weight and bounds; pause, resume, stop.
import { fromNow, harm, quotesAfterPause, shown } from "./quoted.js";
import { health, inOneText, jobPath, latest, oneJob, post, present, Refused } from "./service.js";
import { actionButton, amount, at, clock, counted, dollars, element, jobLink, labelled, relative, span } from "./texts.js";

/** @param {any} least @param {any} most */
const bounds = (least, most) => (least === null || most === null ? null : `${least}..${most}`);
/** What of a job can be set, as the service takes it; null: it has none. @type {Record<string, (job: any) => any>} */
const VALUES = {
  deadline: (job) => job.deadline,
  weight: (job) => job.weight,
  cores: (job) => bounds(job.leastCores, job.mostCores),
  workers: (job) => bounds(job.leastWorkers, job.mostWorkers),
  budget: (job) => job.budgetUsd,
};
/** What can be set beside the deadline: its label, and what it means. */
const SETTABLE = [
  ["weight", "New weight", "How much it counts against other jobs."],
  ["cores", "New bounds of cores", "Least and most, or the most alone. Such as 0.5..2"],
  ["workers", "New bounds of workers", "Least and most, or the most alone. Such as 1..4"],
  ["budget", "New budget", "Dollars that it may cost in all, or none. Such as 60"],
];
/** What is asked of the service. @param {string} field @param {any} value */
const bodyOf = (field, value) => ({ [field === "budget" ? "budgetUsd" : field]: value });
/** @param {string} field @param {any} value */
const inWords = (field, value) => (value === null ? "none" : field === "deadline" ? clock(value) : field === "budget" ? dollars(value) : typeof value === "number" ? amount(value) : value.replace("..", " to "));
/** Whether two values are the same; instants of the wall clock are derived anew for each answer. @param {string} field @param {any} one @param {any} other */
const isSame = (field, one, other) =>
  one === other || (field === "deadline" && one !== null && other !== null && Math.abs(Date.parse(one) - Date.parse(other)) < 1000);

let name = "", isAdvised = false;
/** The job as it was last looked at. @type {any} */
let job = null;
/** The instant that the quote shown is about; empty: none is shown for what is typed. */
let quotedDeadline = "";
/** Changes that can be taken back, the last one last. @type {{field: string, before: any, after: any}[]} */
let changes = [];

/** Shows why something was not done. @param {string} field @param {unknown} error */
function tell(field, error) {
  const isRefused = error instanceof Refused;
  const faults = isRefused ? error.faults.map(inOneText) : [];
  const other = isRefused ? error.message : "The service does not answer. Look whether it was done before you try again.";
  at(`steer-fault-${field}`).textContent = faults.join(" ") || other;
  at(`steer-${field}`)?.setAttribute("aria-invalid", "true");
}

/** @param {string} field */
function clear(field) {
  at(`steer-fault-${field}`).textContent = "";
  at(`steer-${field}`)?.removeAttribute("aria-invalid");
}

/** @param {string} text */
function report(text) {
  const last = changes.at(-1);
  at("steer-done").textContent = text;
  at("steer-undo").hidden = !last;
  at("steer-undo").textContent = last ? `Undo: ${last.field} back to ${inWords(last.field, last.before)}` : "";
}

/** Has one value changed, and keeps what it was before. @param {string} field @param {any} value */
async function change(field, value) {
  const asked = name;
  clear(field);
  try {
    const before = VALUES[field](await oneJob(asked));
    const after = VALUES[field](await post(jobPath(asked), bodyOf(field, value), { method: "PATCH" }));
    if (asked !== name) return;
    if (!isSame(field, after, before) && (before !== null || ["deadline", "budget"].includes(field))) changes.push({ field, before, after });
    at(`steer-${field}`).value = "";
    if (field === "deadline") forgetQuote();
    report(`The ${field} is now ${inWords(field, after)}; it was ${inWords(field, before)}.`);
  } catch (error) {
    if (asked === name) tell(field, error);
  }
}

async function undo() {
  const last = changes.at(-1), asked = name;
  if (!last) return;
  clear(last.field);
  try {
    const present = VALUES[last.field](await oneJob(asked));
    if (asked !== name) return;
    if (!isSame(last.field, present, last.after)) {
      changes.pop();
      return report(`The ${last.field} was changed again since, to ${inWords(last.field, present)}. It stays so.`);
    }
    const restored = VALUES[last.field](await post(jobPath(asked), bodyOf(last.field, last.before), { method: "PATCH" }));
    if (asked !== name) return;
    changes.pop();
    report(`The ${last.field} is ${inWords(last.field, restored)} again.`);
  } catch (error) {
    if (asked === name) tell(last.field, error);
  }
}

// The quote.

/** @param {string} [text] */
function forgetQuote(text = "Type a deadline to see what it would take.") {
  quotedDeadline = "";
  at("steer-change-deadline").disabled = true;
  at("steer-quote").replaceChildren(element("p", text, "soft"));
  tellChart(null);
}

/** Lets the chart draw what a quote says in short: the earliest that is possible, and who is hurt. @param {any} answer */
function tellChart(answer) {
  const data = at("steer-quote").dataset, isGood = answer?.canBePromised ?? null;
  const hurt = answer?.hurt.length ? `; ${answer.hurt.slice(0, 2).map((/** @type {any} */ { job, laterSeconds }) => `${job}${laterSeconds ? ` ${span(laterSeconds)} later` : " has less"}`).join(", ")}${answer.hurt.length > 2 ? ` and ${answer.hurt.length - 2} more` : ""}` : "";
  data.earliest = answer ? answer.earliest || answer.finishes.map((/** @type {any} */ { finish }) => finish).sort()[0] || "" : "";
  data.verdict = isGood === null ? "" : isGood ? "good" : "late";
  data.short = answer ? `${isGood === null ? "not promised" : isGood ? "✓ can be promised" : "✗ cannot be promised"}${hurt}` : "";
  at("steer-quote").dispatchEvent(new Event("quoted"));
}

const quotes = quotesAfterPause(
  (/** @type {string} */ deadline, signal) => post(jobPath(name, "/quote"), { deadline }, { signal }),
  (answer) => {
    clear("deadline");
    at("steer-quote").replaceChildren(
      element("h4", `Deadline ${clock(answer.deadline)}`),
      ...shown(answer, "Try", (earliest) => { at("steer-deadline").value = earliest; typed(); }, at("steer-quote").clientWidth),
    );
    tellChart(answer);
    if (!at("steer-deadline").value) return advise(answer); // it is about the present deadline, which nobody asked to change
    quotedDeadline = answer.deadline;
    at("steer-change-deadline").disabled = false;
  },
  (error) => {
    if (at("steer-deadline").value) tell("deadline", error);
    forgetQuote("There is no quote for this deadline.");
  },
);

// What would help.

/** An action: its effect, and the button that does it. @param {string} effect @param {string} text @param {() => void} act */
function action(effect, text, act) {
  const made = element("li");
  made.append(actionButton(text, () => { at("help").hidden = true; at("one-title").focus(); act(); }), element("span", effect));
  return made;
}

/** Lists what would bring the job to its deadline, or its deadline to it. @param {any} answer the quote of the present deadline */
function advise(answer) {
  const found = /** @type {Element[]} */ ([]), most = latest.cluster?.capacity.cores ?? 0, hasAll = job.mostCores !== null && amount(job.grantedCores || 0) === amount(job.mostCores);
  if (answer.earliest !== null && Date.parse(answer.earliest) > Date.parse(answer.deadline))
    found.push(action(`A deadline ${relative(Date.parse(answer.earliest), present())} can be promised${answer.hurt.length ? `; ${answer.hurt.map(harm).join("; ")}` : ""}.`, `Use ${clock(answer.earliest)}`, () => change("deadline", fromNow(answer.earliest))));
  if (hasAll && job.leastCores !== null && most > job.mostCores)
    found.push(action(`It has all ${counted(Number(amount(job.mostCores)), "core")} that it may have; ${amount(Math.max(0, latest.cluster.free.cores))} of ${amount(most)} are free, and with more it may land earlier.`, `Allow ${counted(Number(amount(most)), "core")}`, () => change("cores", `${job.leastCores}..${most}`)));
  const free = latest.jobs.filter((each) => each.kind === "free" && each.grantedCores && each.name !== job.name).sort((a, b) => b.grantedCores - a.grantedCores)[0];
  if (free && !hasAll) {
    const line = element("li");
    line.append(jobLink(free.name, `Pause ${free.name} on its page`), element("span", `It has no deadline, and has ${counted(Number(amount(free.grantedCores)), "core")} that others could use.`));
    found.push(line);
  }
  at("help-actions").replaceChildren(...(found.length ? found : [element("li", "Nothing that is known here: type a later deadline below to see what it would take.")]));
  at("help").hidden = false;
}

function typed() {
  quotes.forget();
  clear("deadline");
  forgetQuote();
  const deadline = at("steer-deadline").value.trim();
  if (deadline) quotes.askSoon(deadline);
}

// What is done at once.

/** @param {string} what */
async function tellJob(what) {
  const asked = name;
  clear("state");
  try {
    const told = await post(jobPath(asked, `/${what}`), {});
    if (asked !== name) return;
    steerable(told);
    report(`The job was asked to ${what}.`);
  } catch (error) {
    if (asked === name) tell("state", error);
  }
}

/** Forgets what was said about another job, and shows the controls to those who may use them. @param {string} asked */
export async function steer(asked) {
  [name, changes, isAdvised, at("help").hidden] = [asked, [], false, true];
  quotes.forget();
  for (const field of [...Object.keys(VALUES), "state"]) clear(field);
  for (const field of Object.keys(VALUES)) at(`steer-${field}`).value = "";
  forgetQuote();
  report("");
  at("steer").hidden = at("steer-buttons").hidden = true;
  await learnRole();
}

async function learnRole() {
  at("steer").dataset.role = await health().then(({ role }) => role, () => "");
}

/** @param {any} told the job as it stands */
export function steerable(told) {
  job = told;
  if (!["late", "risk"].includes(job.kind)) at("help").hidden = true;
  if (!at("steer").dataset.role) learnRole(); // the service was away when it was asked: the next time that the job is looked at it is known
  at("steer").hidden = !["submitter", "operator"].includes(at("steer").dataset.role) || job.ended !== null;
  at("steer-buttons").hidden = at("steer").hidden;
  if (at("steer").hidden) at("steer-sure").close(); // a dialog that is open and hidden would hold the page
  at("steer-pause").disabled = job.state === "paused";
  at("steer-resume").disabled = job.state !== "paused";
  at("steer-stop").disabled = job.state === "stopping";
  at("steer-form-workers").hidden = job.leastWorkers === null;
  at("steer-form-budget").hidden = job.spentUsd === null && job.budgetUsd === null;
  if (at("steer").hidden || isAdvised || job.deadline === null || !["late", "risk"].includes(job.kind)) return;
  isAdvised = true; // once: what would help is quoted before anybody asks
  if (!at("steer-deadline").value) quotes.askSoon(job.deadline);
}

for (const [field, label, help] of SETTABLE) {
  const form = /** @type {HTMLFormElement} */ (element("form", "", "field")), box = /** @type {HTMLInputElement} */ (element("input"));
  const { title, explained, fault } = labelled(box, [`steer-${field}`, `steer-help-${field}`, `steer-fault-${field}`], label, help);
  [form.id, form.noValidate] = [`steer-form-${field}`, true];
  fault.setAttribute("role", "alert");
  form.append(title, box, explained, element("button", `Change the ${field}`), fault);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = box.value.trim();
    // What is no number is sent as it is: the service says what must hold.
    const isNumber = ["weight", "budget"].includes(field) && Number.isFinite(Number(text));
    if (text) change(field, isNumber ? Number(text) : field === "budget" && text === "none" ? null : text);
  });
  at("steer-forms").append(form);
}
at("steer-form-deadline").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  // What was quoted is what is set, to the instant: "+30m" is not read anew on a deadline that somebody else moved.
  if (quotedDeadline) change("deadline", quotedDeadline);
});
at("steer-deadline").addEventListener("input", typed);
at("steer-undo").addEventListener("click", undo);
at("steer-pause").addEventListener("click", () => tellJob("pause"));
at("steer-resume").addEventListener("click", () => tellJob("resume"));
at("steer-stop").addEventListener("click", () => at("steer-sure").showModal());
at("steer-keep").addEventListener("click", () => at("steer-sure").close());
at("steer-stop-it").addEventListener("click", () => { at("steer-sure").close(); tellJob("stop"); });
addEventListener("hashchange", () => at("steer-sure").close());
