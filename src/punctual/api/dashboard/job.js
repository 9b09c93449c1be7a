// One job: how it stands, why, and what it writes.
import { chosenOther, offerOthers } from "./compared.js";
import { resetCourse, showHistory } from "./job_history.js";
import { readLog, showLast, stopReading } from "./job_log.js";
import { ICONS, isOver, warnings } from "./judge.js";
import { frozen, health, jobHistory, jobProgram, oneJob, present, reasons, Refused } from "./service.js";
import { steer, steerable } from "./steer.js";
import { typed } from "./command_line.js";
import { amount, at, capital, clock, counted, dollars, element, expected, icon, memory, relative, span, timed, visible } from "./texts.js";
import { onView, place } from "./views.js";

/** Its course and its reasons are looked at again when it stands otherwise, and after this many looks. */
const N_LOOKS = 3;
/** Between two looks at the job, and how many of the latest reasons are shown; a report has as many. */
const REFRESH_MS = 2000, N_REASONS = 50;

let name = "", saidReasons = "", isLooking = false;
/** What the course was last shown for, beside which other run and how many looks ago; and whether nothing will change any more. */
let shownFor = "", shownOther = chosenOther(), nLooks = 0, isFinal = false;

/** @param {number | null} least @param {number | null} most */
const bounds = (least, most) => (least === null ? "" : `${amount(least)} to ${most === null ? "any" : amount(most)}`);
/** A number of steps as the terminal writes it. @param {number} n */
const whole = (n) => Math.round(n).toLocaleString("en");
/** @param {any} job */
const progress = (job) =>
  (job.progressPercentage === null ? (job.stepsDone ? "not told" : "none yet") : `${job.progressPercentage.toFixed(1)} %`) +
  (!job.stepsDone ? "" : ` (${whole(job.stepsDone)}${job.stepsTotal === null ? "" : ` of ${whole(job.stepsTotal)}`} steps)`);
/** An instant, and how far it is from now. @param {string | null} time @param {number} nowMs */
const instant = (time, nowMs) => (time === null ? "" : `${clock(time)}, ${relative(Date.parse(time), nowMs)}`);
/** An amount with its unit; "": not known. @param {number | null} number @param {string} unit */
const measure = (number, unit) => (number === null ? "" : `${amount(number)} ${unit}`);

/** Facts in groups, in the order shown; those without a text are left out. The last group is folded. @param {any} job @param {number} nowMs @returns {[string, [string, string][]][]} */
const facts = (job, nowMs) => [
  ["Time", [
    ["Deadline", !job.deadline ? "none" : isOver(job) ? clock(job.deadline) : instant(job.deadline, nowMs)],
    ["Expected", job.ended || job.estimatedRemainingSeconds === null ? "" : expected(job, nowMs)],
    ["Slack", job.slackSeconds === null || isOver(job) || job.estimatedRemainingSeconds === null ? "" : `${job.slackSeconds < 0 ? "−" : ""}${span(job.slackSeconds)} at full speed`],
    ["Promised until", job.promisedUntil ? clock(job.promisedUntil) : ""],
    ["Submitted", instant(job.submitted, nowMs)], ["Started", instant(job.started, nowMs)], ["Landed", instant(job.landed, nowMs)], ["Ended", instant(job.ended, nowMs)],
  ]],
  ["Work", [
    ["State", job.state + (job.exitCode === null ? "" : `, exit status ${job.exitCode}`)],
    ["Verdict", job.word],
    ["Why", job.cause || job.reason?.text || ""],
    ["Progress", progress(job)],
    ["Speed", measure(isOver(job) ? null : job.stepsPerSecond, "steps a second")],
    ["Core time used", measure(job.usedCoreSeconds, "core seconds")],
  ]],
  ["Resources", [
    ["Cores granted", (isOver(job) ? "" : amount(job.grantedCores)) + (job.workers === null ? "" : ` (${counted(job.workers, "worker")})`)],
    ["Cores used", isOver(job) || job.usedCores === null ? "" : amount(job.usedCores)],
    ["Cores demanded", job.demandCores === null ? "" : amount(job.demandCores)],
    ["Least and most", bounds(job.leastCores, job.mostCores) && `${bounds(job.leastCores, job.mostCores)} cores`],
    ["Workers", bounds(job.leastWorkers, job.mostWorkers)],
    ["Memory", job.memoryBytes || job.peakMemoryBytes ? `${memory(job.memoryBytes)} now, ${memory(job.peakMemoryBytes)} at most${job.askedMemoryBytes ? `, ${memory(job.askedMemoryBytes)} asked for` : ""}` : ""],
    ["Nodes", job.nodes?.join(", ") || ""],
    ["Cost", job.spentUsd === null ? "" : `${dollars(job.spentUsd)}${job.budgetUsd === null ? "" : ` of ${dollars(job.budgetUsd)}`}${isOver(job) ? "" : " so far"}`],
  ]],
  ["", [["Weight", amount(job.weight)], ["Controller", job.controller || ""], ["Attempts", String(job.attempts)]]],
];

/** Brings a list of facts to what it says; of what is there only what differs is changed. @param {any} list @param {[string, string][]} told @param {string} kind */
function bring(list, told, kind) {
  const shown = told.filter(([, text]) => text);
  while (list.children.length > shown.length) list.lastChild.remove();
  shown.forEach(([term, said], i) => {
    const text = visible(said);
    if (!list.children[i]) {
      const pair = element("div", "", "fact");
      pair.append(element("dt"), element("dd"));
      list.append(pair);
    }
    const [title, value] = list.children[i].children;
    if (title.textContent !== term) title.textContent = term;
    if (value.textContent !== text) value.textContent = text;
    value.className = term === "Verdict" && (kind === "met" || kind === "missed") ? kind : "";
  });
}

