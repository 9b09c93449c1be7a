// The course of one job in one chart: progress against its deadline, which can be moved there; cores; loss. And beside another run.
import { explorer, valueAt } from "./chart.js";
import { jumpTo } from "./job_log.js";
import { frozen } from "./service.js";
import { drawStack, height, poolColour } from "./stacked.js";
import { amount, at, capital, clock, counted, dollars, drawn, element, relative, roundDollars, span as duration, timed } from "./texts.js";

const HEIGHT = { progress: 200, nothing: 80, cores: 110, loss: 90, costs: 90 };
/** What one press of an arrow key, and one of it with Shift, moves the deadline by: shares of what is shown. */
const STEP_FRAC = 0.01, LONG_STEP_FRAC = 0.1;
/** So much room is left behind the deadline, to move it there. */
const BEYOND_FRAC = 0.2;

/** @typedef {import("./chart.js").Curve} Curve */
/** @typedef {{job: any, told: any, byProgress: boolean} | null} Other another run, to be drawn beside it */

const course = explorer(at("course-chart"), at("course-readout"), (isPart) => { at("course-all").hidden = !isPart; }, (time) => { if (!frozen) jumpTo(time); });
at("course-all").addEventListener("click", course.all);

/** @param {any} told @param {{seconds: number[], values: (number | null)[]}} curve @param {any} [origin] whose submission is the beginning; else its own @returns {Curve} */
function curveOf(told, { seconds, values }, origin = told) {
  const since = Date.parse(origin.submitted), known = values.flatMap((value, i) => (value === null ? [] : [i]));
  return { times: known.map((i) => since + 1000 * seconds[i]), values: known.map((i) => Number(values[i])) };
}

/** A curve of the other run in the time of this one: as long after its submission, or as far in its work. @param {any} told @param {Exclude<Other, null>} other @param {any} curve @returns {Curve} */
function beside(told, other, curve) {
  const moved = curveOf(other.told, curve, told);
  if (!other.byProgress) return moved;
  const own = curveOf(told, told.progress), theirs = { ...curveOf(other.told, other.told.progress, told), name: "", className: "" };
  const inverse = { times: own.values, values: own.times, name: "", className: "" };
  const found = moved.times.map((time, i) => [valueAt(inverse, valueAt(theirs, time) ?? -1), moved.values[i]]).filter(([time]) => time !== null);
  return { times: found.map(([time]) => Number(time)), values: found.map(([, value]) => Number(value)) };
}

/** When the job is expected to be done: the least, the middle, the most; null: nothing is expected any more, or nothing can be believed yet. @param {any} job @param {number} now */
function finishes(job, now) {
  const { estimatedRemainingSecondsLow: low, estimatedRemainingSeconds: middle, estimatedRemainingSecondsHigh: high } = job;
  return job.ended || job.landed || middle === null ? null : [low ?? middle, middle, high ?? middle].map((seconds) => now + 1000 * seconds);
}

/** How long its course is so far, in milliseconds. @param {any} told */
const lasted = (told) => Date.parse(told.until) - Date.parse(told.submitted);

/** What the chart shows of time. @param {any} told @param {any} job @param {Other} other */
function times(told, job, other) {
  const from = Date.parse(told.submitted), now = Date.parse(told.until), expected = finishes(job, now);
  const theirs = other && !other.byProgress ? from + lasted(other.told) : from;
  const deadlines = job.landed || !job.ended ? told.deadlines.values.map((/** @type {number} */ seconds) => from + 1000 * seconds) : [];
  const ends = [now, from + 1000, theirs, ...deadlines, ...(expected || [])].filter((time) => time < LAST);
  const last = Math.max(...ends), to = last + (job.ended ? 0.02 : BEYOND_FRAC) * (last - from);
  return { from, now, to, expected };
}

// The deadline, which is moved here and set by the form below.

/** The deadline as it was moved on the chart, an instant; null: it was not. @type {number | null} */
let moved = null;
/** Whether a pointer holds it. */
let isHeld = false;

/** The last instant that a calendar has, in milliseconds. */
const LAST = 8.64e15;

/** What stands in the field of the new deadline for it: the reader's time, with its offset. @param {number | null} instant */
function written(instant) {
  if (instant === null) return "";
  const time = new Date(Math.min(instant, LAST)), offset = -time.getTimezoneOffset(), two = (/** @type {number} */ n) => String(Math.trunc(Math.abs(n))).padStart(2, "0");
  if (time.getFullYear() > 9999) return time.toISOString();
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join("-"), clockTime = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
  return `${day}T${clockTime}${offset < 0 ? "-" : "+"}${two(offset / 60)}:${two(offset % 60)}`;
}

