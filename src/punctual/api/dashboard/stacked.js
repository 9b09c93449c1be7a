// Areas that are stacked in a panel of a chart, each with its name on it where there is room.
import { widthOf } from "./chart.js";
import { drawn } from "./texts.js";

/** A name is written on an area that has so many pixels of height, and a character takes about so many of width. */
const LABEL_PX = 16, CHARACTER_PX = 7;
/** The width that a panel's title has. */
const TITLE_PX = 120;

/** What one colour stands for. @typedef {{name: string, className: string, isPromised?: boolean}} Layer */
/** A time with what each layer has in it. @typedef {{from: number, to: number, amounts: number[]}} Span */

/** So many layers have a colour of their own; the others share one. */
export const N_COLOURS = 12;
/** The colour of a pool, others than those of the first jobs. @param {number} k */
export const poolColour = (k) => `layer-${(k + N_COLOURS / 2) % N_COLOURS}`;

/** All layers together. @param {Span} span */
export const height = ({ amounts }) => amounts.reduce((a, b) => a + b, 0);

/** The area of a layer in the spans, and where there is most room for its name. @param {Span[]} spans @param {number[]} low of each span, below the layer @param {number} k @param {import("./chart.js").Scale} scale @param {number} panel */
function area(spans, low, k, scale, panel) {
  const tops = /** @type {string[]} */ ([]), bottoms = /** @type {string[]} */ ([]);
  let room = 0, label = { x: 0, y: 0 }, run = { left: 0, top: 0, bottom: 0 };
  spans.forEach(({ from, to, amounts }, i) => {
    const [left, right, top, bottom] = [scale.x(from), scale.x(to), scale.y(panel, low[i] + amounts[k]), scale.y(panel, low[i])];
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

/** Names the layers without a name on them beside the panel's title, as far as there is room. @param {import("./chart.js").Scale} scale @param {number} panel @param {Layer[]} layers */
function nameBeside(scale, panel, layers) {
  let x = scale.right;
  for (const { name, className } of [...layers].reverse()) {
    const y = scale.tops[panel] - 10, words = drawn("text", { y }, name);
    scale.svg.append(words);
    const begin = x - 24 - widthOf(words);
    if (begin < scale.left + TITLE_PX) words.remove();
    else {
      words.setAttribute("x", String(begin + 14));
      scale.svg.append(drawn("rect", { class: className, x: begin, y: y - 9, width: 10, height: 10 }));
      x = begin;
    }
  }
}

/** @param {import("./chart.js").Scale} scale @param {number} panel @param {Layer[]} layers from the lowest on @param {Span[]} past @param {Span[]} [ahead] what is planned */
export function drawStack(scale, panel, layers, past, ahead = []) {
  const labels = /** @type {SVGElement[]} */ ([]), unnamed = new Set(layers.filter((_, k) => [...past, ...ahead].some(({ amounts }) => amounts[k] > 0)));
  for (const spans of [past, ahead].filter(({ length }) => length)) {
    const low = spans.map(() => 0);
    layers.forEach((layer, k) => {
      const { name, className, isPromised } = layer;
      const { points, room, label } = area(spans, low, k, scale, panel), shape = drawn("polygon", { class: `layer ${className} ${spans === ahead ? "planned" : ""}`, points });
      shape.append(drawn("title", {}, name));
      scale.svg.append(shape);
      if (spans === ahead && isPromised) scale.svg.append(drawn("polygon", { class: "promised", points, fill: "url(#hatch)", "aria-hidden": "true" }));
      if (room > name.length * CHARACTER_PX) {
        labels.push(drawn("text", { class: "on-layer", "text-anchor": "middle", ...label }, name));
        unnamed.delete(layer);
      }
      spans.forEach(({ amounts }, i) => { low[i] += amounts[k]; });
    });
  }
  scale.svg.append(...labels);
  nameBeside(scale, panel, [...unnamed]);
}
