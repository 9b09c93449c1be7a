// The form for a new job. What it would take is asked for while one types; nothing is changed by that.
import { typed, words } from "./command_line.js";
import { drawFinishes, quotesAfterPause, shown } from "./quoted.js";
import { health, inOneText, jobProgram, latest, post, Refused } from "./service.js";
import { amount, at, element, jobLink, labelled, offer } from "./texts.js";
import { onView, place } from "./views.js";

/** What can be said: name over HTTP, label, what it means, an example, and whether most jobs do without it. @type {[string, string, string, string, boolean?][]} */
const FIELDS = [
  ["program", "Program and arguments", "Quotes and \\ as in a shell; no shell reads it.", "python train.py --epochs 3"],
  ["cwd", "Folder", "Where it runs; empty: the home folder of the service’s user.", "/home/me/project"],
  ["deadline", "Deadline", "A duration from its submission, or a time.", "1h30m, 18:00"],
  ["cores", "Cores", "Least and most, or the most alone.", "0.5..2"],
  ["work", "Work", "Core time of the whole job, if it is known.", "30m"],
  ["guarantee", "Run only if the deadline is promised", "", ""],
  ["name", "Name", "Empty: made from the program’s.", "", true],
  ["memory", "Memory", "Memory that it needs and may use, for each worker if it has some; empty: not known.", "4GiB", true],
  ["workers", "Workers", "Least and most, of a program that uses punctual.elastic.", "1..4", true],
  ["gpus", "GPUs", "Least and most workers with a GPU each, or the part of one.", "0.5", true],
  ["steps", "Steps", "Of the whole job, if the program does not say.", "1000", true],
  ["progressRegex", "Progress in its output", "A pattern with the groups step and total, or auto.", "auto", true],
  ["until", "Until", "The loss to train to.", "loss<0.1", true],
  ["margin", "Margin", "Share of the deadline to be early by.", "0.1%", true],
  ["budgetUsd", "Budget", "Dollars that it may cost, where machines have prices.", "40", true],
  ["weight", "Weight", "How much it counts against other jobs; empty: 1.", "1", true],
  ["after", "After", "Names of jobs that must have finished before it starts.", "first, second", true],
  ["retries", "Retries", "How often it is started again after failures without a step between.", "3", true],
  ["checkpointDir", "Folder of checkpoints", "An absolute path.", "/home/me/checkpoints", true],
];
const NUMBERS = ["steps", "weight", "retries", "budgetUsd"], LISTS = ["after"];

/** @type {(name: string) => HTMLInputElement} */
const input = (name) => at(`job-${name}`);
const said = (/** @type {string} */ name) => input(name).value.trim();

for (const [name, label, help, example, isSeldom] of FIELDS) {
  const field = element("div", "", "field"), box = /** @type {HTMLInputElement} */ (element(name === "program" ? "textarea" : "input"));
  const { title, explained, fault } = labelled(box, [`job-${name}`, `help-${name}`, `fault-${name}`], label, help + (example && ` Such as ${example}`));
  field.append(title, box, explained, fault);
  if (name === "guarantee") {
    box.type = "checkbox";
    title.prepend(box);
  }
  (isSeldom ? at("more-fields").lastElementChild : at("fields")).append(field);
}

/** The job that the form means; null: no program is named. @returns {any} raises Error where a quote is not closed */
function asked() {
  const program = words(input("program").value);
  if (!program.length) return null;
  /** @type {Record<string, any>} */
  const job = { program };
  for (const [name] of FIELDS) {
    const text = said(name);
    if (!text || name === "program" || name === "guarantee") continue;
    // What is no number is sent as it is: the service says what must hold.
    job[name] = NUMBERS.includes(name) && Number.isFinite(Number(text)) ? Number(text) : LISTS.includes(name) ? text.split(/[\s,]+/).filter(Boolean) : text;
  }
  if (input("guarantee").checked) job.guarantee = true;
  return job;
}

