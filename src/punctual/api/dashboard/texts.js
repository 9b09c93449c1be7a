// What every view shares: its elements, and how numbers and times are written.

/** The element of this id. @type {(id: string) => any} */
export const at = (id) => document.getElementById(id);

/** @param {number | null} number */
export const amount = (number) => (number === null ? "–" : String(Math.round(number * 100) / 100));

/** Memory; 0 and null: not known. @param {number | null} bytes */
export const memory = (bytes) => {
  if (!bytes) return "–";
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};

// Kept: to make one takes far longer than to use it, and hundreds of jobs have several times each.
const ofToday = new Intl.DateTimeFormat([], { timeStyle: "medium" }), ofAnyDay = new Intl.DateTimeFormat([], { dateStyle: "short", timeStyle: "short" });
/** @param {Date} one @param {Date} other */
const isSameDay = (one, other) => one.getDate() === other.getDate() && one.getMonth() === other.getMonth() && one.getFullYear() === other.getFullYear();

/** A time in the reader's zone; one that no calendar has is far away. @param {string | number | null} instant */
export const clock = (instant) => {
  if (instant === null) return "–";
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return "far away";
  return (isSameDay(date, new Date()) ? ofToday : ofAnyDay).format(date);
};

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

/** @type {Record<string, string>} */
export const VERDICTS = { on_track: "✓ on track", at_risk: "! at risk", infeasible: "✗ will be late", met: "✓ met", missed: "✗ missed" };

/** When the job landed, or is expected to, with the interval. @param {any} job @param {number} nowMs */
export function expected(job, nowMs) {
  if (job.landed) return clock(job.landed);
  if (job.estimatedRemainingSeconds === null) return "–";
  const when = (/** @type {number} */ seconds) => clock(nowMs + 1000 * Math.round(seconds));
  const [low, high] = [job.estimatedRemainingSecondsLow, job.estimatedRemainingSecondsHigh];
  const interval = low === null || high === null || when(low) === when(high) ? "" : ` (${when(low)} to ${when(high)})`;
  return when(job.estimatedRemainingSeconds) + interval;
}
