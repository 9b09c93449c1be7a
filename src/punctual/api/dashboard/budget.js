// The budget over time: who held how many cores, and who is to hold how many until when.
import { chart } from "./chart.js";
import { budget } from "./service.js";
import { amount, at, clock, drawn, element } from "./texts.js";
import { onView } from "./views.js";

const REFRESH_MS = 5000, HEIGHT = 260;
/** So many jobs have a colour of their own; the others share one. */
const N_COLOURS = 12;

/** @typedef {{job: string, cores: number, until: string, promised: boolean}} Planned */
/** What one colour stands for: the mean of each past part, and what is planned. @typedef {{name: string, held: number[], planned: Planned[]}} Layer */
/** A time with what each layer has in it. @typedef {{from: number, to: number, cores: number[]}} Span */


/** The layers from the lowest on. @param {any} told @returns {Layer[]} */
function layers(told) {
  /** @type {Map<string, Layer>} */
  const named = new Map();
  for (const { job, cores } of told.held) if (job !== null) named.set(job, { name: job, held: cores, planned: [] });
  const others = { name: "all others", held: told.held.find((/** @type {any} */ share) => share.job === null)?.cores || [], planned: /** @type {Planned[]} */ ([]) };
  for (const share of told.planned) {
    if (!named.has(share.job) && named.size < N_COLOURS) named.set(share.job, { name: share.job, held: [], planned: [] });
    (named.get(share.job) || others).planned.push(share);
  }
  return others.held.length || others.planned.length ? [...named.values(), others] : [...named.values()];
}

/** @param {any} told @param {Layer[]} stack @returns {Span[]} */
function past(told, stack) {
  const n = told.held[0]?.cores.length || 0, since = Date.parse(told.since), part = (Date.parse(told.until) - since) / n;
  return Array.from({ length: n }, (_, i) => ({ from: since + i * part, to: since + (i + 1) * part, cores: stack.map(({ held }) => held[i] || 0) }));
}

/** @param {any} told @param {Layer[]} stack @param {number} end @returns {Span[]} */
function ahead(told, stack, end) {
  const ends = [...new Set([...told.planned.map((/** @type {Planned} */ share) => Math.min(end, Date.parse(share.until))), end])].sort((a, b) => a - b);
  let from = Date.parse(told.until);
  return ends.filter((to) => to > from).map((to) => {
    const cores = stack.map(({ planned }) => planned.reduce((sum, share) => sum + (Date.parse(share.until) >= to ? share.cores : 0), 0));
    const span = { from, to, cores };
    from = to;
    return span;
  });
}

/** @param {any} told @param {Layer[]} stack */
function draw(told, stack) {
  const since = Date.parse(told.since), now = Date.parse(told.until), end = 2 * now - since;
  const parts = [past(told, stack), ahead(told, stack, end)];
  const most = Math.max(told.capacityCores, ...parts.flat().map(({ cores }) => cores.reduce((a, b) => a + b, 0))) || 1;
  const { x, y, ...drawing } = chart(at("budget-chart"), { from: since, to: end, most, height: HEIGHT, unit: "cores", left: clock(since), right: clock(end) });
  parts.forEach((spans, isAhead) => {
    const low = spans.map(() => 0);
    stack.forEach((layer, k) => {
      const points = spans.map(({ from, to, cores }, i) => [`${x(from)},${y(low[i] + cores[k])} ${x(to)},${y(low[i] + cores[k])}`, `${x(to)},${y(low[i])} ${x(from)},${y(low[i])}`]);
      const area = drawn("polygon", { class: `${colour(layer, k)} ${isAhead ? "planned" : ""}`, points: [...points.map(([top]) => top), ...points.map(([, bottom]) => bottom).reverse()].join(" ") });
      area.append(drawn("title", {}, layer.name));
      at("budget-chart").append(area);
      spans.forEach(({ cores }, i) => { low[i] += cores[k]; });
    });
  });
  drawing.upright(now, "now");
  drawing.frame(told.capacityCores, `all: ${amount(told.capacityCores)} cores`);
}

/** @param {Layer} layer @param {number} k */
const colour = (layer, k) => (k < N_COLOURS && layer.name !== "all others" ? `layer-${k}` : "layer-others");

/** The same in words, in the chart's order. @param {Layer[]} stack */
function list(stack) {
  at("budget-jobs").replaceChildren(...stack.map((layer, k) => {
    const row = document.createElement("tr"), mark = drawn("svg", { viewBox: "0 0 12 12", class: "mark-of-layer", "aria-hidden": "true" });
    mark.append(drawn("rect", { class: colour(layer, k), width: 12, height: 12 }));
    const name = element("th");
    /** @type {HTMLTableCellElement} */ (name).scope = "row";
    name.append(mark, ` ${layer.name}`);
    const mean = layer.held.reduce((sum, cores) => sum + cores, 0) / (layer.held.length || 1);
    const [plan, until] = [layer.planned.reduce((sum, share) => sum + share.cores, 0), layer.planned.map((share) => clock(share.until) + (share.promised ? ", promised" : ", expected"))];
    row.append(name, ...[amount(mean), plan ? amount(plan) : "–", until.length > 3 ? `${until.length} times` : until.join("; ") || "–"].map((text) => element("td", text)));
    return row;
  }));
}

async function look() {
  if (at("budget").hidden || document.hidden) return;
  try {
    const told = await budget(at("budget-hours").value), stack = layers(told);
    draw(told, stack);
    list(stack);
    at("budget-caption").textContent = stack.length
      ? "Cores held, from the left until now, and planned from now on: in the order of the table, the first at the bottom."
      : "No job has held any cores in this time, and none is planned.";
  } catch (error) {
    at("budget-caption").textContent = `The budget could not be had: ${/** @type {Error} */ (error).message}`;
  }
}

at("budget-hours").addEventListener("input", look);
onView("budget", look);
setInterval(look, REFRESH_MS);
