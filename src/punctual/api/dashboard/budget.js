// The budget over time: who held how many cores, and who is to hold how many until when.
import { explorer } from "./chart.js";
import { isOver } from "./judge.js";
import { budget, latest } from "./service.js";
import { amount, at, clock, drawn, element, jobLink, roughly } from "./texts.js";
import { onView } from "./views.js";

const REFRESH_MS = 5000, HEIGHT = 300;
/** A name is written on an area that has so many pixels of height, and a character takes about so many of width. */
const LABEL_PX = 16, CHARACTER_PX = 7;
/** So many jobs have a colour of their own; the others share one. */
const N_COLOURS = 12;

/** @typedef {{job: string, cores: number, until: string, promised: boolean}} Planned */
/** What one colour stands for: the mean of each past part, and what is planned. @typedef {{name: string, held: number[], planned: Planned[]}} Layer */
/** A time with what each layer has in it. @typedef {{from: number, to: number, cores: number[]}} Span */

const chart = explorer(at("budget-chart"), at("budget-readout"));

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

/** How far back it goes, in hours: to the first job that has not ended, or of all. */
function hours() {
  if (at("budget-hours").value) return at("budget-hours").value;
  const open = latest.jobs.filter((job) => !isOver(job)), begun = (open.length ? open : latest.jobs).map((job) => Date.parse(job.started || job.submitted));
  const since = (Date.now() - Math.min(Date.now(), ...begun)) / 3.6e6;
  return String(Math.min(24 * 31, Math.max(1 / 60, 1.05 * since)));
}

/** Lets one node be chosen, where there are several. */
function offerNodes() {
  const names = (latest.cluster?.nodes || []).map((/** @type {any} */ node) => node.name).sort(), list = at("budget-node"), said = names.join("\n");
  list.parentElement.hidden = names.length < 2 && !list.value;
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  const chosen = list.value;
  list.replaceChildren(...["", ...new Set([...names, ...(chosen ? [chosen] : [])])].map((name) => {
    const option = /** @type {HTMLOptionElement} */ (element("option", name || "all"));
    option.value = name;
    return option;
  }));
  list.value = chosen;
}

/** The area of a layer in the spans, and where there is most room for its name. @param {Span[]} spans @param {number[]} low of each span, below the layer @param {number} k @param {import("./chart.js").Scale} scale */
function area(spans, low, k, scale) {
  const tops = /** @type {string[]} */ ([]), bottoms = /** @type {string[]} */ ([]);
  let room = 0, label = { x: 0, y: 0 }, run = { left: 0, top: 0, bottom: 0 };
  spans.forEach(({ from, to, cores }, i) => {
    const [left, right, top, bottom] = [scale.x(from), scale.x(to), scale.y(0, low[i] + cores[k]), scale.y(0, low[i])];
    tops.push(`${left.toFixed(1)},${top.toFixed(1)} ${right.toFixed(1)},${top.toFixed(1)}`);
    bottoms.unshift(`${right.toFixed(1)},${bottom.toFixed(1)} ${left.toFixed(1)},${bottom.toFixed(1)}`);
    // The name goes where a stripe of its height lies in the layer for the longest.
    const goesOn = Math.min(run.bottom, bottom) - Math.max(run.top, top) >= LABEL_PX;
    run = goesOn ? { left: run.left, top: Math.max(run.top, top), bottom: Math.min(run.bottom, bottom) } : { left, top, bottom };
    const end = Math.min(right, scale.right), begin = Math.max(run.left, scale.left);
    if (run.bottom - run.top >= LABEL_PX && end - begin > room) [room, label] = [end - begin, { x: (begin + end) / 2, y: (run.top + run.bottom) / 2 + 4 }];
  });
  return { points: [...tops, ...bottoms].join(" "), room, label };
}

