// All jobs against their deadlines: the answer, figures, and one table that is seen as lanes or as columns. A row is changed only where what it says has changed.
import "./hints.js";
import { answer, byAttention, cause, ICONS, isOver, landingAt, notices, reason, tally, title } from "./judge.js";
import { allJobs, cluster, follow, forgetToken, frozen, hasToken, health, keepToken, latest, present, Refused } from "./service.js";
import { amount, at, capital, clock, dollars, drawn, element, expected, icon, jobLink, memory, relative, roughly, timed, visible } from "./texts.js";
import { axisOf, drawAxis, drawLane, laneOf } from "./timeline.js";
import { onView, openViews } from "./views.js";
import "./budget.js";
import "./job.js";
import "./submit.js";
import "./what_if.js";

/** Least time between two looks at all jobs, and the longest without one; usage changes without an event. */
const PAUSE_MS = 1000, LONGEST_MS = 5000;
/** Where the jobs are not seen, they are looked at this often: for the title, and for notices. */
const UNSEEN_MS = 15000;
/** No sign of life for so long: the connection is made again. The service gives one every 15 s. */
const SILENCE_MS = 40000;
/** Fewer than so many jobs are not worth a button to fold them. */
const N_FOLDED = 4;
/** So many jobs that want attention say why at once, the first; the others when they are asked. */
const N_URGENT = 5;

/** @type {Map<string, {row: HTMLTableRowElement, said: string[]}>} */
const rows = new Map();
/** By name, as they stood at the last look. @type {Map<string, any>} */
let named = new Map();
let lastId = "", isLooking = false, listedAt = 0, areLanes = true, wanted = "";
/** Whether the reader may do what helps a job; null: not known yet. @type {boolean | null} */
let mayHelp = null;

const axis = drawn("svg", { class: "axis", "aria-hidden": "true" });
let axisWidth = 0;

/** Where the line to the job's deadline is now, in percent; empty: there is none. @param {any} job @param {number} nowMs */
function line(job, nowMs) {
  if (isOver(job) || job.deadline === null || job.lineSince === null) return "";
  const begun = Date.parse(job.lineSince), lasts = Date.parse(job.deadline) - begun, left = 100 - job.lineSincePercentage;
  return Math.min(100, Math.max(0, lasts > 0 ? 100 - left * (1 - (nowMs - begun) / lasts) : 100)).toFixed(0);
}

/** @typedef {{nowMs: number, axis: import("./timeline.js").Axis, isUrgent: (job: any) => boolean}} Scene */

/** An instant as it is seen from now, whole, and with the words that name it where no column does. @param {number | string | null} time @param {number} nowMs @param {string} whole @param {string} name */
const instant = (time, nowMs, whole, name) => (time === null ? "" : `${roughly(typeof time === "string" ? Date.parse(time) : time, nowMs)}\n${whole}\n${name}`);

/** @param {any} job @param {Scene} scene */
function landing(job, { nowMs }) {
  const time = landingAt(job, nowMs), starts = job.expectedStart && Date.parse(job.expectedStart);
  if (time !== null) return instant(time, nowMs, expected(job, nowMs), job.landed ? "landed" : "lands");
  if (starts) return `starts ${roughly(starts, nowMs)}\n${timed(job.phrase)}`;
  return job.ended ? instant(job.ended, nowMs, `Ended ${clock(job.ended)}`, "ended") : "";
}

/** A column: its class, and the text that its cell is made of. Those of lanes and of columns are made where they are seen. @type {[string, (job: any, scene: Scene) => string][]} */
const COLUMNS = [
  ["name", (job) => `${job.name}\n${job.state}${job.progressPercentage === null || isOver(job) ? "" : ` · ${job.progressPercentage.toFixed(1)} % done`}`],
  ["verdict", (job) => `${job.kind}\n${job.word}`],
  ["lane", (job, { axis, nowMs }) => laneOf(job, axis, nowMs)],
  ["column", (job, { nowMs }) => (job.progressPercentage === null ? "" : `${job.progressPercentage.toFixed(1)} ${line(job, nowMs)}`)],
  ["number due", (job, { nowMs }) => (job.deadline === null ? "none\n\ndeadline" : isOver(job) ? `${clock(job.deadline)}\n\ndeadline` : instant(job.deadline, nowMs, clock(job.deadline), "due"))],
  ["number end", landing],
  ["column number", (job) => (job.grantedCores === null || isOver(job) ? "" : amount(job.grantedCores))],
  ["column number", (job) => (job.usedCores === null || isOver(job) ? "" : amount(job.usedCores))],
  ["column number", (job) => (job.memoryBytes ? memory(job.memoryBytes) : "") + (job.askedMemoryBytes ? ` of ${memory(job.askedMemoryBytes)}` : "")],
  ["why", (job, { isUrgent }) => `${timed(job.phrase)}\n${reason(job)}\n${isUrgent(job) ? `${job.name}\n${cause(job, latest.jobs)}` : ""}`],
];