/** @param {any} job */
function showFacts(job) {
  const kind = /** @type {import("./judge.js").Kind} */ (job.kind), nowMs = present();
  facts(job, nowMs).forEach(([title, told], i) => {
    const into = title ? at("one-facts") : at("one-seldom").lastElementChild, place = title ? i : 0;
    if (!into.children[place]) {
      const group = element("div");
      group.append(...(title ? [element("h4", title)] : []), element("dl"));
      into.append(group);
    }
    bring(into.children[place].lastElementChild, told, kind);
  });
  const line = at("one-headline"), said = timed(job.headline);
  if (line.dataset.kind !== kind) {
    line.dataset.kind = kind;
    line.className = `headline ${ICONS[kind]}`;
    line.replaceChildren(icon(ICONS[kind]), element("span"));
  }
  if (line.lastChild.textContent !== said) line.lastChild.textContent = visible(said);
  const warned = warnings(job), list = at("one-warnings");
  list.hidden = !warned.length;
  if (list.textContent !== warned.map(capital).map(visible).join("")) list.replaceChildren(...warned.map((text) => element("li", capital(text))));
  showLast(kind === "failed" ? job.name : "");
}

/** @param {any} entry */
function reasonItem(entry) {
  const item = element("li", "", entry.kind.replace(/\W+/g, "-")), time = element("time", clock(entry.time));
  /** @type {HTMLTimeElement} */ (time).dateTime = entry.time;
  item.append(time, element("small", entry.kind), element("span", capital(entry.text)));
  return item;
}

/** The decisive one on top, the others below it, the latest first. @param {any} why */
function showReasons(why) {
  const said = JSON.stringify(why);
  if (said === saidReasons) return;
  saidReasons = said;
  const decisive = JSON.stringify(why.decisive);
  const items = why.entries.filter((/** @type {any} */ entry) => JSON.stringify(entry) !== decisive).reverse().map(reasonItem);
  if (why.decisive) {
    const item = reasonItem(why.decisive);
    item.classList.add("decisive");
    item.children[1].prepend(element("b", "Decisive"), " ");
    items.unshift(item);
  }
  at("one-reasons").replaceChildren(...items);
}

/** What of a job says that its course has to be shown at once; a grant may change every second. @param {any} job */
const standing = (job) => JSON.stringify([job.state, job.attempts, job.deadline && Math.round(Date.parse(job.deadline) / 2000)]);

async function look() {
  if (at("one-job").hidden || document.hidden || isLooking || (isFinal && chosenOther() === shownOther)) return;
  const asked = name, other = chosenOther();
  isLooking = true;
  try {
    const job = await oneJob(asked);
    const isCourseDue = standing(job) !== shownFor || other !== shownOther || (nLooks += 1) >= N_LOOKS || at("one-found").hidden;
    const course = isCourseDue ? await Promise.all([reasons(asked, N_REASONS), jobHistory(asked)]) : null;
    if (asked !== name) return; // another job is shown meanwhile
    at("one-problem").textContent = "";
    at("one-found").hidden = false;
    showFacts(job);
    steerable(job);
    if (course) {
      [shownFor, shownOther, nLooks] = [standing(job), other, 0];
      showReasons(course[0]);
      showHistory(course[1], job, course[0].entries, other);
    }
    isFinal = Boolean(job.ended && course);
  } catch (error) {
    if (asked !== name) return;
    const isMissing = error instanceof Refused && error.status === 404;
    const told = isMissing ? `There is no job ${asked}: it was removed, or the name is another. Choose one from all jobs.` : error instanceof Refused && error.message;
    at("one-problem").textContent = told || "The service does not answer. What is shown may be old.";
    if (isMissing) at("one-found").hidden = true;
  } finally {
    isLooking = false;
  }
}

/** @param {string} asked */
async function showProgram(asked) {
  const { arguments: words, folder, variables, handedOn } = await jobProgram(asked);
  if (asked !== name) return;
  const told = [
    ["Command", words.map(typed).join(" ")], ["Folder", folder || "that of its host"],
    ...Object.entries(variables).map(([variable, value]) => [variable, value]),
    ["Other variables", handedOn.length ? `${handedOn.join(", ")} (values are not told: any may be a secret)` : "None are kept: they are forgotten when a job has ended."],
  ];
  at("one-program").replaceChildren(...told.flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
}

function enter() {
  name = place()[1] || "";
  saidReasons = shownFor = "";
  isFinal = false;
  at("one-program").replaceChildren();
  at("one-title").textContent = name ? `Job ${name}` : "No job is named";
  at("one-found").hidden = true;
  at("one-said").textContent = visible(frozen?.said[name] || "");
  at("one-facts").replaceChildren();
  showLast("");
  resetCourse();
  at("one-again").href = `#/submit/${encodeURIComponent(name)}`;
  health().then(({ role, takesJobs }) => { at("one-again").hidden = !takesJobs || role === "viewer"; }, () => {});
  at("one-reasons").replaceChildren();
  at("one-problem").textContent = name ? "" : "Choose one from all jobs.";
  if (!name) return stopReading();
  at("log-stream").value = "stdout";
  readLog(name);
  isLooking = false;
  steer(name).then(look);
  showProgram(name).catch(() => {}); // that there is no such job is told elsewhere
  offerOthers(name, look);
}

onView("jobs", enter);
addEventListener("hashchange", () => { if (place()[0] !== "jobs") stopReading(); });
if (!frozen) setInterval(() => { if (name) look(); }, REFRESH_MS);
