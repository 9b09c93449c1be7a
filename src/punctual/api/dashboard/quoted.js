// A quote: when it is asked for, and in words, for every view that shows one.
import { valueAt } from "./chart.js";
import { present } from "./service.js";
import { actionButton, amount, clock, counted, dollars, drawn, element, roundDollars, span } from "./texts.js";
import { roundSpan, timeTicks, valueTicks } from "./ticks.js";

/** Time without a key before a quote is asked for. */
const PAUSE_MS = 300;

/**
 * Asks for a quote once nothing was typed for a moment; of several answers only the last one counts.
 * @template Question
 * @param {(question: Question, signal: AbortSignal) => Promise<any>} ask
 * @param {(answer: any) => void} onAnswer
 * @param {(error: unknown) => void} onError
 */
export function quotesAfterPause(ask, onAnswer, onError) {
  let latest = new AbortController(), timer = 0;
  const forget = () => {
    clearTimeout(timer);
    latest.abort();
  };
  /** @param {Question} question */
  const put = async (question) => {
    const own = (latest = new AbortController());
    try {
      const answer = await ask(question, own.signal);
      if (!own.signal.aborted) onAnswer(answer);
    } catch (error) {
      if (!own.signal.aborted) onError(error);
    }
  };
  /** @param {Question} question */
  const askSoon = (question) => {
    forget();
    timer = setTimeout(() => put(question), PAUSE_MS);
  };
  return { askSoon, forget };
}

/** @param {any} finish */
const landing = (finish) => `${clock(finish.finish)} (${clock(finish.low)} to ${clock(finish.high)})`;
/** @param {any} finish */
const size = (finish) => (finish.workers === null ? counted(Math.round(100 * finish.cores) / 100, "core") : counted(finish.workers, "worker"));

/** Whether a deadline at this finish can be promised, in words; "": nobody promises any. @param {any} quote @param {any} finish */
const promised = (quote, finish) => {
  if (!quote.promises) return "";
  return quote.earliest !== null && Date.parse(finish.finish) >= Date.parse(quote.earliest) ? ", can be promised" : ", cannot be promised";
};
/** @param {any} quote @param {any} finish */
const landed = (quote, finish) => `with ${size(finish)}: ${landing(finish)}${promised(quote, finish)}`;

/** @param {any} price */
const price = ({ usd, deadline }) => (usd === null ? `cannot be by ${clock(deadline)}` : `${dollars(usd)} by ${clock(deadline)}`);

/** An instant as a duration from now that is not shorter. @param {string} instant */
export const fromNow = (instant) => `${Math.ceil((Date.parse(instant) - present()) / 1000) + 1}s`;

/** @param {any} hurt */
export function harm(hurt) {
  const lost = hurt.promisedUntil === null ? "" : ` loses its promise until ${clock(hurt.promisedUntil)},`;
  const later = hurt.laterSeconds === null ? "" : `, and lands ${span(hurt.laterSeconds)} later`;
  return `${hurt.job}${lost} would have ${amount(hurt.coresAfter)} cores in place of ${amount(hurt.coresBefore)}${later}`;
}

/**
 * What a quote says.
 * @param {any} quote
 * @param {string} verb what is done with the earliest deadline that can be promised
 * @param {(deadline: string) => void} onTake is called with it, as a duration from now
 * @param {number} width pixels for a curve
 * @returns {Element[]}
 */
