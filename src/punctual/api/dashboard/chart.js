// A chart: panels on one axis of time, with round ticks. It is read with a crosshair, and a part of it is seen larger, by pointer and by keys alike.
import { amount, clock, drawn, element } from "./texts.js";
import { timeTicks, valueTicks } from "./ticks.js";

/** Pixels: left of the panels, above all of them for flags, above each for its title, below the last for times, and that one label of time takes. */
const LEFT = 44, HEAD = 16, ABOVE = 36, BELOW = 24, LABEL = 88;
/** How many lines of values a panel has at most, the room for one, and what a character takes about. */
const MOST_VALUES = 5, PER_VALUE = 24, CHARACTER = 7.2;
/** Pixels that no screen has. */
const FAR = 1e5;
/** A drag of fewer pixels is a click. */
const LEAST_DRAG = 8;
/** The crosshair reads marks that are so many pixels away, or nearer. */
const NEAR = 5;
/** A second click within so many milliseconds makes one double click. */
const DOUBLE_MS = 300;
/** What a key moves the crosshair by, alone and with Shift, and what + leaves: shares of what is shown. */
const STEP_FRAC = 0.01, LONG_STEP_FRAC = 0.1, ZOOM_FRAC = 0.5;

/** A value over time: milliseconds of the wall clock, and the values then. @typedef {{times: number[], values: number[]}} Curve */
/** A curve with its name, which is written above the panel or not; steps hold until the next one, the last until `until`. @typedef {Curve & {name: string, className: string, isSteps?: boolean, isUnnamed?: boolean, until?: number}} Series */
/** @typedef {{from: number, to: number, className: string, name: string}} Band */
/** @typedef {{title: string, least: number, most: number, height: number, series: Series[], bands?: Band[], write?: (value: number) => string}} Panel */
/** An upright line through all panels. @typedef {{time: number, className: string, text?: string, name?: string}} Mark */
/** @typedef {ReturnType<typeof scale>} Scale */
/**
 * What is drawn: times from left to right, panels from the top, and lines through all of them. `draw` adds what is special, on top.
 * @typedef {{from: number, to: number, panels: Panel[], marks?: Mark[], under?: (scale: Scale) => void, draw?: (scale: Scale) => void, read?: (time: number) => string[][]}} Picture
 */

/** Where times and values lie. @param {any} svg @param {Picture} picture @param {number} from @param {number} to */
function scale(svg, picture, from, to) {
  const width = Math.max(120, svg.clientWidth || 800), right = width - 4, tops = /** @type {number[]} */ ([]);
  let foot = HEAD;
  for (const { height } of picture.panels) {
    tops.push(foot + ABOVE);
    foot += ABOVE + height;
  }
  return {
    svg, width, left: LEFT, right, tops, foot, from, to, height: foot + BELOW,
    /** A time far beyond what is shown lies far out, but where a drawing can go. @param {number} time */
    x: (time) => Math.max(-FAR, Math.min(FAR, LEFT + ((right - LEFT) * (time - from)) / (to - from))),
    /** @param {number} panel @param {number} value */
    y: (panel, value) => {
      const { least, most, height } = picture.panels[panel];
      return tops[panel] + height * (1 - (value - least) / (most - least));
    },
    /** The time at so many pixels from the left. @param {number} pixels */
    timeAt: (pixels) => from + ((to - from) * Math.min(1, Math.max(0, (pixels - LEFT) / (right - LEFT)))),
  };
}

/** Where a path goes through. @param {Series} series @param {Scale} at @param {number} panel */
function through({ times, values, isSteps, until }, at, panel) {
  const point = (/** @type {number} */ i) => `${at.x(times[i]).toFixed(1)} ${at.y(panel, values[i]).toFixed(1)}`;
  if (!isSteps) return times.map((_, i) => `${i ? "L" : "M"}${point(i)}`).join("");
  const steps = times.map((time, i) => (i ? `H${at.x(time).toFixed(1)}V${at.y(panel, values[i]).toFixed(1)}` : `M${point(0)}`)).join("");
  return times.length ? `${steps}H${at.x(until ?? times[times.length - 1]).toFixed(1)}` : "";
}

/** The curve's value at a time; null: it has none there. @param {Series} series @param {number} time */
export function valueAt({ times, values, isSteps, until }, time) {
  const next = times.findIndex((each) => each > time), last = (next < 0 ? times.length : next) - 1;
  if (last < 0 || (next < 0 && time > (until ?? times[last]))) return null;
  if (isSteps || next < 0) return values[last];
  return values[last] + ((values[next] - values[last]) * (time - times[last])) / (times[next] - times[last]);
}

