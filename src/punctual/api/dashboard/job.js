// One job: how it stands, why, and what it writes.
import { chosenOther, offerOthers } from "./compared.js";
import { showHistory } from "./job_history.js";
import { readLog, stopReading } from "./job_log.js";
import { frozen, Refused, jobHistory, jobProgram, oneJob, reasons } from "./service.js";
import { steer, steerable } from "./steer.js";
import { typed } from "./command_line.js";
import { amount, at, clock, element, expected, memory, VERDICTS, visible } from "./texts.js";
import { onView, place } from "./views.js";

/** Its course and its reasons are looked at again when it stands otherwise, and after this many looks. */
const N_LOOKS = 3;
/** Between two looks at the job, and how many of the latest reasons are shown; a report has as many. */
const REFRESH_MS = 2000, N_REASONS = 50;

let name = "", saidReasons = "", isLooking = false;
/** What the course was last shown for, beside which other run and how many looks ago; and whether nothing will change any more. */
let shownFor = "", shownOther = chosenOther(), nLooks = 0, isOver = false;

/** @param {number | null} least @param {number | null} most */
const bounds = (least, most) => (least === null ? "–" : `${amount(least)} to ${most === null ? "–" : amount(most)}`);
/** @param {number | null} seconds */
const spare = (seconds) => (seconds === null ? "–" : `${Math.round(seconds)} s`);
/** @param {any} job */
const progress = (job) =>
  (job.progressPercentage === null ? "–" : `${job.progressPercentage.toFixed(1)} %`) +
  (job.stepsDone === null ? "" : ` (${amount(job.stepsDone)}${job.stepsTotal === null ? "" : ` of ${amount(job.stepsTotal)}`} steps, ${amount(job.stepsPerSecond)} a second)`);

/** Terms and what they are, in the order shown. @param {any} job @param {number} nowMs @returns {[string, string][]} */
const facts = (job, nowMs) => [
  ["State", job.state + (job.exitCode === null ? "" : `, exit status ${job.exitCode}`)],
  ["Verdict", VERDICTS[job.verdict] || "–"],
  ["Why", job.cause || job.reason?.text || "–"],
  ["Progress", progress(job)],
  ["Deadline", clock(job.deadline)],
  ["Expected", expected(job, nowMs)],
  ["Slack", spare(job.slackSeconds)],
  ["Promised until", clock(job.promisedUntil)],
  ["Cores granted", amount(job.grantedCores) + (job.workers === null ? "" : ` (${job.workers} workers)`)],
  ["Cores used", amount(job.usedCores)],
  ["Cores demanded", amount(job.demandCores)],
  ["Core time used", job.usedCoreSeconds === null ? "–" : `${amount(job.usedCoreSeconds)} core seconds`],
  ["Memory", `${memory(job.memoryBytes)} now, ${memory(job.peakMemoryBytes)} at most${job.askedMemoryBytes ? `, ${memory(job.askedMemoryBytes)} asked for` : ""}`],
  ["Least and most cores", bounds(job.leastCores, job.mostCores)],
  ...(job.leastWorkers === null ? [] : [/** @type {[string, string]} */ (["Least and most workers", bounds(job.leastWorkers, job.mostWorkers)])]),
  ["Weight", amount(job.weight)],
  ["Controller", job.controller || "–"],
  ["Attempts", String(job.attempts)],
  ["Submitted", clock(job.submitted)],
  ["Started", clock(job.started)],
  ["Ended", clock(job.ended)],
  ...Object.values(job.warnings).map((text) => /** @type {[string, string]} */ (["Warning", String(text)])),
];

/** @param {any} job */
function showFacts(job) {
  const told = facts(job, Date.now()), list = at("one-facts");
  while (list.children.length > told.length) list.lastChild.remove();
  told.forEach(([term, said], i) => {
    const text = visible(said);
    if (!list.children[i]) {
      const pair = element("div");
      pair.append(element("dt"), element("dd"));
      list.append(pair);
    }
    const [title, value] = list.children[i].children;
    if (title.textContent !== term) title.textContent = term;
    if (value.textContent !== text) value.textContent = text;
    value.className = term === "Verdict" ? job.verdict || "" : "";
  });
}

/** The latest first. @param {any[]} entries */
function showReasons(entries) {
  const said = JSON.stringify(entries);
  if (said === saidReasons) return;
  saidReasons = said;
  at("one-reasons").replaceChildren(...entries.reverse().map((entry) => {
    const item = element("li"), time = element("time", clock(entry.time));
    /** @type {HTMLTimeElement} */ (time).dateTime = entry.time;
    item.append(time, ` ${visible(entry.text)}`);
    return item;
  }));
}

/** What of a job says that its course has to be shown at once; a grant may change every second. @param {any} job */
const standing = (job) => JSON.stringify([job.state, job.attempts, job.deadline && Math.round(Date.parse(job.deadline) / 2000)]);

async function look() {
  if (at("one-job").hidden || document.hidden || isLooking || (isOver && chosenOther() === shownOther)) return;
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
      showHistory(course[1], job, other);
    }
    isOver = Boolean(job.ended && course);
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
  isOver = false;
  at("one-program").replaceChildren();
  at("one-title").textContent = name ? `Job ${name}` : "No job is named";
  at("one-found").hidden = true;
  at("one-said").textContent = visible(frozen?.said[name] || "");
  at("one-facts").replaceChildren();
  at("one-reasons").replaceChildren();
  at("one-problem").textContent = name ? "" : "Choose one from all jobs.";
  if (!name) return stopReading();
  readLog(name);
  isLooking = false;
  steer(name).then(look);
  showProgram(name).catch(() => {}); // that there is no such job is told elsewhere
  offerOthers(name, look);
}

onView("jobs", enter);
addEventListener("hashchange", () => { if (place()[0] !== "jobs") stopReading(); });
if (!frozen) setInterval(() => { if (name) look(); }, REFRESH_MS);