export function shown(quote, verb, onTake, width) {
  const [mark, look] = quote.canBePromised === null || !quote.promises ? ["", ""] : quote.canBePromised ? ["✓ ", "met"] : ["✗ ", "missed"];
  const parts = /** @type {Element[]} */ ([element("p", mark + quote.reason.text[0].toUpperCase() + quote.reason.text.slice(1), look)]);
  if (quote.earliest !== null) {
    const earliest = element("p", `Earliest deadline that can be promised: ${clock(quote.earliest)} `);
    earliest.append(actionButton(`${verb} ${clock(quote.earliest)}`, () => onTake(fromNow(quote.earliest))));
    parts.push(earliest);
  }
  if (quote.expected) parts.push(element("p", `With ${size(quote.expected)}, as it would begin, and no change: ${landing(quote.expected)}`));
  const prices = pricesDrawn(quote, width || 480), bought = quote.bought === null ? [] : [{ deadline: quote.bought, text: `${dollars(quote.budgetUsd)} buy it by ${clock(quote.bought)}` }];
  const costs = [...quote.prices.map((/** @type {any} */ each) => ({ deadline: each.deadline, text: price(each) })), ...bought].sort((a, b) => Date.parse(a.deadline) - Date.parse(b.deadline));
  for (const [title, lines, curve] of [
    ["When it would land", quote.finishes.map((/** @type {any} */ finish) => landed(quote, finish))],
    ["What it is expected to cost", costs.map(({ text }) => text), prices],
    ["Who would have less", quote.hurt.map(harm)],
  ]) if (lines.length) {
    const list = element("ul");
    list.append(...lines.map((/** @type {string} */ text) => element("li", text)));
    parts.push(element("h4", title), ...(curve ? [curve] : []), list);
  }
  return parts;
}

/** Pixels of a curve: its height, and what is left for values below and beside it. */
const CURVE = { height: 180, left: 76, below: 36, above: 24 };

/** Begins a curve from 0 on both axes: its frame, title and values beside the lines. @param {any} svg @param {number} width @param {string} title @param {number} mostX @param {number} mostY @param {number[]} values @param {(value: number) => string} write */
function begin(svg, width, title, mostX, mostY, values, write) {
  const right = width - 12, foot = CURVE.height - CURVE.below;
  const x = (/** @type {number} */ value) => CURVE.left + ((right - CURVE.left) * value) / mostX, y = (/** @type {number} */ value) => foot - ((foot - CURVE.above) * value) / mostY;
  const path = (/** @type {string} */ className, /** @type {string} */ d) => svg.append(drawn("path", { class: className, d }));
  svg.setAttribute("viewBox", `0 0 ${width} ${CURVE.height}`);
  svg.setAttribute("height", CURVE.height);
  svg.replaceChildren(drawn("text", { class: "title", x: 0, y: 12 }, title));
  for (const value of values) {
    path("grid", `M${CURVE.left} ${y(value)}H${right}`);
    svg.append(drawn("text", { x: CURVE.left - 8, y: y(value) + 4, "text-anchor": "end" }, write(value)));
  }
  /** A line that is not to be crossed, with its name. @param {number} value @param {string} name */
  const limit = (value, name) => {
    path("curve goal", `M${CURVE.left} ${y(value)}H${right}`);
    svg.append(drawn("text", { class: "name", x: right, y: y(value) - 4, "text-anchor": "end" }, name));
  };
  return { x, y, right, foot, path, limit };
}

/** A mark at a point, with what it says. @param {any} svg @param {number} cx @param {number} cy @param {"" | "sure" | "never"} kind @param {string} title */
function point(svg, cx, cy, kind, title) {
  const mark = kind === "never" ? drawn("path", { class: "point never", d: `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8` }) : drawn("circle", { class: `point ${kind}`, cx, cy, r: 4 });
  mark.append(drawn("title", {}, title));
  svg.append(mark);
}

