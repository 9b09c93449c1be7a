// The course of one job in charts: progress against its deadline, which can be moved there; cores; loss.
import { chart } from "./chart.js";
import { amount, at, clock, drawn, element, VERDICTS } from "./texts.js";

const HEIGHT = 170;
/** What one press of an arrow key, and one of it with Shift, moves the deadline by: shares of what is shown. */
const STEP_FRAC = 0.01, LONG_STEP_FRAC = 0.1;
/** So much room is left behind the deadline, to move it there. */
const BEYOND_FRAC = 0.2;

/** @typedef {import("./chart.js").Curve} Curve */

/** @typedef {{job: any, told: any} | null} Other another run, to be drawn beside it */

/** @param {any} told @param {{seconds: number[], values: (number | null)[]}} curve @param {any} [origin] whose submission is the beginning; else its own @returns {Curve} */
function curveOf(told, { seconds, values }, origin = told) {
  const since = Date.parse(origin.submitted), known = values.flatMap((value, i) => (value === null ? [] : [i]));
  return { times: known.map((i) => since + 1000 * seconds[i]), values: known.map((i) => Number(values[i])) };
}

/** When the job is expected to be done: the least, the middle, the most; null: nothing is expected any more. @param {any} job @param {number} now */
function finishes(job, now) {
  const { estimatedRemainingSecondsLow: low, estimatedRemainingSeconds: middle, estimatedRemainingSecondsHigh: high } = job;
  return job.ended || job.landed || middle === null ? null : [low ?? middle, middle, high ?? middle].map((seconds) => now + 1000 * seconds);
}

/** How long its course is so far, in milliseconds. @param {any} told */
const lasted = (told) => Date.parse(told.until) - Date.parse(told.submitted);

/** What the chart of progress shows of time, and what the others do, which end now; of a run that has ended all show the same. @param {any} told @param {any} job @param {Other} other */
function times(told, job, other) {
  const from = Date.parse(told.submitted), now = Date.parse(told.until), expected = finishes(job, now);
  const beside = other ? from + lasted(other.told) : from;
  const deadlines = job.landed || !job.ended ? told.deadlines.values.map((/** @type {number} */ seconds) => from + 1000 * seconds) : [];
  const last = Math.max(now, from + 1000, beside, ...deadlines, ...(expected || []));
  const to = last + (job.ended ? 0 : BEYOND_FRAC * (last - from)), end = job.ended ? to : Math.max(now, from + 1000, beside);
  const past = { from, to: end, left: clock(from), right: clock(end) };
  return { from, now, to, expected, left: clock(from), right: clock(to), past };
}

/** The deadline as it was moved on the chart, an instant; null: it was not. @type {number | null} */
let moved = null;
/** Whether a pointer holds it. */
let isHeld = false;

/** The last instant that a calendar has, in milliseconds. */
const LAST = 8.64e15;

/** What stands in the field of the new deadline for it. @param {number | null} instant */
const written = (instant) => (instant === null ? "" : new Date(Math.min(instant, LAST)).toISOString());

/** Types it there: that shows its quote, and lets it be set. @param {number | null} instant */
function type(instant) {
  moved = instant;
  at("steer-deadline").value = written(instant);
  at("steer-deadline").dispatchEvent(new Event("input"));
}

/** Lets the deadline be moved by pointer and by keyboard. @param {any} handle @param {any} drawing @param {any} span @param {number} deadline */
function movable(handle, drawing, span, deadline) {
  const svg = at("progress-chart");
  const within = (/** @type {number} */ instant) => Math.min(span.to, Math.max(span.now, instant));
  const show = () => {
    const instant = moved ?? deadline;
    handle.setAttribute("transform", `translate(${Number(drawing.x(instant)) - Number(drawing.x(deadline))} 0)`);
    handle.setAttribute("aria-valuenow", Math.round(instant / 1000));
    handle.setAttribute("aria-valuetext", clock(instant));
  };
  const attributes = { role: "slider", tabindex: 0, "aria-label": "Deadline", "aria-valuemin": Math.round(span.now / 1000), "aria-valuemax": Math.round(span.to / 1000) };
  for (const [name, value] of Object.entries(attributes)) handle.setAttribute(name, value);
  handle.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    handle.setPointerCapture(event.pointerId);
    isHeld = true;
  });
  handle.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!isHeld) return;
    moved = within(drawing.timeAt(event.clientX - svg.getBoundingClientRect().left));
    show();
  });
  handle.addEventListener("lostpointercapture", () => {
    isHeld = false;
    if (moved !== null) type(moved);
  });
  handle.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const direction = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (direction) type(within((moved ?? deadline) + direction * (event.shiftKey ? LONG_STEP_FRAC : STEP_FRAC) * (span.to - span.from)));
    else if (event.key === "Escape") type(null);
    else if (event.key === "Enter") at("steer-change-deadline").focus();
    else return;
    event.preventDefault();
    show();
  });
  show();
}