/** @param {any} told @param {Layer[]} stack */
function draw(told, stack) {
  const since = Date.parse(told.since), now = Date.parse(told.until), last = Math.max(now + 0.1 * (now - since), ...told.planned.map((/** @type {Planned} */ share) => Date.parse(share.until)).filter((/** @type {number} */ time) => time < 8.64e15));
  const end = now + 1.05 * (last - now), parts = [past(told, stack), ahead(told, stack, end)];
  const most = 1.05 * (Math.max(told.capacityCores, ...parts.flat().map(({ cores }) => cores.reduce((a, b) => a + b, 0))) || 1);
  chart.show({
    from: since, to: end, panels: [{ title: `Cores, of ${amount(told.capacityCores)}`, least: 0, most, height: HEIGHT, series: [] }], marks: [{ time: now, className: "now", text: "now" }],
    under: (scale) => {
      const hatch = drawn("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }), labels = /** @type {SVGElement[]} */ ([]);
      hatch.append(drawn("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }));
      scale.svg.append(hatch);
      for (const [isAhead, spans] of parts.entries()) {
        const low = spans.map(() => 0);
        stack.forEach((layer, k) => {
          const { points, room, label } = area(spans, low, k, scale), shape = drawn("polygon", { class: `layer ${colour(layer, k)} ${isAhead ? "planned" : ""}`, points });
          shape.append(drawn("title", {}, layer.name));
          scale.svg.append(shape);
          if (isAhead && layer.planned.some(({ promised }) => promised)) scale.svg.append(drawn("polygon", { class: "promised", points, fill: "url(#hatch)", "aria-hidden": "true" }));
          if (room > layer.name.length * CHARACTER_PX) labels.push(drawn("text", { class: "on-layer", "text-anchor": "middle", ...label }, layer.name));
          spans.forEach(({ cores }, i) => { low[i] += cores[k]; });
        });
      }
      const top = scale.y(0, told.capacityCores);
      scale.svg.append(drawn("path", { class: "base", d: `M${scale.left} ${top}H${scale.right}` }), ...labels);
    },
    read: (time) => {
      const span = parts.flat().find(({ from, to }) => time >= from && time < to), held = span?.cores.reduce((a, b) => a + b, 0) ?? 0;
      const whose = stack.flatMap((layer, k) => (span?.cores[k] ? [[`${amount(span.cores[k])}${time > now ? until(layer) : ""}`, layer.name]] : []));
      return [...whose, [amount(Math.max(0, told.capacityCores - held)), "free"]];
    },
  });
}

/** @param {Layer} layer */
const until = ({ planned }) => (planned.length === 1 ? ` until ${clock(planned[0].until)}${planned[0].promised ? ", promised" : ""}` : "");

/** @param {Layer} layer @param {number} k */
const colour = (layer, k) => (k < N_COLOURS && layer.name !== "all others" ? `layer-${k}` : "layer-others");

/** The same in words, in the chart's order. @param {Layer[]} stack */
function list(stack) {
  at("budget-jobs").replaceChildren(...stack.map((layer, k) => {
    const row = document.createElement("tr"), mark = drawn("svg", { viewBox: "0 0 12 12", class: "swatch", "aria-hidden": "true" });
    mark.append(drawn("rect", { class: colour(layer, k), width: 12, height: 12 }));
    const name = element("th");
    /** @type {HTMLTableCellElement} */ (name).scope = "row";
    name.append(mark, layer.name === "all others" ? layer.name : jobLink(layer.name));
    const mean = layer.held.reduce((sum, cores) => sum + cores, 0) / (layer.held.length || 1);
    const [plan, until] = [layer.planned.reduce((sum, share) => sum + share.cores, 0), layer.planned.map((share) => `${clock(share.until)} (${roughly(Date.parse(share.until), Date.now())})${share.promised ? ", promised" : ", expected"}`)];
    row.append(name, ...[amount(mean), plan ? amount(plan) : "none", until.length > 3 ? `${until.length} times` : until.join("; ")].map((text, i) => element("td", text, i < 2 ? "number" : "")));
    return row;
  }));
}

async function look() {
  if (at("budget").hidden || document.hidden) return;
  offerNodes();
  try {
    const told = await budget(hours(), at("budget-node").value), stack = layers(told);
    draw(told, stack);
    list(stack);
    at("budget-table").hidden = !stack.length;
    at("budget-caption").textContent = stack.length
      ? "Cores held until now, and planned from now on; promised ones are hatched. In the order of the table, the first at the bottom. Drag, or + and −, to see a part larger; double click or 0 goes back."
      : "No job has held any cores in this time, and none is planned.";
  } catch (error) {
    at("budget-caption").textContent = `The budget could not be had: ${/** @type {Error} */ (error).message}`;
  }
}

for (const id of ["budget-hours", "budget-node"]) at(id).addEventListener("input", look);
onView("budget", look);
setInterval(look, REFRESH_MS);