/** A bar with a mark at its line; the text beside it says the same. @param {number} done @param {string} due in percent */
function bar(done, due) {
  const svg = drawn("svg", { class: "gauge", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(drawn("rect", { class: "all", y: 2, width: 100, height: 8 }), drawn("rect", { class: "done", y: 2, width: done, height: 8 }));
  if (due) svg.append(drawn("rect", { class: "due", x: Number(due) * 0.98, width: 2, height: 12 }));
  return svg;
}

/**
 * The phrase; the whole reason on hover and focus, and for good when it is pressed. A job that wants attention says at once what keeps it.
 * @param {HTMLTableCellElement} cell @param {string} short @param {string} whole @param {string} urgent the job's name, if it wants attention @param {string} brief
 */
function fillWhy(cell, short, whole, urgent, brief) {
  if (!whole) return cell.replaceChildren(visible(short));
  const was = cell.querySelector("button"), text = element("p"), button = /** @type {HTMLButtonElement} */ (was || element("button"));
  const show = () => {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    text.textContent = visible(isOpen ? whole : brief);
    text.hidden = !isOpen && !urgent;
    if (urgent && mayHelp) text.append(" ", jobLink(urgent, "See what would help"));
  };
  if (!was) button.setAttribute("aria-expanded", "false");
  button.type = "button";
  button.textContent = visible(short);
  button.dataset.whole = visible(whole);
  button.onclick = () => {
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
    show();
  };
  show();
  if (was?.nextElementSibling) was.nextElementSibling.replaceWith(text);
  else cell.replaceChildren(button, text);
}

/** @param {HTMLTableCellElement} cell @param {number} column @param {string} said */
function fill(cell, column, said) {
  const [text, whole = "", name = "", brief = ""] = said.split("\n");
  if (column === 0) {
    const link = cell.querySelector("a") || jobLink(text);
    cell.replaceChildren(link, element("small", whole));
  } else if (column === 1) {
    const kind = /** @type {import("./judge.js").Kind} */ (text), hadKind = cell.dataset.kind;
    cell.className = `verdict ${ICONS[kind]}${hadKind && hadKind !== kind ? " changed" : ""}`;
    cell.dataset.kind = kind;
    cell.replaceChildren(icon(ICONS[kind]), visible(whole));
  } else if (column === 2) drawLane(cell.firstElementChild, said);
  else if (column === 3) {
    const [done, due] = text.split(" ");
    if (text) cell.replaceChildren(bar(Number(done), due), `${done} %${due && `, line ${due} %`}`);
    else cell.replaceChildren();
  } else if (column === COLUMNS.length - 1) fillWhy(cell, text, whole, name, brief);
  else {
    cell.replaceChildren(...(name ? [element("span", `${name} `, "named")] : []), visible(text));
    cell.dataset.whole = whole;
  }
}

/** @param {any} job */
const needsHelp = (job) => job.kind === "late" || job.kind === "risk";
/** Whether the reader has asked for jobs of this kind. @param {any} job @param {number} nowMs */
const isWanted = (job, nowMs) => !wanted || (wanted === "done" ? isOver(job) && Date.parse(job.ended || job.landed) >= midnight(nowMs) : job.kind === wanted);

/** When the reader's day began. @param {number} nowMs */
const midnight = (nowMs) => new Date(nowMs).setHours(0, 0, 0, 0);
/**
 * Folded behind a button but for the first `n`: jobs that wait, those first that start too late; and those that have ended, unless they failed today.
 * @type {{button: string, n: number, text: (n: number) => string, hide: string, has: (job: any, nowMs: number) => boolean, isOpen: boolean}[]}
 */
const folds = [
  { button: "more-waiting", n: 3, text: (n) => `Show ${n} more that wait`, hide: "Hide those that wait", has: (job) => job.kind === "waiting", isOpen: false },
  { button: "more", n: 0, text: (n) => `Show ${n} ended jobs`, hide: "Hide the ended jobs", has: (job, nowMs) => isOver(job) && !(job.kind === "failed" && Date.parse(job.ended || job.landed) >= midnight(nowMs)), isOpen: false },
];

/** The jobs without those that are folded; says on each button what it does. @param {any[]} jobs in order of attention @param {number} nowMs @param {boolean} mayFold */
function folded(jobs, nowMs, mayFold) {
  const away = new Set();
  for (const { button, n, text, hide, has, isOpen } of folds) {
    const all = mayFold ? jobs.filter((job) => has(job, nowMs)) : [], foldable = all.slice(n), isWorth = foldable.length >= N_FOLDED && foldable.length < jobs.length;
    at(button).hidden = !isWorth;
    at(button).setAttribute("aria-expanded", String(isOpen));
    at(button).textContent = isOpen ? hide : text(foldable.length);
    if (isWorth && !isOpen) for (const job of foldable) away.add(job);
  }
  return jobs.filter((job) => !away.has(job));
}

/** @param {number} nowMs @returns {any[]} the jobs to be shown, in their order */
function chosen(nowMs) {
  const text = at("search").value.toLowerCase(), key = at("sort").value, state = at("state").value;
  const found = latest.jobs.filter((job) => isWanted(job, nowMs) && (!state || job.state === state) && `${job.name} ${job.program.join(" ")}`.toLowerCase().includes(text));
  if (key === "attention") {
    found.sort(byAttention);
    return folded(found, nowMs, !wanted && !text && !state);
  }
  const order = (/** @type {any} */ job) => (key === "slackSeconds" || key === "name" ? job[key] : job[key] && Date.parse(job[key]));
  found.sort((a, b) => {
    const [left, right] = [order(a), order(b)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return left < right ? -1 : Number(left > right);
  });
  return folded(found, nowMs, false);
}

function made() {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  for (const [className] of COLUMNS) {
    const cell = row.insertCell();
    cell.className = className;
    cell.setAttribute("role", "cell");
    if (className === "lane") cell.append(drawn("svg", { "aria-hidden": "true" }));
  }
  return { row, said: /** @type {string[]} */ ([]) };
}

/** A figure: its number, its name, and what stands below. @param {string} kind @param {number} n @param {string} name @param {string} note */
function figure(kind, n, name, note) {
  const known = at(`figure-${kind}`), tile = known || element("button", "", ICONS[/** @type {import("./judge.js").Kind} */ (kind)]);
  const said = [n, name, note, wanted === kind].join();
  if (!known) {
    tile.id = `figure-${kind}`;
    tile.type = "button";
    tile.addEventListener("click", () => { wanted = wanted === kind ? "" : kind; show(); });
    at("figures").append(tile);
  }
  if (tile.dataset.said === said) return;
  tile.dataset.said = said;
  tile.classList.toggle("is-none", n === 0);
  tile.classList.toggle("is-some", n > 0 && (kind === "late" || kind === "risk"));
  tile.setAttribute("aria-pressed", String(wanted === kind));
  tile.replaceChildren(icon(ICONS[/** @type {import("./judge.js").Kind} */ (kind)]), element("strong", String(n)), element("span", note ? `${name}, ${note}` : name));
}

/** Cores that are held, and by jobs with a promise, of those there are. */
function cores() {
  const held = latest.cluster, tile = at("figure-cores") || element("div");
  if (!held) return;
  const all = held.capacity.cores || 1, holds = latest.jobs.reduce((sum, job) => sum + (job.grantedCores || 0), 0), sure = latest.jobs.reduce((sum, job) => sum + (job.promisedUntil ? job.grantedCores || 0 : 0), 0);
  const said = [all, holds, sure].map(amount).join();
  if (!tile.id) {
    tile.id = "figure-cores";
    at("figures").append(tile);
  }
  if (tile.dataset.said === said) return;
  tile.dataset.said = said;
  const meter = drawn("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const [className, share] of [["all", 1], ["held", holds / all], ["sure", sure / all]]) meter.append(drawn("rect", { class: className, width: 100 * Math.min(1, Number(share)), height: 8 }));
  tile.replaceChildren(element("strong", `${amount(holds)} of ${amount(all)}`), element("span", `cores held${sure ? `, ${amount(sure)} of them promised` : ", none promised"}`), meter);
}

/** @param {number} nowMs */
function showAnswer(nowMs) {
  const count = tally(latest.jobs, nowMs), said = answer(count, latest.jobs.length);
  if (at("jobs-title").textContent !== said) at("jobs-title").textContent = said;
  if (!frozen && document.title !== title(count)) {
    document.title = title(count);
    document.querySelector("link[rel=icon]")?.setAttribute("href", count.late ? "/page/icon-late.svg" : count.risk ? "/page/icon-risk.svg" : "/page/icon.svg");
  }
  const others = [[count.measuring, "measuring"], [count.waiting, "waiting"], [count.hopeless, "waiting too long"], [count.free, "without a deadline"]].filter(([n]) => n).map((each) => each.join(" ")).join(", ");
  figure("good", count.good, "on track", others);
  figure("risk", count.risk, "at risk", "");
  figure("late", count.late, "late", "");
  figure("done", count.done, `done today${count.missed ? ` (${count.missed} late)` : ""}`, count.failed ? `${count.failed} failed` : "");
  cores();
}

function submitLink() {
  const made = element("p", "Or "), link = /** @type {HTMLAnchorElement} */ (element("a", "use the form"));
  link.href = "#/submit";
  made.append(link, ".");
  return made;
}

/** @param {number} n how many jobs are shown */
function showRest(n) {
  at("empty").hidden = n > 0;
  at("figures").hidden = at("choices").hidden = !latest.jobs.length;
  at("legend").hidden = !n || !areLanes;
  at("all").hidden = !n;
  const text = latest.jobs.length ? "No job matches what is chosen above." : "Submit one, and see here whether it will be on time:";
  if (n || at("empty").firstChild?.textContent === text) return;
  at("empty").replaceChildren(element("p", text), ...(latest.jobs.length ? [] : [element("code", "punctual submit --deadline 1h -- python train.py"), ...(at("submit-link").hidden ? [] : [submitLink()])]));
}

function show() {
  const nowMs = present(), shown = chosen(nowMs), body = at("jobs"), urgent = new Set(shown.filter(needsHelp).slice(0, N_URGENT));
  const scene = { nowMs, axis: axisOf(shown, nowMs), isUrgent: (/** @type {any} */ job) => urgent.has(job) };
  showAnswer(nowMs);
  showRest(shown.length);
  if (areLanes) drawAxis(axis, axisWidth, scene.axis, nowMs);
  const names = new Set(shown.map((job) => job.name));
  for (const [name, { row }] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
  shown.forEach((job, i) => {
    const known = rows.get(job.name) || made();
    rows.set(job.name, known);
    COLUMNS.forEach(([className, text], n) => {
      if (areLanes ? className.startsWith("column") : className === "lane") return;
      const said = text(job, scene);
      if (known.said[n] !== said) fill(known.row.cells[n], n, known.said[n] = said);
    });
    if (body.rows[i] !== known.row) body.insertBefore(known.row, body.rows[i] || null);
  });
}

/** @param {boolean} lanes */
function choose(lanes) {
  areLanes = lanes;
  at("all").classList.toggle("as-lanes", lanes);
  at("as-lanes").setAttribute("aria-pressed", String(lanes));
  at("as-table").setAttribute("aria-pressed", String(!lanes));
  show();
}

/** Tells of changes in notices of the browser, once the reader has asked for them. @param {any[]} jobs */
function notify(jobs) {
  if (!("Notification" in window) || frozen) return;
  at("notify").hidden = Notification.permission !== "default" || !isSecureContext;
  if (Notification.permission !== "granted" || !named.size) return;
  for (const { job, text } of notices(named, jobs)) {
    try {
      new Notification("Punctual", { body: text, tag: job });
    } catch { // a phone's browser has notices of service workers alone
      return;
    }
  }
}

/** What its users should know of a node: that it is leaving, or silent. @param {any} node */
function news(node) {
  if (node.leaves && Date.parse(node.leaves) < present()) return ` · node ${node.name} was to leave by ${clock(node.leaves)}, and no job runs there`;
  if (node.leaves) return ` · node ${node.name} is leaving at ${clock(node.leaves)}: its jobs move`;
  return node.lost ? ` · node ${node.name} does not answer, and counts as lost at ${clock(node.lost)}` : "";
}

async function look() {
  // The list is long: where it is not seen it is seldom asked for, but to find out whether the service lets the reader in.
  const isNeeded = !rows.size || !at("overview").hidden || Date.now() - listedAt > UNSEEN_MS;
  const [listed, held, reader] = await Promise.all([isNeeded ? allJobs() : null, frozen ? null : cluster(), mayHelp === null ? health() : null]);
  if (reader) {
    mayHelp = reader.role !== "viewer";
    at("submit-link").hidden = !reader.takesJobs;
  }
  if (held) {
    latest.cluster = held;
    const told = `${held.policy} · ${amount(held.capacity.cores)} cores, ${amount(Math.max(0, held.free.cores))} free · ${memory(held.capacity.memoryBytes)} of memory${held.usdPerHour === null ? "" : ` · ${dollars(held.usdPerHour)} an hour, ${dollars(held.spentUsd)} spent`}${held.nodes.map(news).join("")}`;
    if (at("cluster").textContent !== told) at("cluster").textContent = told;
  }
  if (listed) {
    listedAt = Date.now();
    for (const job of listed) job.due = job.deadline ? Date.parse(job.deadline) : Infinity; // once: it is compared many times
    notify(listed);
    latest.jobs = listed;
    named = new Map(listed.map((job) => [job.name, job]));
  }
  openViews(true);
  at("problem").hidden = at("loading").hidden = true;
  document.body.classList.remove("is-away");
  show();
}

/** @param {unknown} error */
function tell(error) {
  const isRefused = error instanceof Refused;
  at("problem").hidden = false;
  at("loading").hidden = true;
  document.body.classList.toggle("is-away", !isRefused);
  const since = listedAt ? ` What is shown is of ${clock(listedAt)}, ${relative(listedAt, Date.now())}.` : "";
  at("problem").textContent = isRefused ? capital(error.message) : `The service does not answer. Is \`punctual up\` running? This page goes on trying.${since}`;
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
  const isUnseen = document.hidden && !("Notification" in window && Notification.permission === "granted");
  if (!hasToken() || isLooking || isUnseen || since < (document.hidden ? UNSEEN_MS : PAUSE_MS) || !(isDue || since > LONGEST_MS)) return;
  [isLooking, isDue, looksAt] = [true, false, Date.now()];
  await look().then(hear, tell);
  isLooking = false;
}

/** Follows the events while the tab is seen: a browser has six connections to a service for all its tabs. */
async function listen() {
  for (;;) {
    const stop = new AbortController();
    let timer = setTimeout(() => stop.abort(), SILENCE_MS);
    const leave = () => { if (document.hidden) stop.abort(); };
    document.addEventListener("visibilitychange", leave);
    if (hasToken() && !document.hidden) await follow(lastId, (id) => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
      hear();
      if (id) [lastId, isDue] = [id, true];
    }, stop.signal).catch((error) => { if (!document.hidden) tell(error); });
    document.removeEventListener("visibilitychange", leave);
    clearTimeout(timer);
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

at("entry").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  keepToken(at("token").value);
  at("token").value = "";
  showEntry();
});
onView("", () => { isDue = true; });
for (const id of ["search", "state", "sort"]) at(id).addEventListener("input", show);
at("as-lanes").addEventListener("click", () => choose(true));
at("as-table").addEventListener("click", () => choose(false));
for (const fold of folds) at(fold.button).addEventListener("click", () => { fold.isOpen = !fold.isOpen; show(); });
at("notify").addEventListener("click", async () => { await Notification.requestPermission(); notify([]); });
// A key alone works only where the jobs have the focus, and nothing is typed.
at("overview").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  const isTyped = /** @type {HTMLElement} */ (event.target).matches("input, select");
  if (event.key === "v" && !isTyped && !event.ctrlKey && !event.metaKey && !event.altKey) choose(!areLanes);
});
// Its width is told when it changes: to ask for it would have all lanes laid out at each look.
new ResizeObserver(([{ contentRect: { width } }]) => {
  axisWidth = width;
  if (width && latest.jobs.length) show();
}).observe(axis);
at("all").querySelector("th.lane").append(axis);
for (const [kind, text] of [["gone", "from its start to now"], ["bar", "from now until it lands"], ["spread", "lands within, nine times out of ten"], ["flag", "deadline"], ["wait", "waits"]]) {
  const sample = drawn("svg", { class: "lane", viewBox: "0 0 24 12", "aria-hidden": "true" }), part = element("span");
  if (kind === "bar" || kind === "gone") sample.append(drawn("rect", { class: `bar ${kind}`, y: 1, width: 23, height: 10, rx: 2 }));
  if (kind === "spread") sample.append(drawn("path", { class: "spread edge", stroke: "currentColor", d: "M2 6H22M2 1V11M22 1V11" }));
  if (kind === "flag") sample.append(drawn("path", { class: "flag", d: "M10 12V0L19 4L10 8" }));
  if (kind === "wait") sample.append(drawn("line", { class: "wait", x1: 0, x2: 24, y1: 6, y2: 6 }));
  part.append(sample, text);
  at("legend").append(part);
}
if (frozen) {
  document.documentElement.className = "frozen";
  const [only, ...others] = Object.keys(frozen.said);
  if (!location.hash && !others.length) history.replaceState(null, "", `#/jobs/${encodeURIComponent(only)}`);
}
/** Lets the reader in who has a token, which may just have come with the address. */
function showEntry() {
  at("entry").hidden = hasToken();
  at("loading").hidden = !hasToken() || latest.jobs.length > 0 || !at("problem").hidden;
  isDue = true;
}
addEventListener("hashchange", showEntry);
showEntry();
setInterval(pulse, 500);
pulse();
if (!frozen) listen();