/** What is no step, as bands with a name. @param {any} drawing @param {any} told */
function drawPhases(drawing, told) {
  const since = Date.parse(told.submitted);
  for (const { name, sinceSeconds, untilSeconds } of told.phases)
    drawing.band(since + 1000 * sinceSeconds, since + 1000 * untilSeconds, "phase", `${name}, ${amount(untilSeconds - sinceSeconds)} s`);
}

/** How often each phase came and what it took, in words. @param {any} told */
function phases(told) {
  /** @type {Map<string, number[]>} */
  const spans = new Map();
  for (const { name, sinceSeconds, untilSeconds } of told.phases) spans.set(name, [...(spans.get(name) || []), untilSeconds - sinceSeconds]);
  const parts = [...spans].map(([name, seconds]) => `${name} (${seconds.length === 1 ? "once" : `${seconds.length} times`}, ${amount(seconds.reduce((a, b) => a + b, 0) / seconds.length)} s${seconds.length === 1 ? "" : " each"})`);
  return parts.length ? ` Bands are phases: ${parts.join(", ")}.` : "";
}

/** @param {any} told @param {any} job @param {any} span as `times` has it @param {Other} other */
function drawProgress(told, job, span, other) {
  if (isHeld) return;
  if (moved !== null && at("steer-deadline").value !== written(moved)) moved = null; // something else was typed, or it was done
  const hasFocus = at("progress-chart").contains(document.activeElement);
  const progress = curveOf(told, told.progress), deadline = Date.parse(job.deadline);
  const drawing = chart(at("progress-chart"), { ...span, most: 100, height: HEIGHT, unit: "%" });
  const done = progress.values.at(-1) ?? 0;
  drawPhases(drawing, told);
  if (other) drawing.line(curveOf(other.told, other.told.progress, told), "other", `progress of ${other.job.name}`);
  if (span.expected) {
    const [low, middle, high] = span.expected.map(drawing.x), here = `M${drawing.x(span.now)} ${drawing.y(done)}`;
    drawing.path("interval", `${here}L${low} ${drawing.y(100)}H${high}Z`, "interval of the forecast");
    drawing.path("curve forecast", `${here}L${middle} ${drawing.y(100)}`, "forecast");
  }
  const since = Date.parse(told.submitted);
  told.lines.forEach((/** @type {any} */ line, /** @type {number} */ i) =>
    drawing.line({ times: [line.sinceSeconds, line.untilSeconds].map((seconds) => since + 1000 * seconds), values: [line.sincePercentage, line.untilPercentage] },
      "goal", i + 1 < told.lines.length ? "line to an earlier deadline" : "line to the deadline"));
  for (const former of told.deadlines.values.slice(0, -1).map((/** @type {number} */ seconds) => since + 1000 * seconds))
    if (former <= span.to) drawing.upright(former, "", "mark former").append(drawn("title", {}, `deadline before it was changed, ${clock(former)}`));
  drawing.line(progress, "progress", "progress");
  if (!job.ended) drawing.upright(span.now, "now");
  drawing.frame(100);
  if (job.deadline && deadline <= span.to) {
    const mayMove = !at("steer").hidden, handle = drawing.upright(deadline, "deadline", mayMove ? "handle" : "mark", true);
    if (mayMove) movable(handle, drawing, span, deadline);
    if (hasFocus) handle.focus();
  }
  const against = job.deadline ? ` The deadline is ${clock(job.deadline)}.` : "";
  const [low, middle, high] = (span.expected || []).map(clock), between = low === high ? "" : `, between ${low} and ${high}`;
  const expected = span.expected ? ` It is expected to be done at ${middle}${between}.` : "";
  at("progress-caption").textContent = progress.times.length ? `Progress: ${amount(done)} % at ${clock(progress.times.at(-1) ?? null)}.${expected}${against}${phases(told)}` : `No progress is known yet.${against}`;
}

