// All jobs against their deadlines. A row is changed only where what it says has changed.
import { allJobs, cluster, follow, forgetToken, frozen, hasToken, health, keepToken, Refused } from "./service.js";
import { amount, at, clock, drawn, element, expected, memory, VERDICTS, visible } from "./texts.js";
import { onView, openViews } from "./views.js";
import "./budget.js";
import "./job.js";
import "./submit.js";
import "./what_if.js";

/** Least time between two looks at all jobs, and the longest without one; usage changes without an event. */
const PAUSE_MS = 1000, LONGEST_MS = 5000;
/** No sign of life for so long: the connection is made again. The service gives one every 15 s. */
const SILENCE_MS = 40000;

/** @type {Map<string, {row: HTMLTableRowElement, said: string[]}>} */
const rows = new Map();
/** @type {any[]} */
let jobs = [];
let lastId = "", isLooking = false;

/** Where the line to the job's deadline is now, in percent; empty: there is none. @param {any} job @param {number} nowMs */
function line(job, nowMs) {
  if (job.landed || job.ended || job.deadline === null || job.lineSince === null) return "";
  const begun = Date.parse(job.lineSince), lasts = Date.parse(job.deadline) - begun, left = 100 - job.lineSincePercentage;
  return Math.min(100, Math.max(0, lasts > 0 ? 100 - left * (1 - (nowMs - begun) / lasts) : 100)).toFixed(0);
}
/** Why it is as it is; of a refusal also which deadline would have been accepted. @param {any} job */
const why = (job) =>
  (job.cause || job.reason?.text || "") +
  (job.earliestDeadline === null ? "" : ` — the earliest that would have been accepted: ${clock(job.earliestDeadline)}`);
/** The texts of a row's cells. @param {any} job @param {number} nowMs @returns {string[]} */
const cells = (job, nowMs) => [
  job.name, job.state, job.verdict || "", job.progressPercentage === null ? "" : `${job.progressPercentage.toFixed(1)} ${line(job, nowMs)}`,
  clock(job.deadline), expected(job, nowMs), amount(job.grantedCores), amount(job.usedCores),
  memory(job.memoryBytes) + (job.askedMemoryBytes ? ` of ${memory(job.askedMemoryBytes)}` : ""), why(job),
];

/** A bar with a mark at its line; the text beside it says the same. @param {number} done @param {string} due in percent */
function bar(done, due) {
  const svg = drawn("svg", { viewBox: "0 0 100 12", "aria-hidden": "true" });
  svg.append(drawn("rect", { class: "all", y: 2, width: 100, height: 8 }), drawn("rect", { class: "done", y: 2, width: done, height: 8 }));
  if (due) svg.append(drawn("rect", { class: "due", x: Number(due) * 0.98, width: 2, height: 12 }));
  return svg;
}
/** @param {HTMLTableCellElement} cell @param {number} column @param {string} text */
function fill(cell, column, text) {
  if (column === 0) {
    const link = /** @type {HTMLAnchorElement} */ (element("a", text));
    link.href = `#/jobs/${encodeURIComponent(text)}`;
    cell.replaceChildren(link);
  } else if (column === 2) {
    cell.className = text;
    cell.textContent = VERDICTS[text] || "–";
  } else if (column === 3 && text) {
    const [done, due] = text.split(" ");
    cell.replaceChildren(bar(Number(done), due), ` ${done} %${due && `, line ${due} %`}`);
  } else cell.textContent = visible(text) || "–";
}