/** Types it there: that shows its quote, and lets it be set. @param {number | null} instant */
function type(instant) {
  moved = instant;
  at("steer-deadline").value = written(instant);
  at("steer-deadline").dispatchEvent(new Event("input"));
}

/** The deadline's flag, and its time while it is moved. @param {import("./chart.js").Scale} scale @param {number} deadline @param {number} now @param {boolean} mayMove */
function flag(scale, deadline, now, mayMove) {
  const handle = drawn("g", { class: mayMove ? "handle" : "handle still" });
  handle.append(
    drawn("path", { class: "grip", d: `M0 2V${scale.foot}` }), drawn("path", { d: `M0 2V${scale.foot}` }),
    drawn("path", { class: "flag", d: "M0 2l14 5l-14 5z" }), drawn("text", { y: 12, "text-anchor": "end", x: -6 }),
  );
  const place = (/** @type {number} */ instant) => {
    handle.setAttribute("transform", `translate(${scale.x(instant).toFixed(1)} 0)`);
    handle.classList.toggle("is-moved", instant !== deadline);
    if (handle.lastChild) handle.lastChild.textContent = instant === deadline ? "deadline" : `${clock(instant)}, ${relative(instant, now)}`;
  };
  place(deadline);
  return { handle, place };
}

/** Lets the deadline be moved by pointer and by keyboard. @param {ReturnType<typeof flag>} flagged @param {import("./chart.js").Scale} scale @param {any} span @param {number} deadline */
function movable({ handle, place }, scale, span, deadline) {
  const within = (/** @type {number} */ instant) => Math.min(span.to, Math.max(span.now, instant));
  const show = () => {
    const instant = moved ?? deadline;
    place(instant);
    handle.setAttribute("aria-valuenow", String(Math.round(instant / 1000)));
    handle.setAttribute("aria-valuetext", `${clock(instant)}, ${relative(instant, span.now)}`);
  };
  const attributes = { role: "slider", tabindex: 0, "aria-label": "Deadline", "aria-valuemin": Math.round(span.now / 1000), "aria-valuemax": Math.round(span.to / 1000) };
  for (const [name, value] of Object.entries(attributes)) handle.setAttribute(name, String(value));
  handle.addEventListener("pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    isHeld = true;
  });
  handle.addEventListener("pointermove", (event) => {
    if (!isHeld) return;
    type(within(scale.timeAt(event.clientX - scale.svg.getBoundingClientRect().left)));
    show();
  });
  handle.addEventListener("lostpointercapture", () => { isHeld = false; });
  handle.addEventListener("keydown", (event) => {
    const direction = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (direction) type(within((moved ?? deadline) + direction * (event.shiftKey ? LONG_STEP_FRAC : STEP_FRAC) * (span.to - span.from)));
    else if (event.key === "Escape") type(null);
    else if (event.key === "Enter") at("steer-change-deadline").click();
    else return;
    event.preventDefault();
    show();
  });
  show();
}

/** Draws what the quote says of the deadline that is asked for: until when it cannot be, whatever is given, and beside the flag in short what it would do. @param {import("./chart.js").Scale} scale @param {any} span @param {number} deadline the present one */
function drawQuote(scale, span, deadline) {
  for (const old of scale.svg.querySelectorAll(".quoted")) old.remove();
  const told = at("steer-quote").dataset, earliest = Date.parse(told.earliest || ""), group = drawn("g", { class: "quoted" }), words = drawn("g", { class: "quoted words" }), [top] = scale.tops, low = scale.y(0, 0) - 8;
  scale.svg.prepend(group);
  scale.svg.append(words);
  nameMarks(earliest > span.now && earliest < LAST ? [["impossible", `cannot be promised before ${clock(earliest)}`]] : []);
  if (earliest > span.now && earliest < LAST) {
    const until = Math.min(scale.x(earliest), scale.right), from = Math.max(scale.x(span.now), scale.left), isRight = until > scale.width / 2;
    if (until > from) {
      group.append(drawn("path", { class: "impossible", d: `M${from} ${top}H${until}V${scale.foot}H${from}Z` }));
      grounded(words, drawn("text", { x: isRight ? until - 6 : until + 6, y: low, "text-anchor": isRight ? "end" : "start" }, `earliest ${clock(earliest)}`));
    }
  }
  if (!told.short || !Number.isFinite(deadline)) return;
  const x = Math.max(scale.left, Math.min(scale.right, scale.x(moved ?? deadline))), text = /** @type {any} */ (drawn("text", { class: told.verdict || "name" }, told.short));
  words.append(text);
  const room = { right: scale.right - x - 24, left: x - 6 };
  // Where there is no room, the list below says who is hurt.
  if (text.getComputedTextLength() > Math.max(room.right, room.left)) text.textContent = told.short.split(";")[0];
  const isRight = text.getComputedTextLength() <= room.right;
  for (const [key, value] of Object.entries({ x: isRight ? x + 20 : x - 6, y: isRight ? 12 : 28, "text-anchor": isRight ? "start" : "end" })) text.setAttribute(key, String(value));
  grounded(words, text);
}