/** @param {any} told @param {any} job @param {any} past what the chart shows of time @param {Curve} granted @param {Other} other */
function drawCores(told, job, past, granted, other) {
  const used = curveOf(told, told.used), beside = other && curveOf(other.told, other.told.granted, told);
  const most = Math.max(0.1, ...granted.values, ...used.values, ...(beside?.values || []));
  const drawing = chart(at("cores-chart"), { ...past, most, height: HEIGHT, unit: "cores" });
  const since = Date.parse(told.submitted), now = Date.parse(told.until);
  told.resizes.seconds.forEach((/** @type {number} */ second, /** @type {number} */ i) =>
    drawing.band(since + 1000 * (second - told.resizes.values[i]), since + 1000 * second, "resize", `a change that took ${amount(told.resizes.values[i])} s`));
  if (other && beside) drawing.steps(beside, since + lasted(other.told), "other", `granted to ${other.job.name}`);
  drawing.steps(granted, now, "granted", "granted");
  drawing.line(used, "used", "used");
  curveOf(told, told.workers).times.forEach((time, i) => drawing.label(drawing.x(time), Number(drawing.y(0)) - 4, "start", `${told.workers.values[i]}w`));
  drawing.frame(most);
  const n = granted.values.filter((_, i) => i > 0).length, mean = used.values.reduce((sum, cores) => sum + cores, 0) / (used.values.length || 1);
  const took = told.resizes.values.reduce((/** @type {number} */ sum, /** @type {number} */ seconds) => sum + seconds, 0);
  const workers = ` They took ${amount(took)} s in all, the start included (bands).${told.workers.values.length ? " Numbers with w are its workers from then on." : ""}`;
  at("cores-caption").textContent = granted.times.length ? `Cores granted (steps) and used (line): ${amount(job.grantedCores)} granted now, ${n} ${n === 1 ? "change" : "changes"}; ${amount(mean)} used on average.${workers}` : "It has not been granted any cores yet.";
}

/** A loss in five digits, as a report has it. @param {number | null | undefined} value */
const loss = (value) => (value == null ? "–" : String(Number(value.toPrecision(5))));

/** @param {any} told @param {any} past what the chart shows of time @param {Other} other */
function drawLosses(told, past, other) {
  const losses = curveOf(told, told.losses), beside = other && curveOf(other.told, other.told.losses, told);
  at("loss-figure").hidden = !losses.times.length;
  if (!losses.times.length) return;
  const values = [0, ...losses.values, ...(beside?.values || [])], least = Math.min(...values), most = Math.max(...values) || Number(!least);
  const drawing = chart(at("loss-chart"), { ...past, least, most, height: HEIGHT, unit: "" });
  if (other && beside?.times.length) drawing.line(beside, "other", `loss of ${other.job.name}`);
  drawing.line(losses, "progress", "loss");
  drawing.frame(most, least ? `${loss(least)} to ${loss(most)}` : loss(most));
  at("loss-caption").textContent = `Loss: from ${loss(losses.values[0])} to ${loss(losses.values.at(-1))}, the least ${loss(Math.min(...losses.values))}.`;
}

/** A row of a table. @param {string} head @param {string[]} cells */
function row(head, cells) {
  const made = element("tr"), title = element("th", head);
  /** @type {HTMLTableCellElement} */ (title).scope = "row";
  made.append(title, ...cells.map((text) => element("td", text)));
  return made;
}

/** The changes of the grant in a table, the latest first. @param {any} told @param {Curve} granted */
function listGrants(told, granted) {
  const since = Date.parse(told.submitted);
  const took = new Map(told.resizes.seconds.map((/** @type {number} */ second, /** @type {number} */ i) => [since + 1000 * second, told.resizes.values[i]]));
  at("grants").replaceChildren(...granted.times.map((time, i) => row(clock(time), [amount(granted.values[i]), took.has(time) ? `${amount(took.get(time))} s` : "–"])).reverse());
}

/** What of a run is compared in numbers. @type {[string, (job: any, told: any) => string][]} */
const COMPARED = [
  ["Took", (job, told) => (job.landed ? `${amount((Date.parse(job.landed) - Date.parse(told.submitted)) / 1000)} s` : `${amount(lasted(told) / 1000)} s so far`)],
  ["Deadline after", (job, told) => (job.deadline ? `${amount((Date.parse(job.deadline) - Date.parse(told.submitted)) / 1000)} s` : "–")],
  ["Verdict", (job) => VERDICTS[job.verdict] || "–"],
  ["Steps", (job) => (job.stepsDone === null ? "–" : amount(job.stepsDone))],
  ["Core time used", (job) => (job.usedCoreSeconds === null ? "–" : `${amount(job.usedCoreSeconds)} core seconds`)],
  ["Changes of the grant", (_, told) => String(Math.max(0, told.granted.seconds.length - 1))],
  ["Last loss", (_, told) => loss(told.losses.values.at(-1))],
  ["Arguments", (job) => job.program.slice(1).join(" ") || "–"],
];

/** @param {any} told @param {any} job @param {Other} other */
function compare(told, job, other) {
  at("compared").hidden = !other;
  if (!other) return;
  at("compared-own").textContent = job.name;
  at("compared-other").textContent = other.job.name;
  at("compared-rows").replaceChildren(...COMPARED.map(([term, of]) => row(term, [of(job, told), of(other.job, other.told)])));
}

/** Shows how the job came to stand as it does. @param {any} told its history @param {any} job @param {Other} other */
export function showHistory(told, job, other) {
  const span = times(told, job, other), granted = curveOf(told, told.granted);
  drawProgress(told, job, span, other);
  drawCores(told, job, span.past, granted, other);
  drawLosses(told, span.past, other);
  listGrants(told, granted);
  compare(told, job, other);
}
