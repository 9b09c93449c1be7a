// What drawings have in common: a scale, the lines around it, and curves on it.
import { amount, drawn } from "./texts.js";

/** Pixels above and below the scale, and from its foot to what is written there. */
const ABOVE = 20, BELOW = 24, TO_TEXT = 18;
/** What is written at an upright line stays so far, in pixels, from what is written at both ends: below it, and above. */
const END_LABEL = 110, TOP_LABEL = 85;

/** A value over time: milliseconds of the wall clock, and the values then. @typedef {{times: number[], values: number[]}} Curve */

/**
 * An empty chart in place of what the element showed.
 * @param {any} svg
 * @param {{from: number, to: number, least?: number, most: number, height: number, unit: string, left: string, right: string}} scale
 *   the times at its left and right and what is written there, and the values at its foot and top
 */
export function chart(svg, { from, to, least = 0, most, height, unit, left, right }) {
  const width = svg.clientWidth || 800, foot = ABOVE + height;
  const x = (/** @type {number} */ time) => ((width * (time - from)) / (to - from)).toFixed(1);
  const y = (/** @type {number} */ value) => (ABOVE + height * (1 - (value - least) / (most - least))).toFixed(1);
  svg.setAttribute("viewBox", `0 0 ${width} ${foot + BELOW}`);
  svg.replaceChildren();

  /** @param {string} className @param {string} d @param {string} [name] */
  const path = (className, d, name = "") => {
    const made = drawn("path", { class: className, d });
    if (name) made.append(drawn("title", {}, name));
    svg.append(made);
    return made;
  };
  /** @param {number | string} across @param {number | string} down @param {string} anchor @param {string} text */
  const label = (across, down, anchor, text) => svg.append(drawn("text", { x: across, y: down, "text-anchor": anchor }, text));
  /** An upright line at a time. @param {number} time @param {string} text what stands below it @param {string} [className] @param {boolean} [isAbove] the text stands above it */
  const upright = (time, text, className = "mark", isAbove = false) => {
    const made = path(className, `M${x(time)} ${ABOVE}V${foot}`), room = isAbove ? TOP_LABEL : END_LABEL;
    label(Math.max(room, Math.min(width - (isAbove ? TOP_LABEL / 2 : room), Number(x(time)))), isAbove ? ABOVE - 5 : foot + TO_TEXT, "middle", text);
    return made;
  };
  /** A band between two times. @param {number} since @param {number} until @param {string} className @param {string} name */
  const band = (since, until, className, name) =>
    path(className, `M${x(since)} ${ABOVE}H${Math.max(Number(x(until)), Number(x(since)) + 1)}V${foot}H${x(since)}Z`, name);

  return {
    x, y, path, label, upright, band,
    /** The time at so many pixels from the left. @param {number} pixels */
    timeAt: (pixels) => from + ((to - from) * pixels) / width,
    /** @param {Curve} curve @param {string} className @param {string} name */
    line: ({ times, values }, className, name) =>
      path(`curve ${className}`, times.map((time, i) => `${i ? "L" : "M"}${x(time)} ${y(values[i])}`).join(""), name),
    /** Values that hold until the next one, the last until `end`. @param {Curve} curve @param {number} end @param {string} className @param {string} name */
    steps: ({ times, values }, end, className, name) =>
      path(`curve ${className}`, times.map((time, i) => `${i ? "H" : "M"}${x(time)}${i ? "V" : " "}${y(values[i])}`).join("") + (times.length ? `H${x(end)}` : ""), name),
    /** The lines below and at a value, with what stands there. To be called last, so that they lie on top. @param {number} value @param {string} [text] */
    frame: (value, text = `${amount(value)} ${value === 1 ? unit.replace(/s$/, "") : unit}`) => {
      path("mark", `M0 ${y(value)}H${width}M0 ${foot}H${width}`);
      label(0, Number(y(value)) - 5, "start", text);
      label(0, foot + TO_TEXT, "start", left);
      label(width, foot + TO_TEXT, "end", right);
    },
  };
}
