// The budget over time: who held how many cores, and who is to hold how many until when; and what machines cost, by pool.
import { explorer } from "./chart.js";
import { byAttention, ICONS, isOver } from "./judge.js";
import { budget, latest, present } from "./service.js";
import { drawStack, height, N_COLOURS, poolColour } from "./stacked.js";
import { amount, at, capital, clock, counted, dollars, drawn, element, icon, jobLink, offer, roughly, roundDollars, timed } from "./texts.js";
import { onView } from "./views.js";

/** So many jobs that wait are listed, the first. */
const N_WAITING = 20;
const REFRESH_MS = 5000, HEIGHT = { alone: 300, cores: 220, costs: 140 };

/** What is planned until a time. @typedef {{amount: number, until: string, promised: boolean}} Planned */
/** What one colour stands for: the mean of each past part, and what is planned. @typedef {import("./stacked.js").Layer & {held: number[], planned: Planned[]}} Layer */
/** @typedef {import("./stacked.js").Span} Span */
/** What is stacked in a panel. @typedef {{layers: Layer[], past: Span[], ahead: Span[]}} Stack */

const chart = explorer(at("budget-chart"), at("budget-readout"));

/** The jobs from the lowest on. @param {any} told @returns {Layer[]} */
function jobs(told) {
  /** @type {Map<string, Layer>} */
  const named = new Map(), others = { name: "all others", className: "layer-others", held: told.held.find((/** @type {any} */ share) => share.job === null)?.cores || [], planned: /** @type {Planned[]} */ ([]) };
  const add = (/** @type {string} */ name, /** @type {number[]} */ held) => named.set(name, { name, className: named.size < N_COLOURS ? `layer-${named.size}` : "layer-others", held, planned: [] });
  for (const { job, cores } of told.held) if (job !== null) add(job, cores);
  for (const { job, cores, until, promised } of told.planned) {
    if (!named.has(job) && named.size < N_COLOURS) add(job, []);
    (named.get(job) || others).planned.push({ amount: cores, until, promised });
  }
  return others.held.length || others.planned.length ? [...named.values(), others] : [...named.values()];
}

/** @param {any} told @returns {Layer[]} */
const pools = (told) => (told.costs?.pools || []).map((/** @type {any} */ { pool, usdPerHour, planned }, /** @type {number} */ k) => ({
  name: pool, className: poolColour(k), held: usdPerHour,
  planned: planned.map((/** @type {any} */ each) => ({ amount: each.usdPerHour, until: each.until, promised: false })),
}));

/** The layers in the time that is shown. @param {any} told @param {Layer[]} layers @param {number} end @returns {Stack} */
function stack(told, layers, end) {
  const n = layers.find(({ held }) => held.length)?.held.length || 0, since = Date.parse(told.since), now = Date.parse(told.until), part = (now - since) / n;
  const past = Array.from({ length: n }, (_, i) => ({ from: since + i * part, to: since + (i + 1) * part, amounts: layers.map(({ held }) => held[i] || 0) }));
  const times = layers.flatMap(({ planned }) => planned.map(({ until }) => Math.min(end, Date.parse(until)))).filter((time) => time > now);
  let from = now;
  const ahead = [...new Set([...times, end])].sort((a, b) => a - b).map((to) => {
    const span = { from, to, amounts: layers.map(({ planned }) => planned.reduce((sum, { amount: planned, until }) => sum + (Date.parse(until) >= to ? planned : 0), 0)) };
    from = to;
    return span;
  });
  return { layers: layers.map((layer) => ({ ...layer, isPromised: layer.planned.some(({ promised }) => promised) })), past, ahead };
}

/** How far back it goes, in hours: to the first job that has not ended, or of all. */
function hours() {
  if (at("budget-hours").value) return at("budget-hours").value;
  const open = latest.jobs.filter((job) => !isOver(job)), begun = (open.length ? open : latest.jobs).map((job) => Date.parse(job.started || job.submitted));
  const since = (present() - Math.min(present(), ...begun)) / 3.6e6;
  return String(Math.min(24 * 31, Math.max(1 / 60, 1.05 * since)));
}

/** Lets one node be chosen, where there are several. */
function offerNodes() {
  const names = (latest.cluster?.nodes || []).map((/** @type {any} */ node) => node.name).sort(), list = at("budget-node"), said = names.join("\n");
  list.parentElement.hidden = names.length < 2 && !list.value;
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  const chosen = list.value;
  offer(list, ["", ...new Set([...names, ...(chosen ? [chosen] : [])])], (name) => name || "all");
  list.value = chosen;
}