/** The finish over cores, with its interval, against the deadline. @param {any} svg @param {any} quote */
export function drawFinishes(svg, quote) {
  const found = quote.finishes.filter((/** @type {any} */ each) => Number.isFinite(Date.parse(each.high)));
  svg.toggleAttribute("hidden", found.length < 2);
  if (found.length < 2) return;
  const now = present(), left = (/** @type {string} */ time) => Math.max(0, (Date.parse(time) - now) / 1000), deadline = quote.deadline ? left(quote.deadline) : 0;
  const most = 1.08 * Math.max(deadline, ...found.map((/** @type {any} */ each) => left(each.high))), cores = Math.max(...found.map((/** @type {any} */ each) => each.cores)), step = roundSpan(1000 * most, 4) / 1000;
  const { x, y, right, foot, path, limit } = begin(svg, svg.clientWidth || 480, "Takes, by cores", cores, most, Array.from({ length: Math.ceil(most / step) }, (_, i) => i * step), (seconds) => (seconds ? span(seconds) : "0"));
  const along = (/** @type {string} */ key) => found.map((/** @type {any} */ each) => `${x(each.cores).toFixed(1)} ${y(left(each[key])).toFixed(1)}`);
  for (const n of valueTicks(0, cores, 4)) svg.append(drawn("text", { x: x(n), y: foot + 18, "text-anchor": "middle" }, amount(n)));
  path("interval", `M${along("low").join("L")}L${along("high").reverse().join("L")}Z`);
  path("curve granted", `M${along("finish").join("L")}`);
  for (const each of found) {
    const word = promised(quote, each);
    point(svg, x(each.cores), y(left(each.finish)), word.includes("cannot") ? "never" : word ? "sure" : "", landed(quote, each));
  }
  if (quote.promises) svg.append(drawn("text", { x: right, y: 12, "text-anchor": "end" }, "● can be promised  × cannot"));
  if (deadline) limit(deadline, "deadline");
}

/** The expected cost over the deadline, against the budget; null: there is no curve. @param {any} quote @param {number} width */
function pricesDrawn(quote, width) {
  const now = present(), left = (/** @type {string} */ time) => Math.max(0, (Date.parse(time) - now) / 1000);
  const possible = quote.prices.filter((/** @type {any} */ each) => each.usd !== null && Number.isFinite(Date.parse(each.deadline))).sort((/** @type {any} */ a, /** @type {any} */ b) => Date.parse(a.deadline) - Date.parse(b.deadline));
  if (possible.length < 2) return null;
  const svg = drawn("svg", { class: "chart", role: "img", "aria-label": "Expected cost by deadline; the list below says the same" }), usd = quote.budgetUsd ?? 0;
  const mostS = 1.05 * Math.max(...possible.map((/** @type {any} */ each) => left(each.deadline))), mostUsd = 1.1 * Math.max(usd, ...possible.map((/** @type {any} */ each) => each.usd));
  const { x, y, right, foot, path, limit } = begin(svg, width, "", mostS, mostUsd, valueTicks(0, mostUsd, 4), roundDollars);
  for (const { time, text } of timeTicks(now, now + 1000 * mostS, Math.floor((right - CURVE.left) / 72))) svg.append(drawn("text", { x: x((time - now) / 1000), y: foot + 18, "text-anchor": "middle" }, text));
  if (usd) limit(usd, `budget ${dollars(usd)}`);
  path("curve granted", `M${possible.map((/** @type {any} */ each) => `${x(left(each.deadline)).toFixed(1)} ${y(each.usd).toFixed(1)}`).join("L")}`);
  for (const each of possible) point(svg, x(left(each.deadline)), y(each.usd), "sure", price(each));
  const never = Math.min(mostS, Math.max(0, ...quote.prices.filter((/** @type {any} */ each) => each.usd === null).map((/** @type {any} */ each) => left(each.deadline))));
  if (never) {
    path("impossible", `M${CURVE.left} ${CURVE.above}H${x(never)}V${foot}H${CURVE.left}Z`);
    svg.append(drawn("text", { x: CURVE.left + 4, y: foot - 6 }, "cannot be"));
  }
  const tried = quote.deadline ? left(quote.deadline) : 0, told = { times: possible.map((/** @type {any} */ each) => left(each.deadline)), values: possible.map((/** @type {any} */ each) => each.usd), name: "", className: "" };
  if (tried <= never || tried >= mostS) return svg;
  const usdThen = tried > told.times[told.times.length - 1] ? told.values[told.values.length - 1] : valueAt(told, tried), isRight = x(tried) > width / 2;
  path("mark kept", `M${x(tried)} ${CURVE.above}V${foot}`);
  svg.append(drawn("text", { class: "name", x: x(tried), y: CURVE.above - 8, "text-anchor": isRight ? "end" : "start" }, `deadline ${clock(quote.deadline)}${usdThen === null ? "" : `, about ${dollars(usdThen)}`}`));
  return svg;
}