function chosen() {
  const text = at("search").value.toLowerCase(), key = at("sort").value;
  const shown = jobs.filter((job) =>
    (!at("verdict").value || job.verdict === at("verdict").value) && (!at("state").value || job.state === at("state").value) &&
    `${job.name} ${job.program.join(" ")}`.toLowerCase().includes(text));
  const order = (/** @type {any} */ job) => (key === "slackSeconds" ? job[key] : key === "name" ? job[key] : job[key] && Date.parse(job[key]));
  return shown.sort((a, b) => {
    const [left, right] = [order(a), order(b)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return left < right ? -1 : Number(left > right);
  });
}

function show() {
  const nowMs = Date.now(), shown = chosen(), body = at("jobs");
  const names = new Set(shown.map((job) => job.name));
  for (const [name, { row }] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
  shown.forEach((job, i) => {
    let known = rows.get(job.name);
    if (!known) {
      const row = document.createElement("tr");
      for (const _ of cells(job, nowMs)) row.insertCell();
      known = { row, said: [] };
      rows.set(job.name, known);
    }
    cells(job, nowMs).forEach((text, n) => {
      if (known.said[n] !== text) fill(known.row.cells[n], n, known.said[n] = text);
    });
    if (body.rows[i] !== known.row) body.insertBefore(known.row, body.rows[i] || null);
  });
  at("empty").hidden = shown.length > 0;
  at("empty").textContent = jobs.length ? "No job matches what is chosen above." : "No jobs yet. Submit one with `punctual submit --deadline 1h -- python train.py`.";
}

async function look() {
  // The list is long: where it is not seen it is not asked for, but to find out whether the service lets the reader in.
  const isNeeded = !rows.size || !at("overview").hidden;
  const [listed, held] = await Promise.all([isNeeded ? allJobs() : jobs, frozen ? null : cluster()]);
  jobs = listed;
  if (held) at("cluster").textContent = `${held.policy}: ${amount(held.held.cores)} of ${amount(held.capacity.cores)} cores held, ${amount(held.free.cores)} free; ${memory(held.capacity.memoryBytes)} of memory`;
  if (at("submit-link").dataset.isKnown !== "true") {
    at("submit-link").hidden = !(await health()).takesJobs;
    at("submit-link").dataset.isKnown = "true";
  }
  openViews(true);
  at("problem").hidden = true;
  show();
}

/** @param {unknown} error */
function tell(error) {
  const isRefused = error instanceof Refused;
  at("problem").hidden = false;
  at("problem").textContent = isRefused ? error.message : "The service does not answer. Is `punctual up` running? This page goes on trying.";
  if (isRefused && error.status === 401) {
    forgetToken();
    at("entry").hidden = false;
    openViews(false);
  }
}

function hear() {
  const text = frozen ? `As it stood ${clock(frozen.at)}` : `Last heard ${clock(Date.now())}`;
  if (at("heard").textContent !== text) at("heard").textContent = text;
}

let looksAt = 0, isDue = true;
async function pulse() {
  const since = Date.now() - looksAt;
  if (frozen && looksAt) return; // it stays as it is
  if (!hasToken() || isLooking || document.hidden || since < PAUSE_MS || !(isDue || since > LONGEST_MS)) return;
  [isLooking, isDue, looksAt] = [true, false, Date.now()];
  await look().then(hear, tell);
  isLooking = false;
}

async function listen() {
  for (;;) {
    const stop = new AbortController();
    let timer = setTimeout(() => stop.abort(), SILENCE_MS);
    if (hasToken()) await follow(lastId, (id) => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
      hear();
      if (id) [lastId, isDue] = [id, true];
    }, stop.signal).catch(tell);
    clearTimeout(timer);
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

at("entry").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  keepToken(at("token").value);
  at("token").value = "";
  at("entry").hidden = true;
  isDue = true;
});
onView("", () => { isDue = true; });
for (const id of ["search", "verdict", "state", "sort"]) at(id).addEventListener("input", show);
if (frozen) {
  document.documentElement.className = "frozen";
  const [only, ...others] = Object.keys(frozen.said);
  if (!location.hash && !others.length) history.replaceState(null, "", `#/jobs/${encodeURIComponent(only)}`);
}
/** Lets the reader in who has a token, which may just have come with the address. */
function showEntry() {
  at("entry").hidden = hasToken();
  isDue = true;
}
addEventListener("hashchange", showEntry);
showEntry();
setInterval(pulse, 500);
pulse();
if (!frozen) listen();