/** The times at which something planned ends. @param {Layer[]} layers */
const ends = (layers) => layers.flatMap(({ planned }) => planned.map(({ until }) => Date.parse(until))).filter((time) => time < 8.64e15);

/** What a pool has cost up to a time, or is to cost by then. @param {Stack} costs @param {number} k @param {{spentBeforeUsd: number, spentUsd: number}} pool before the time that is shown, and until now @param {number} time @param {number} now */
function spentBy({ past, ahead }, k, { spentBeforeUsd, spentUsd }, time, now) {
  const over = (/** @type {Span[]} */ spans, /** @type {number} */ from, /** @type {number} */ to) => spans.reduce((sum, span) => sum + (span.amounts[k] * Math.max(0, Math.min(to, span.to) - Math.max(from, span.from))) / 3.6e6, 0);
  return time > now ? spentUsd + over(ahead, now, time) : spentBeforeUsd + over(past, past[0]?.from, time);
}

/** @param {any} told @param {Layer[]} byJob @param {Layer[]} byPool */
function draw(told, byJob, byPool) {
  const since = Date.parse(told.since), now = Date.parse(told.until), last = Math.max(now + 0.1 * (now - since), ...ends(byJob), ...ends(byPool));
  const end = now + 1.05 * (last - now), cores = stack(told, byJob, end), costs = stack(told, byPool, end), hasCosts = byPool.length > 0;
  const most = (/** @type {Stack} */ { past, ahead }, /** @type {number} */ least) => 1.05 * (Math.max(least, ...[...past, ...ahead].map(height)) || 1);
  const panels = [{ title: `Cores, of ${amount(told.capacityCores)}`, least: 0, most: most(cores, told.capacityCores), height: hasCosts ? HEIGHT.cores : HEIGHT.alone, series: [] }];
  const money = { title: "Dollars an hour", least: 0, most: most(costs, 0), height: HEIGHT.costs, series: [], write: roundDollars };
  chart.show({
    from: since, to: end, panels: hasCosts ? [...panels, money] : panels, marks: [{ time: now, className: "now", text: "now" }],
    under: (scale) => {
      const hatch = drawn("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
      hatch.append(drawn("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }));
      const top = scale.y(0, told.capacityCores);
      scale.svg.append(hatch, drawn("path", { class: "base", d: `M${scale.left} ${top}H${scale.right}` }));
      drawStack(scale, 0, cores.layers, cores.past, cores.ahead);
      if (hasCosts) drawStack(scale, 1, costs.layers, costs.past, costs.ahead);
    },
    read: (time) => {
      const of = (/** @type {Stack} */ { past, ahead }) => [...past, ...ahead].find(({ from, to }) => time >= from && time < to);
      const held = of(cores), paid = of(costs);
      const whose = cores.layers.flatMap((layer, k) => (held?.amounts[k] ? [[`${amount(held.amounts[k])}${time > now ? until(layer) : ""}`, layer.name]] : []));
      const spent = costs.layers.map((layer, k) => {
        const usd = paid?.amounts[k], latest = Math.max(...ends([layer])), sum = dollars(spentBy(costs, k, told.costs.pools[k], time, now));
        return [`${usd ? `${dollars(usd)}/h${latest > time ? ` until ${clock(latest)}` : ""}, ` : ""}${sum} ${time > now ? "by then" : "so far"}`, layer.name];
      });
      return [...whose, [amount(Math.max(0, told.capacityCores - (held ? height(held) : 0))), "free"], ...spent];
    },
  });
}

/** @param {Layer} layer */
const until = ({ planned }) => (planned.length === 1 ? ` until ${clock(planned[0].until)}${planned[0].promised ? ", promised" : ""}` : "");

/** A row of a table, with the colour of its layer. @param {Layer} layer @param {(string | null)[]} cells null: none @param {number} [nText] which of them is no number */
function row({ name, className }, cells, nText = -1) {
  const made = document.createElement("tr"), mark = drawn("svg", { viewBox: "0 0 12 12", class: "swatch", "aria-hidden": "true" }), head = element("th");
  mark.append(drawn("rect", { class: className, width: 12, height: 12 }));
  /** @type {HTMLTableCellElement} */ (head).scope = "row";
  head.append(mark, name);
  made.append(head, ...cells.flatMap((text, i) => (text === null ? [] : [element("td", text, i === nText ? "" : "number")])));
  return made;
}

/** The mean of what was held. @param {Layer} layer */
const mean = ({ held }) => held.reduce((sum, part) => sum + part, 0) / (held.length || 1);

/** The same in words, in the chart's order. @param {any} told @param {Layer[]} byJob @param {Layer[]} byPool */
function list(told, byJob, byPool) {
  const spent = new Map((told.costs?.jobs || []).map((/** @type {any} */ each) => [each.job, each.spentUsd])), cost = (/** @type {string} */ name) => (spent.has(name) ? dollars(spent.get(name)) : "none yet");
  const drawnNames = new Set(byJob.map(({ name }) => name)), all = latest.jobs.filter((job) => job.kind === "waiting" && !drawnNames.has(job.name)).sort(byAttention), waiting = all.slice(0, N_WAITING);
  at("budget-cost").hidden = !byPool.length;
  at("budget-waiting").textContent = all.length > waiting.length ? `${counted(all.length - waiting.length, "more job waits", "more jobs wait")}.` : "";
  at("budget-jobs").replaceChildren(...byJob.map((layer) => {
    const { planned } = layer, sum = planned.reduce((total, each) => total + each.amount, 0);
    const job = latest.jobs.find(({ name }) => name === layer.name), isLate = job && (job.kind === "late" || job.kind === "risk");
    const times = planned.map((each) => `${clock(each.until)} (${roughly(Date.parse(each.until), present())})${each.promised ? ", promised" : ", expected"}${isLate ? `, ${job.word}: due ${clock(job.deadline)}` : ""}`);
    const made = row(layer, [amount(mean(layer)), sum ? amount(sum) : "none", byPool.length ? cost(layer.name) : null, times.length > 3 ? `${times.length} times` : times.join("; ") || job?.word || ""], 3);
    if (layer.name !== "all others") made.children[0].lastChild?.replaceWith(jobLink(layer.name));
    if (isLate) made.lastElementChild?.prepend(icon(ICONS[/** @type {import("./judge.js").Kind} */ (job.kind)]), " ");
    if (isLate) made.lastElementChild?.classList.add(job.kind);
    return made;
  }), ...waiting.map((job) => {
    const made = row({ name: "", className: "none", held: [], planned: [] }, ["0", "none yet", byPool.length ? cost(job.name) : null, capital(timed(job.phrase))], 3);
    made.children[0].lastChild?.replaceWith(jobLink(job.name));
    return made;
  }));
  at("budget-pools").replaceChildren(...byPool.map((layer, k) => {
    const { machines, priceUsdPerHour, spentUsd } = told.costs.pools[k];
    return row(layer, [String(machines), dollars(priceUsdPerHour), dollars(mean(layer)), dollars(spentUsd)]);
  }));
}

/** What machines have cost, in words. @param {any} costs */
function costsTold({ since, spentUsd, expectedUsd, unusedUsd }) {
  const ahead = expectedUsd === null ? "" : `; ${dollars(expectedUsd)} more if the machines that are there stay until their jobs are done, at today’s prices`;
  return ` Machines have cost ${dollars(spentUsd)} since ${clock(since)}${unusedUsd >= 0.005 ? `, ${dollars(unusedUsd)} of it before a job came to them` : ""}${ahead}.`;
}

async function look() {
  if (at("budget").hidden || document.hidden) return;
  offerNodes();
  try {
    const told = await budget(hours(), at("budget-node").value), byJob = jobs(told), byPool = pools(told);
    for (const id of ["budget-chart", "budget-readout"]) at(id).toggleAttribute("hidden", !byJob.length && !byPool.length);
    draw(told, byJob, byPool);
    list(told, byJob, byPool);
    at("budget-table").hidden = !at("budget-jobs").rows.length;
    at("budget-pools-table").hidden = !byPool.length;
    const cores = byJob.length
      ? "Cores held until now, and planned from now on; promised ones are hatched. In the order of the table, the first at the bottom. Drag, or + and −, to see a part larger; double click or 0 goes back."
      : "No job has held any cores in this time, and none is planned.";
    at("budget-caption").textContent = cores + (told.costs ? costsTold(told.costs) : "");
  } catch (error) {
    at("budget-caption").textContent = `The budget could not be had: ${/** @type {Error} */ (error).message}`;
  }
}

for (const id of ["budget-hours", "budget-node"]) at(id).addEventListener("input", look);
onView("budget", look);
setInterval(look, REFRESH_MS);
