// Lanes: each job's time from its submission to its landing, on one axis for all, with its deadline.
import { isOver, landingAt } from "./judge.js";
import { drawn } from "./texts.js";
import { roundDown, roundSpan, timeTicks } from "./ticks.js";

/** How far ahead the axis goes, in medians of what the jobs have ahead of them: one that is due far later than the others does not press them together. */
const N_MEDIANS = 3;
/** Round spans that the axis has about, and the pixels that one label takes. */
const N_SPANS = 8, LABEL_PX = 80;
/** Words in a lane take so much of it on a phone. */
const WORDS_PERCENT = 40;
/** Where a lane's bar lies, in pixels. */
const BAR = { y: 15, height: 14 };

/** Has the lines behind all lanes: as variables of the table they would have everything in it styled again. */
const lines = new CSSStyleSheet();
let ruled = "";
document.adoptedStyleSheets.push(lines);

/** @typedef {{from: number, to: number, step: number}} Axis */

/** What the lanes show of time: the same for some while, so that most of them stay as they are. @param {any[]} jobs @param {number} nowMs @returns {Axis} */
export function axisOf(jobs, nowMs) {
  const open = jobs.filter((job) => !isOver(job)), ahead = [];
  for (const job of open) {
    const end = Math.max(job.deadline ? Date.parse(job.deadline) : 0, landingAt(job, nowMs) ?? 0) - nowMs;
    if (end > 0 && Number.isFinite(end)) ahead.push(end);
  }
  ahead.sort((a, b) => a - b);
  const median = ahead[Math.floor(ahead.length / 2)] ?? 0;
  const begun = (open.length ? open : jobs).map((job) => Date.parse(job.started || job.submitted));
  const past = nowMs - Math.min(nowMs - 10_000, ...begun);
  const future = ahead.length ? Math.min(ahead[ahead.length - 1], N_MEDIANS * median) : past / 8;
  const before = ahead.length ? Math.min(past, future) : past;
  const step = roundSpan(before + future, N_SPANS), from = roundDown(nowMs - before, step);
  return { from, to: roundDown(nowMs + 1.05 * future, step) + step, step };
}

/** Where a time lies, in percent of the axis, not far beyond its ends. @param {Axis} axis @param {number} time */
const across = ({ from, to }, time) => Math.round(Math.min(104, Math.max(-4, (100 * (time - from)) / (to - from))) * 10) / 10;

/** Sets the axis, whose lines all lanes have. @param {any} head the drawing above the lanes @param {number} width of it, in pixels @param {Axis} axis @param {number} nowMs */
export function drawAxis(head, width, axis, nowMs) {
  const now = across(axis, nowMs), n = Math.max(2, Math.floor(width / LABEL_PX));
  const rule = `#all .lane { --now: ${now}%; --tick: ${(100 * axis.step) / (axis.to - axis.from)}%; } #all .lane .gone { clip-path: inset(0 ${Math.max(0, 100 - now)}% 0 0) view-box; }`;
  if (rule !== ruled) lines.replaceSync((ruled = rule));
  const ticks = timeTicks(axis.from, axis.to, Math.min(n, N_SPANS)), room = (100 * LABEL_PX) / 2 / Math.max(1, width);
  const said = [now, ...ticks.map(({ text }) => text)].join();
  if (head.dataset.said === said) return;
  head.dataset.said = said;
  const text = (/** @type {number} */ x, /** @type {string} */ words, className = "") => drawn("text", { x: `${x}%`, y: 10, "text-anchor": "middle", class: className }, words);
  head.replaceChildren(
    ...ticks.map(({ time, text: words }) => [across(axis, time), words]).filter(([x]) => Math.abs(Number(x) - now) > 0.9 * room && Number(x) > room / 2 && Number(x) < 100 - room / 2)
      .map(([x, words]) => text(Number(x), String(words))),
    text(Math.min(100 - room / 3, Math.max(room / 3, now)), "now", "now"),
  );
}

/** What a job's lane shows, as a text that changes only when the lane does. @param {any} job @param {Axis} axis @param {number} nowMs */
export function laneOf(job, axis, nowMs) {
  const at = (/** @type {number | string | null} */ time) => (time === null ? "" : across(axis, typeof time === "string" ? Date.parse(time) : time));
  const landing = landingAt(job, nowMs), isOpen = !isOver(job), isForecast = isOpen && landing !== null;
  const end = landing ?? (job.ended ? Date.parse(job.ended) : job.started ? nowMs : null);
  const spread = isForecast ? [job.estimatedRemainingSecondsLow, job.estimatedRemainingSecondsHigh].map((left) => at(left === null ? null : nowMs + 1000 * left)) : ["", ""];
  const begun = job.started || (job.ended ? job.ended : null), start = begun ?? job.expectedStart ?? Infinity;
  return [job.kind, at(job.submitted), at(start), begun ? at(end) : "", at(job.deadline), ...spread, begun ? (isOpen && landing === null ? "end" : "") : start === Infinity ? "start" : "starts"].join(" ");
}

/** Draws what `laneOf` says. A bar is solid up to now: the style sheet cuts it there, so that no lane has to be drawn again as time goes on. @param {any} svg @param {string} said */
export function drawLane(svg, said) {
  const [kind, submitted, start, end, deadline, low, high, lack] = said.split(" ");
  const parts = [], top = BAR.y, middle = top + BAR.height / 2, line = { y1: middle, y2: middle };
  if (Number(start) > Number(submitted)) parts.push(drawn("line", { class: "wait", x1: `${submitted}%`, x2: `${start}%`, ...line }));
  if (lack === "starts") parts.push(drawn("rect", { class: "edge", x: `${start}%`, y: top, width: 3, height: BAR.height }));
  if (end) {
    const bar = { x: `${start}%`, y: top, width: `${Math.max(0.3, Number(end) - Number(start))}%`, height: BAR.height, rx: 2 };
    parts.push(drawn("rect", { class: "bar", ...bar }), drawn("rect", { class: "bar gone", ...bar }));
  }
  if (low && high) {
    parts.push(drawn("line", { class: "spread", x1: `${low}%`, x2: `${high}%`, ...line }));
    for (const x of [low, high]) parts.push(drawn("line", { class: "spread", x1: `${x}%`, x2: `${x}%`, y1: top - 3, y2: top + BAR.height + 3 }));
  }
  if (deadline && Number(deadline) > 100) parts.push(drawn("text", { class: "beyond", x: "99.5%", y: middle + 4, "text-anchor": "end" }, "⚑ ▸"));
  else if (deadline && Number(deadline) >= 0) parts.push(drawn("use", { href: "#flag", class: "flag", x: `${deadline}%`, y: 6, width: 12, height: 32 }));
  if (end && Number(end) <= 0) parts.push(drawn("text", { class: "beyond", x: "0.5%", y: middle + 4 }, "◂"));
  if (lack === "start" || lack === "end") {
    const from = Math.max(0, Number(lack === "end" ? end : submitted)), flag = Number(deadline || -1), isInTheWay = flag >= from && flag < from + WORDS_PERCENT;
    const [x, dx, anchor] = !isInTheWay ? [from, 8, "start"] : flag < 100 - WORDS_PERCENT ? [flag, 18, "start"] : [99, 0, "end"];
    parts.push(drawn("text", { class: "unknown", x: `${x}%`, dx, "text-anchor": anchor, y: lack === "end" ? middle + 4 : top }, `its ${lack} is not known yet`));
  }
  const group = drawn("g", { class: kind });
  group.append(...parts);
  svg.replaceChildren(group);
}
