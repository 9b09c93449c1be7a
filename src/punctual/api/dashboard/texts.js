// What every view shares: its elements, and how numbers and times are written.

/** The element of this id. @type {(id: string) => any} */
export const at = (id) => document.getElementById(id);

/** @param {number | null} number */
export const amount = (number) => (number === null ? "–" : String(Math.round(number * 100) / 100));

const money = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
/** Dollars; less than ten cents in two digits. @param {number} usd */
export const dollars = (usd) => `$${usd >= 0.00005 && usd < 0.0995 ? Number(usd.toPrecision(2)) : money.format(usd)}`;

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
/** The same beside an axis. @param {number} usd */
export const roundDollars = (usd) => `$${compact.format(usd)}`;

/** Memory; 0 and null: not known. @param {number | null} bytes */
export const memory = (bytes) => {
  if (!bytes) return "–";
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};

// Kept: to make one takes far longer than to use it, and hundreds of jobs have several times each.
const ofToday = new Intl.DateTimeFormat([], { timeStyle: "medium", hourCycle: "h23" }), ofAnyDay = new Intl.DateTimeFormat([], { dateStyle: "short", timeStyle: "short", hourCycle: "h23" });
/** @param {Date} one @param {Date} other */
const isSameDay = (one, other) => one.getDate() === other.getDate() && one.getMonth() === other.getMonth() && one.getFullYear() === other.getFullYear();

/** A time in the reader's zone; one that no calendar has is far away. @param {string | number | null} instant */
export const clock = (instant) => {
  if (instant === null) return "–";
  const date = new Date(new Date(instant).getTime() + 500); // the nearest second: 18:00 went through two clocks
  if (Number.isNaN(date.getTime())) return "far away";
  return (isSameDay(date, new Date()) ? ofToday : ofAnyDay).format(date);
};

/** The service's text with its times of day as the reader's clock has them; those without seconds stay so. @param {string} text */
export const timed = (text) => text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?[-+]\d\d:\d\d/g, (time, seconds) => (seconds ? clock(time) : clock(time).replace(/^(\d\d:\d\d):\d\d$/, "$1")));

/** A text with an escape for each sign that is not shown, or that turns others around: jobs and submitters write what they like. @param {string} text */
export const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (sign) => `\\u${Number(sign.codePointAt(0)).toString(16).padStart(4, "0")}`);

/** An element with a text. @param {string} tag @param {string} [text] @param {string} [className] */
export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = visible(text);
  if (className) made.className = className;
  return made;
}

/**
 * An element of a drawing.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
export function drawn(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.textContent = visible(text);
  return made;
}

/**
 * The label of a box, what it means, and room for what is wrong with it.
 * @param {HTMLInputElement} box @param {string[]} ids of the box, of what it means and of what is wrong @param {string} label @param {string} help
 */
export function labelled(box, ids, label, help) {
  const title = /** @type {HTMLLabelElement} */ (element("label", label)), explained = element("p", help, "help"), fault = element("p", "", "fault");
  [box.id, explained.id, fault.id] = ids;
  title.htmlFor = box.id;
  box.autocomplete = "off";
  box.spellcheck = false;
  box.setAttribute("aria-describedby", `${explained.id} ${fault.id}`);
  return { title, explained, fault };
}

/** A picture of our own from the sheet in the page. @param {string} name @param {string} [className] */
export function icon(name, className = "") {
  const made = drawn("svg", { class: `icon ${className}`, viewBox: "0 0 16 16", "aria-hidden": "true" });
  made.append(drawn("use", { href: `#icon-${name}` }));
  return made;
}

/** A link to a job. @param {string} name @param {string} [text] */
export function jobLink(name, text = name) {
  const made = /** @type {HTMLAnchorElement} */ (element("a", text));
  made.href = `#/jobs/${encodeURIComponent(name)}`;
  return made;
}

/** A button that does something at once. @param {string} text @param {() => void} act */
export function actionButton(text, act) {
  const made = /** @type {HTMLButtonElement} */ (element("button", text));
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/** Offers values in a list of which one is chosen. @param {any} list @param {string[]} values @param {(value: string) => string} text what is shown of each */
export const offer = (list, values, text) => list.replaceChildren(...values.map((value) => new Option(visible(text(value)), value)));

/** A span of time in the two largest units that say something. @param {number} seconds */
export function span(seconds) {
  const s = Math.abs(seconds), two = (/** @type {number} */ a, /** @type {string} */ large, /** @type {number} */ b, /** @type {string} */ small) => `${a} ${large}${b ? ` ${b} ${small}` : ""}`;
  if (!Number.isFinite(s)) return "for ever";
  if (s < 0.9995) return s < 0.0005 ? "0 s" : `${Math.round(1000 * s)} ms`;
  if (s < 59.5) return `${Number(s.toPrecision(2))} s`;
  const whole = Math.round(s);
  if (whole < 600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 2880) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** How far an instant is from now. @param {number} instant @param {number} nowMs */
export function relative(instant, nowMs) {
  const seconds = (instant - nowMs) / 1000;
  if (!Number.isFinite(seconds) || Math.abs(instant) > 8.64e15) return "far away";
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(seconds)} ago`;
}

/** The same without seconds but for the last two minutes, so that it seldom changes; a day that is far away is named. @param {number} instant @param {number} nowMs */
export function roughly(instant, nowMs) {
  const seconds = (instant - nowMs) / 1000, s = Math.abs(seconds);
  if (!Number.isFinite(s) || Math.abs(instant) > 8.64e15) return "far away";
  if (s < 1) return "now";
  if (s >= 172800) return clock(instant);
  const text = s < 99.5 ? `${Math.round(s)} s` : s < 5970 ? `${Math.round(s / 60)} min` : span(s);
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** The text with a capital letter. @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
/** A number and what is counted. @param {number} n @param {string} one @param {string} [many] */
export const counted = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/** When the job landed, or is expected to, with the interval. @param {any} job @param {number} nowMs */
export function expected(job, nowMs) {
  if (job.landed) return clock(job.landed);
  if (job.estimatedRemainingSeconds === null) return "–";
  const when = (/** @type {number} */ seconds) => clock(nowMs + 1000 * Math.round(seconds));
  const [low, high] = [job.estimatedRemainingSecondsLow, job.estimatedRemainingSecondsHigh];
  const interval = low === null || high === null || when(low) === when(high) ? "" : ` (${when(low)} to ${when(high)})`;
  return when(job.estimatedRemainingSeconds) + interval;
}