/** Puts a text on a ground of its own, so that no line crosses it. @param {any} group @param {any} text */
function grounded(group, text) {
  group.append(text);
  const { x, y, width, height } = text.getBBox();
  group.insertBefore(drawn("rect", { class: "ground", x: x - 2, y, width: width + 4, height }), text);
}

/** What the marks of the chart mean, but for the grey area of a quote. @type {string[][]} */
let named = [];
/** Names each mark that is in the chart. @param {string[][]} more */
function nameMarks(more) {
  const all = [...named, ...more], said = all.join();
  if (at("course-legend").dataset.said === said) return;
  at("course-legend").dataset.said = said;
  at("course-legend").replaceChildren(...all.map(([className, text]) => {
    const part = element("span"), sample = drawn("svg", { viewBox: "0 0 24 12", "aria-hidden": "true" }), isArea = ["phase", "resize", "interval", "impossible"].includes(className);
    sample.append(isArea ? drawn("rect", { class: className, x: 4, width: 16, height: 12 }) : drawn("path", { class: `mark ${className}`, d: "M12 0V12" }));
    part.append(sample, text);
    return part;
  }));
}

/** @type {() => void} */
let redrawQuote = () => {};
at("steer-quote").addEventListener("quoted", () => redrawQuote());

// What is drawn.

/** How often each phase came and what it took, in words. @param {any} told */
function phases(told) {
  const parts = told.phaseSums.map((/** @type {{name: string, times: number, seconds: number}} */ { name, times, seconds }) => `${name} (${times === 1 ? "once" : `${times} times`}, ${duration(seconds / times)}${times === 1 ? "" : " each"})`);
  return parts.length ? ` Bands are phases: ${parts.join(", ")}.` : "";
}

/** @param {any} told @param {any} span @param {Other} other @returns {import("./chart.js").Panel} */
function progressPanel(told, span, other) {
  const since = Date.parse(told.submitted), lines = told.lines.map((/** @type {any} */ line, /** @type {number} */ i) => ({
    name: i + 1 < told.lines.length ? "line to an earlier deadline" : "line to the deadline", className: "goal", isUnnamed: i + 1 < told.lines.length,
    times: [line.sinceSeconds, line.untilSeconds].map((seconds) => since + 1000 * seconds), values: [line.sincePercentage, line.untilPercentage],
  }));
  const done = curveOf(told, told.progress), here = done.values[done.values.length - 1] ?? 0;
  const forecast = span.expected ? [{ name: "forecast", className: "forecast", times: [span.now, span.expected[1]], values: [here, 100] }] : [];
  return {
    title: "Progress, %", least: 0, most: 100, height: done.times.length || other ? HEIGHT.progress : HEIGHT.nothing,
    bands: told.phases.map((/** @type {any} */ { name, sinceSeconds, untilSeconds }) => ({ from: since + 1000 * sinceSeconds, to: since + 1000 * untilSeconds, className: "phase", name: `${name}, ${duration(untilSeconds - sinceSeconds)}` })),
    series: [...(other ? [{ ...beside(told, other, other.told.progress), name: `progress of ${other.job.name}`, className: "other" }] : []), ...lines, ...forecast, { ...done, name: "progress", className: "progress" }],
  };
}