/** A path with a name. @param {string} className @param {string} d @param {string} [name] */
function path(className, d, name = "") {
  const made = drawn("path", { class: className, d });
  if (name) made.append(drawn("title", {}, name));
  return made;
}

/** The width of a drawn text; an estimate while the page is hidden. @param {SVGElement} text */
export const widthOf = (text) => /** @type {SVGTextElement} */ (text).getComputedTextLength() || (text.textContent || "").length * CHARACTER;

/** Title, values and their lines, and the names of the curves. @param {any} group @param {Panel} panel @param {number} i @param {Scale} at */
function frame(group, panel, i, at) {
  const write = panel.write || amount;
  for (const value of valueTicks(panel.least, panel.most, Math.min(MOST_VALUES, Math.max(2, Math.floor(panel.height / PER_VALUE))))) {
    const y = Math.round(at.y(i, value)) + 0.5;
    group.append(path("grid", `M${LEFT} ${y}H${at.right}`), drawn("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, write(value)));
  }
  const title = drawn("text", { class: "title", x: 0, y: at.tops[i] - 10 }, panel.title);
  group.append(path("base", `M${LEFT} ${at.tops[i] + panel.height + 0.5}H${at.right}`), title);
  let x = Math.max(LEFT + 8, widthOf(title) + 16);
  for (const { name, className, times, isUnnamed } of [...panel.series].reverse()) { // what lies on top first
    if (!times.length || isUnnamed) continue;
    const words = drawn("text", { x: x + 24, y: at.tops[i] - 10 }, name);
    group.append(words);
    const end = x + 24 + widthOf(words);
    if (end > at.right) words.remove();
    else {
      group.append(path(`curve ${className}`, `M${x} ${at.tops[i] - 14}h18`));
      x = end + 16;
    }
  }
}

/** @param {any} svg @param {Picture} picture @param {number} from @param {number} to */
function paint(svg, picture, from, to) {
  const at = scale(svg, picture, from, to), frames = drawn("g", { class: "frames" }), inside = drawn("g", { "clip-path": `url(#${svg.id}-clip)` }), clip = drawn("clipPath", { id: `${svg.id}-clip` });
  svg.setAttribute("viewBox", `0 0 ${at.width} ${at.height}`);
  svg.setAttribute("height", at.height);
  clip.append(drawn("rect", { x: LEFT, y: 0, width: at.right - LEFT, height: at.foot }));
  svg.replaceChildren(clip, frames, inside);
  for (const { time, text } of timeTicks(from, to, Math.max(2, Math.floor((at.right - LEFT) / LABEL)))) {
    const x = at.x(time);
    for (const [i, top] of at.tops.entries()) frames.append(path("grid", `M${x.toFixed(1)} ${top}v${picture.panels[i].height}`));
    const isFree = (picture.marks || []).every((mark) => !mark.text || Math.abs(at.x(mark.time) - x) > LABEL / 2);
    if (x < at.right - 20 && isFree) frames.append(drawn("text", { x, y: at.foot + 18, "text-anchor": "middle" }, text));
  }
  picture.panels.forEach((panel, i) => {
    frame(frames, panel, i, at);
    for (const { from: since, to: until, className, name } of panel.bands || [])
      inside.append(path(className, `M${at.x(since).toFixed(1)} ${at.tops[i]}H${Math.max(at.x(until), at.x(since) + 1).toFixed(1)}V${at.tops[i] + panel.height}H${at.x(since).toFixed(1)}Z`, name));
  });
  picture.under?.({ ...at, svg: inside });
  picture.panels.forEach((panel, i) => panel.series.forEach((series) => inside.append(path(`curve ${series.className}`, through(series, at, i), series.name))));
  for (const { time, className, text, name } of picture.marks || []) {
    if (time < from || time > to) continue;
    svg.append(path(`mark ${className}`, at.tops.map((top, i) => `M${at.x(time).toFixed(1)} ${top}v${picture.panels[i].height}`).join(""), name)); // not through the words between
    if (text) svg.append(drawn("text", { x: Math.min(at.right - 16, at.x(time)), y: at.foot + 18, "text-anchor": "middle", class: "name" }, text));
  }
  picture.draw?.(at);
  return at;
}

/**
 * Lets a chart be read and a part of it be seen larger.
 * @param {any} svg @param {any} readout where the values under the crosshair stand @param {(isPart: boolean) => void} [onZoom]
 * @param {(time: number) => void} [onPick] is called with a time that is clicked, or at which Enter is pressed
 */
export function explorer(svg, readout, onZoom = () => {}, onPick = () => {}) {
  /** @type {Picture | null} */
  let picture = null;
  /** @type {[number, number] | null} */
  let part = null;
  /** @type {number | null} */
  let cursor = null;
  /** @type {number | null} */
  let pressedAt = null;
  /** @type {Scale | null} */
  let at = null;
  let picking = 0;

  const pixels = (/** @type {PointerEvent} */ event) => event.clientX - svg.getBoundingClientRect().left;

  function read() {
    svg.querySelector(".cursor")?.remove();
    if (cursor === null || !picture || !at || cursor < at.from || cursor > at.to) return readout.replaceChildren();
    const group = drawn("g", { class: "cursor" }), told = [[clock(cursor), ""]], x = at.x(cursor);
    group.append(path("cross", `M${x.toFixed(1)} ${at.tops[0]}V${at.foot}`));
    for (const [i, panel] of picture.panels.entries()) for (const series of panel.series) {
      const value = valueAt(series, cursor);
      if (value === null) continue;
      told.push([(panel.write || amount)(value), series.name]);
      group.append(drawn("circle", { class: "dot", cx: x, cy: at.y(i, value), r: 3 }));
    }
    svg.append(group);
    for (const { time, name } of picture.marks || []) if (name && Math.abs(at.x(time) - x) <= NEAR) told.push([name, ""]);
    readout.replaceChildren(...[...told, ...(picture.read?.(cursor) || [])].map(([value, name]) => {
      const said = element("span", name && `${name} `);
      said.append(element("b", value));
      return said;
    }));
  }

  function render() {
    if (!picture) return;
    if (part && (part[0] >= picture.to || part[1] <= picture.from)) part = null;
    at = paint(svg, picture, ...(part || [picture.from, picture.to]));
    onZoom(part !== null);
    read();
  }

  /** @param {number} from @param {number} to */
  function zoom(from, to) {
    if (!picture) return;
    const [least, most] = [Math.max(picture.from, from), Math.min(picture.to, to)];
    part = least <= picture.from && most >= picture.to ? null : most - least >= 1000 ? [least, most] : part;
    render();
  }
  function all() {
    part = null;
    render();
  }

  svg.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!at || /** @type {Element} */ (event.target).closest(".handle")) return;
    cursor = at.timeAt(pixels(event));
    read();
    svg.querySelector(".brush")?.remove();
    if (pressedAt === null) return;
    const [a, b] = [at.x(pressedAt), at.x(cursor)].sort((one, other) => one - other);
    svg.append(drawn("rect", { class: "brush", x: a, width: b - a, y: at.tops[0], height: at.foot - at.tops[0] }));
  });
  svg.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    if (!at || event.button || /** @type {Element} */ (event.target).closest(".handle")) return;
    pressedAt = at.timeAt(pixels(event));
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
    if (!at || pressedAt === null) return;
    const since = pressedAt, until = at.timeAt(pixels(event));
    pressedAt = null;
    svg.querySelector(".brush")?.remove();
    clearTimeout(picking);
    if (Math.abs(at.x(since) - at.x(until)) >= LEAST_DRAG) zoom(Math.min(since, until), Math.max(since, until));
    else picking = setTimeout(onPick, DOUBLE_MS, since);
  });
  svg.addEventListener("pointercancel", () => { pressedAt = null; });
  svg.addEventListener("pointerleave", () => { if (document.activeElement !== svg) { cursor = null; read(); } });
  svg.addEventListener("dblclick", () => { clearTimeout(picking); all(); });
  svg.addEventListener("blur", () => { cursor = null; read(); });
  svg.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== svg || !at || event.ctrlKey || event.metaKey || event.altKey) return;
    const { from, to } = at, shown = to - from, place = cursor ?? (from + to) / 2, direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (direction) cursor = Math.min(to, Math.max(from, place + direction * (event.shiftKey ? LONG_STEP_FRAC : STEP_FRAC) * shown));
    else if (event.key === "Home" || event.key === "End") cursor = event.key === "Home" ? from : to;
    else if (event.key === "+" || event.key === "=") zoom(place - (place - from) * ZOOM_FRAC, place + (to - place) * ZOOM_FRAC);
    else if (event.key === "-") zoom(place - (place - from) / ZOOM_FRAC, place + (to - place) / ZOOM_FRAC);
    else if (event.key === "0" || event.key === "Escape") all();
    else if (event.key === "Enter" && cursor !== null) onPick(cursor);
    else return;
    event.preventDefault();
    read();
  });
  addEventListener("resize", () => { if (svg.clientWidth) render(); });

  return {
    /** @param {Picture} shown */
    show: (shown) => {
      picture = shown;
      if (pressedAt === null) render();
    },
    all,
    /** Forgets which part was shown, and where the crosshair was. */
    reset: () => { [part, cursor] = [null, null]; },
  };
}