/** The command line that does the same. @param {any} job */
function command(job) {
  const options = Object.entries(job).filter(([name]) => name !== "program" && name !== "cwd");
  const told = options.flatMap(([name, value]) => {
    const option = `--${name.replace(/Usd$/, "").replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    return value === true ? [option] : [value].flat().map((each) => `${option}=${typed(String(each))}`);
  });
  return `cd ${job.cwd ? typed(job.cwd) : "~"} && ${["punctual submit", ...told, "--", ...job.program.map(typed)].join(" ")}`;
}

/** Shows what is wrong beside the fields that it is about. @param {{must: string, got: string, where: string, remedy: string, field?: string}[]} faults @param {string} [other] */
function showFaults(faults, other = "") {
  /** @type {Record<string, string[]>} */
  const texts = { all: other ? [other] : [] };
  for (const fault of faults) {
    const name = (fault.field || "").split("/").filter((part) => part && part !== "job")[0];
    const key = FIELDS.some(([known]) => known === name) ? name : "all";
    (texts[key] ||= []).push(inOneText(fault));
  }
  for (const [name] of FIELDS) {
    at(`fault-${name}`).textContent = (texts[name] || []).join(" ");
    if (texts[name]) input(name).setAttribute("aria-invalid", "true");
    else input(name).removeAttribute("aria-invalid");
  }
  at("fault-all").textContent = texts.all.join(" ");
  if (at("more-fields").querySelector("[aria-invalid]")) at("more-fields").open = true;
}

/** @param {unknown} error @param {string} lost what there is to say where no answer came */
function tell(error, lost) {
  if (error instanceof Refused) showFaults(error.faults, error.faults.length ? "" : error.message);
  else showFaults([], `The service does not answer. ${lost}`);
}

/** Of the form as it was sent, as long as it is not known whether the job was submitted; "": it is, or was not sent. */
let key = "";

// The quote.

const quotes = quotesAfterPause(
  (/** @type {any} */ job, signal) => {
    at("quote").setAttribute("aria-busy", "true");
    return post("/quote", { job }, { signal });
  },
  (answer) => {
    if (!key) showFaults([]); // else what is shown is of the submission
    at("quote").replaceChildren(...shown(answer, "Use", (deadline) => { input("deadline").value = deadline; changed(); }, at("quote").clientWidth));
    at("quote").removeAttribute("aria-busy");
    drawFinishes(at("quote-chart"), answer);
  },
  (error) => {
    if (!key) tell(error, "Nothing was submitted; try again.");
    at("quote-chart").hidden = true;
    at("quote").replaceChildren(element("p", "There is no quote for what the form says."));
    at("quote").removeAttribute("aria-busy");
  },
);

// What is typed.

function changed() {
  quotes.forget();
  key = "";
  at("submitted").textContent = at("copied").textContent = "";
  const job = read();
  at("command").value = job ? command(job) : "";
  if (job) quotes.askSoon(job);
  else {
    at("quote").replaceChildren(element("p", "Name a program."));
    at("quote-chart").hidden = true;
  }
}

/** As `asked`; what cannot be read is shown and is null. */
function read() {
  try {
    const job = asked();
    if (!job) showFaults([]);
    return job;
  } catch (error) {
    const got = /** @type {Error} */ (error).message;
    showFaults([{ must: "each quote must be closed", got, where: "the program", remedy: "Close it, or put \\ before it.", field: "/program" }]);
    return null;
  }
}

/** @param {Event} event */
async function submit(event) {
  event.preventDefault();
  const job = read(), button = at("job").querySelector("button");
  if (!job) return input("program").focus();
  // The same form sent again, after an answer that was lost, is the same job.
  key ||= [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");
  button.disabled = true;
  try {
    const standing = await post("/jobs", job, { headers: { "Idempotency-Key": key } });
    key = "";
    showFaults([]);
    const link = /** @type {HTMLAnchorElement} */ (element("a", "See all jobs"));
    link.href = "#/";
    at("submitted").replaceChildren(jobLink(standing.name), " was submitted. ", link);
  } catch (error) {
    tell(error, "The job may have been submitted: press Submit again without a change, which submits it once, or look at all jobs.");
    at("job").querySelector("[aria-invalid]")?.focus();
  } finally {
    button.disabled = false;
  }
}

async function copy() {
  at("command").select();
  // Only where the address is a secure one may a page write to the clipboard.
  const done = await navigator.clipboard?.writeText(at("command").value).then(() => true, () => false);
  at("copied").textContent = done ? "Copied." : "It is selected: copy it with the keyboard.";
}

at("job").addEventListener("input", changed);
at("job").addEventListener("submit", submit);
at("copy").addEventListener("click", copy);
// As an earlier job.

/** @param {number | null} least @param {number | null} most */
const bounds = (least, most) => (most === null ? "" : `${amount(least)}..${amount(most)}`);

/** As it is typed. @param {number} seconds */
const duration = (seconds) => [[Math.floor(seconds / 3600), "h"], [Math.floor(seconds / 60) % 60, "m"], [seconds % 60, "s"]].filter(([n]) => n).map((part) => part.join("")).join("") || "0s";

/** Fills the form with what an earlier job had; its name, deadline and secrets are left open. @param {string} name */
async function fillAs(name) {
  const job = latest.jobs.find((each) => each.name === name);
  if (!job) return;
  const { folder, options } = await jobProgram(name);
  const lasted = job.deadline ? Math.round((Date.parse(job.deadline) - Date.parse(job.submitted)) / 1000) : null;
  /** @type {Record<string, string>} */
  const had = {
    program: job.program.map(typed).join(" "), cwd: folder || "", cores: job.leastWorkers === null ? bounds(job.leastCores, job.mostCores) : "", workers: options.gpus ? "" : bounds(job.leastWorkers, job.mostWorkers),
    weight: job.weight === 1 ? "" : amount(job.weight), work: job.landed && job.attempts === 1 && job.usedCoreSeconds ? duration(Math.ceil(job.usedCoreSeconds)) : "", deadline: lasted === null ? "" : duration(lasted), ...options,
  };
  for (const [field] of FIELDS) if (field !== "guarantee") input(field).value = had[field] || "";
  input("guarantee").checked = Boolean(options.guarantee);
  changed();
  if (job.program.some((/** @type {string} */ word) => word.includes("***"))) at("fault-program").textContent = "What looked like a secret is not kept: type it in place of ***.";
  input("program").focus();
}

function offerEarlier() {
  const names = [...new Set(latest.jobs.map((job) => job.name))].reverse(), named = place()[1];
  at("again-field").hidden = !names.length;
  offer(at("again"), ["", ...names], (name) => name || "none");
  if (!named || !names.includes(named)) return;
  at("again").value = named;
  return fillAs(named);
}

at("again").addEventListener("input", (/** @type {Event} */ event) => { event.stopPropagation(); fillAs(at("again").value); });
onView("submit", async () => {
  const mayOnlyRead = (await health()).role === "viewer";
  [at("reads-only").hidden, at("submitting").hidden] = [!mayOnlyRead, mayOnlyRead];
  await offerEarlier();
});