/** @param {any} told @param {any} job @param {Other} other @returns {import("./chart.js").Panel[]} none: it has held nothing yet */
function coresPanel(told, job, other) {
  const granted = curveOf(told, told.granted), used = curveOf(told, told.used), theirs = other && beside(told, other, other.told.granted), now = Date.parse(told.until), since = Date.parse(told.submitted);
  const demanded = curveOf(told, told.demanded);
  if (job.demandCores !== null && !(Math.abs(job.demandCores - (demanded.values.at(-1) ?? NaN)) < 1e-4)) {
    demanded.times.push(now);
    demanded.values.push(job.demandCores);
  }
  if (!granted.times.length && !theirs) return [];
  return [{
    title: "Cores", least: 0, most: 1.05 * Math.max(0.1, ...demanded.values, ...granted.values, ...used.values, ...(theirs?.values || [])), height: HEIGHT.cores,
    bands: told.resizes.seconds.map((/** @type {number} */ second, /** @type {number} */ i) => ({ from: since + 1000 * (second - told.resizes.values[i]), to: since + 1000 * second, className: "resize", name: `a change that took ${duration(told.resizes.values[i])}` })),
    series: [
      ...(other && theirs ? [{ ...theirs, name: `granted to ${other.job.name}`, className: "other", isSteps: true, until: other.byProgress ? undefined : since + lasted(other.told) }] : []),
      { ...demanded, name: "demanded", className: "demand", isSteps: true, until: now },
      { ...granted, name: "granted", className: "granted", isSteps: true, until: now }, { ...used, name: "used", className: "used" },
    ],
  }];
}

/** A loss in five digits, as a report has it. @param {number | null | undefined} value */
const loss = (value) => (value == null ? "–" : String(Number(value.toPrecision(5))));

/** @param {any} told @param {Other} other @returns {import("./chart.js").Panel[]} */
function lossPanel(told, other) {
  const losses = curveOf(told, told.losses), theirs = other ? beside(told, other, other.told.losses) : null;
  if (!losses.times.length) return [];
  const values = [0, ...losses.values, ...(theirs?.values || [])], least = Math.min(...values), most = Math.max(...values) || Number(!least);
  return [{ title: "Loss", least, most, height: HEIGHT.loss, write: loss, series: [...(other && theirs?.times.length ? [{ ...theirs, name: `loss of ${other.job.name}`, className: "other" }] : []), { ...losses, name: "loss", className: "progress" }] }];
}

/** What it has cost on each pool, and what that was an hour between two changes. @param {any} told */
function costs(told) {
  const curves = told.spent.map((/** @type {any} */ { usd }) => curveOf(told, usd)), pools = told.spent.map((/** @type {any} */ { pool }, /** @type {number} */ k) => ({ name: pool, className: poolColour(k) }));
  const spentBy = (/** @type {Curve} */ curve, /** @type {number} */ time) => (time < curve.times[0] ? 0 : valueAt({ ...curve, name: "", className: "" }, time) ?? curve.values[curve.values.length - 1]);
  const edges = [...new Set(/** @type {number[]} */ (curves.flatMap((/** @type {Curve} */ { times }) => times)))].sort((a, b) => a - b);
  const spans = edges.slice(1).map((to, i) => ({ from: edges[i], to, amounts: curves.map((/** @type {Curve} */ curve) => (3.6e6 * (spentBy(curve, to) - spentBy(curve, edges[i]))) / (to - edges[i])) }));
  return { pools, spans, spent: (/** @type {number} */ time) => curves.map((/** @type {Curve} */ curve) => spentBy(curve, time)) };
}

/** @param {ReturnType<typeof costs>} paid @returns {import("./chart.js").Panel[]} */
const costPanel = ({ pools, spans }) => (pools.length ? [{ title: "Dollars an hour", least: 0, most: 1.05 * Math.max(...spans.map(height)), height: HEIGHT.costs, series: [], write: roundDollars }] : []);

/** @param {any} told @param {any} job @param {any[]} entries why it stands as it does @param {any} span @returns {import("./chart.js").Mark[]} */
function marks(told, job, entries, span) {
  const since = Date.parse(told.submitted), former = told.deadlines.values.slice(0, -1).map((/** @type {number} */ seconds) => since + 1000 * seconds);
  return [
    ...former.map((/** @type {number} */ time) => ({ time, className: "former", name: `deadline before it was changed, ${clock(time)}` })),
    ...entries.filter(({ kind }) => kind === "warning").map(({ time, text }) => ({ time: Date.parse(time), className: "warning", name: text })),
    ...(job.expectedStart ? [{ time: Date.parse(job.expectedStart), className: "start", name: `starts, as is expected, at ${clock(job.expectedStart)}` }] : []),
    ...(job.ended ? [] : [{ time: span.now, className: "now", text: "now" }]),
  ];
}

/** @param {any} told @param {any} job @param {any} span @param {any[]} entries @param {Other} other */
function draw(told, job, span, entries, other) {
  if (isHeld) return;
  if (moved !== null && at("steer-deadline").value !== written(moved)) moved = null; // something else was typed, or it was done
  const hadFocus = document.activeElement?.closest(".handle"), deadline = Date.parse(job.deadline), paid = costs(told), panels = [progressPanel(told, span, other), ...coresPanel(told, job, other), ...lossPanel(told, other), ...costPanel(paid)];
  const workers = curveOf(told, told.workers), done = panels[0].series[panels[0].series.length - 1], here = done.values[done.values.length - 1] ?? 0;
  const drawnMarks = marks(told, job, entries, span), has = (/** @type {string} */ className) => drawnMarks.some((mark) => mark.className === className);
  named = [
    ...(told.phases.length ? [["phase", `phase: ${[...new Set(told.phases.map((/** @type {any} */ { name }) => name))].join(", ")}`]] : []),
    ...(told.resizes.seconds.length ? [["resize", "waits for a start or change of its cores"]] : []), ...(span.expected ? [["interval", "forecast, nine times out of ten"]] : []),
    ...(has("warning") ? [["warning", "warning"]] : []), ...(has("former") ? [["former", "earlier deadline"]] : []), ...(Date.parse(job.deadline) <= span.to ? [["kept", "present deadline"]] : []), ...(has("start") ? [["start", "expected start"]] : []), ...(has("now") ? [["now", "now"]] : []),
  ];
  course.show({
    from: span.from, to: span.to, panels, marks: drawnMarks,
    under: (scale) => {
      if (paid.pools.length) drawStack(scale, panels.length - 1, paid.pools, paid.spans);
      if (!span.expected) return;
      const [low, , high] = span.expected.map(scale.x), top = scale.y(0, 100);
      const fan = drawn("path", { class: "interval", d: `M${scale.x(span.now)} ${scale.y(0, here)}L${low} ${top}H${Math.max(high, low + 1)}Z` });
      fan.append(drawn("title", {}, "interval of the forecast"));
      scale.svg.append(fan);
    },
    draw: (scale) => {
      if (!done.times.length && !job.ended) grounded(scale.svg, drawn("text", { class: "name", x: Math.max(scale.left, scale.x(span.now)) + 12, y: scale.y(0, 50) + 4 }, capital(timed(job.phrase))));
      workers.times.forEach((time, i) => { if (time >= scale.from && time <= scale.to) scale.svg.append(drawn("text", { x: scale.x(time) + 2, y: scale.y(1, 0) - 4 }, `${workers.values[i]}w`)); });
      redrawQuote = () => drawQuote(scale, span, deadline);
      if (!job.deadline) nameMarks([]);
      if (!job.deadline || deadline > scale.to || deadline < scale.from) return redrawQuote();
      scale.svg.append(drawn("path", { class: "mark kept", d: `M${scale.x(deadline).toFixed(1)} 2V${scale.foot}` }));
      const mayMove = !at("steer").hidden, flagged = flag(scale, deadline, span.now, mayMove);
      scale.svg.append(flagged.handle);
      if (mayMove) movable(flagged, scale, span, deadline);
      redrawQuote();
      if (hadFocus) flagged.handle.focus();
    },
    read: (time) => {
      const phase = panels[0].bands?.find(({ from, to }) => time >= from && time <= to);
      const now = paid.spans.find(({ from, to }) => time >= from && time < to), spent = paid.spent(time);
      const cost = paid.pools.map((/** @type {any} */ { name }, /** @type {number} */ k) => [`${now?.amounts[k] ? `${dollars(now.amounts[k])}/h, ` : ""}${dollars(spent[k])} so far`, name]);
      return [...(phase ? [[phase.name, "phase"]] : []), ...(time <= span.now ? cost : [])];
    },
  });
}

/** The same in words. @param {any} told @param {any} job @param {any} span */
function tell(told, job, span) {
  const progress = curveOf(told, told.progress), granted = curveOf(told, told.granted), used = curveOf(told, told.used), losses = curveOf(told, told.losses);
  const last = (/** @type {any[]} */ list) => list[list.length - 1];
  const against = job.deadline ? ` The deadline is ${clock(job.deadline)}.` : "", [low, middle, high] = (span.expected || []).map(clock);
  const expected = span.expected ? ` It is expected to be done at ${middle}${low === high ? "" : `, between ${low} and ${high}`}.` : "";
  at("progress-caption").textContent = progress.times.length ? `Progress: ${amount(last(progress.values))} % at ${clock(last(progress.times))}.${expected}${against}${phases(told)}` : `No progress is known yet.${against}`;
  const mean = used.values.reduce((sum, cores) => sum + cores, 0) / (used.values.length || 1);
  const workers = ` They took ${duration(told.changesSeconds)} in all, the start included (bands).${told.workers.values.length ? " Numbers with w are its workers from then on." : ""}`;
  at("cores-caption").textContent = granted.times.length ? `Cores: ${amount(job.grantedCores)} granted now, ${counted(told.changes, "change")}; ${amount(mean)} used on average.${workers}` : "It has not been granted any cores yet.";
  const spent = told.spent.map((/** @type {any} */ { pool, usd }) => `${dollars(last(usd.values))} on ${pool}`);
  at("cost-caption").textContent = spent.length ? `Cost: ${spent.join(", ")}. It pays for the start of a machine to which it comes first.` : "";
  at("loss-caption").hidden = !losses.times.length;
  at("loss-caption").textContent = losses.times.length ? `Loss: from ${loss(losses.values[0])} to ${loss(last(losses.values))}, the least ${loss(Math.min(...losses.values))}.` : "";
}

/** A row of a table. @param {string} head @param {string[]} cells */
function row(head, cells) {
  const made = element("tr"), title = element("th", head);
  /** @type {HTMLTableCellElement} */ (title).scope = "row";
  made.append(title, ...cells.map((text) => element("td", text, "number")));
  return made;
}

/** The changes of the grant in a table, the latest first. @param {any} told */
function listGrants(told) {
  const since = Date.parse(told.submitted), granted = curveOf(told, told.granted);
  const took = new Map(told.resizes.seconds.map((/** @type {number} */ second, /** @type {number} */ i) => [since + 1000 * second, told.resizes.values[i]]));
  const other = granted.times.length > told.changes ? "at once" : "–"; // of a thinned curve it is not known
  at("grants").replaceChildren(...granted.times.map((time, i) => row(clock(time), [amount(granted.values[i]), took.has(time) ? duration(Number(took.get(time))) : other])).reverse());
}

/** What of a run is compared in numbers. @type {[string, (job: any, told: any) => string][]} */
const COMPARED = [
  ["Took", (job, told) => (job.landed ? duration((Date.parse(job.landed) - Date.parse(told.submitted)) / 1000) : `${duration(lasted(told) / 1000)} so far`)],
  ["Deadline after", (job, told) => (job.deadline ? duration((Date.parse(job.deadline) - Date.parse(told.submitted)) / 1000) : "none")],
  ["Verdict", (job) => job.word],
  ["Steps", (job) => (job.stepsDone === null ? "none" : amount(job.stepsDone))],
  ["Core time used", (job) => (job.usedCoreSeconds === null ? "none" : `${amount(job.usedCoreSeconds)} core seconds`)],
  ["Cost", (job) => (job.spentUsd === null ? "" : dollars(job.spentUsd))],
  ["Changes of the grant", (_, told) => String(told.changes)],
  ["Last loss", (_, told) => (told.losses.values.length ? loss(told.losses.values.at(-1)) : "")],
  ["Arguments", (job) => job.program.slice(1).join(" ") || "none"],
];

/** @param {any} told @param {any} job @param {Other} other */
function compare(told, job, other) {
  at("compared").hidden = !other;
  if (!other) return;
  at("compared-own").textContent = job.name;
  at("compared-other").textContent = other.job.name;
  at("compared-rows").replaceChildren(...COMPARED.map(([term, of]) => ({ term, cells: [of(job, told), of(other.job, other.told)] })).filter(({ cells }) => cells.some(Boolean)).map(({ term, cells }) => row(term, cells.map((cell) => cell || "none"))));
}

/** Forgets which part of another job's course was shown. */
export const resetCourse = () => course.reset();

/** Shows how the job came to stand as it does. @param {any} told its history @param {any} job @param {any[]} entries why @param {Other} other */
export function showHistory(told, job, entries, other) {
  const span = times(told, job, other);
  tell(told, job, span);
  draw(told, job, span, entries, other);
  listGrants(told);
  compare(told, job, other);
}
