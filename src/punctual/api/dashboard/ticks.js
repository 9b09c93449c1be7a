// Round values for axes, and how they are written.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
/** Spans of a clock that people count in. */
const STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND), ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 7, 14, 28, 91, 365].map((n) => n * DAY),
];
const seconds = new Intl.DateTimeFormat([], { timeStyle: "medium", hourCycle: "h23" }), minutes = new Intl.DateTimeFormat([], { timeStyle: "short", hourCycle: "h23" });
const days = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });

/** The least round span of which `n` cover this one, in milliseconds. @param {number} spanMs @param {number} n */
export const roundSpan = (spanMs, n) => STEPS.find((step) => step * n >= spanMs) ?? Math.ceil(spanMs / n / (365 * DAY)) * 365 * DAY;

/** The last round time that is not after this one, by the reader's clock. @param {number} time @param {number} step */
export function roundDown(time, step) {
  const offset = -new Date(Math.min(time, 8.64e15)).getTimezoneOffset() * MINUTE;
  return Math.floor((time + offset) / step) * step - offset;
}

/** Round times between two, about `n` of them, as they are written. @param {number} from @param {number} to @param {number} n @returns {{time: number, text: string}[]} */
export function timeTicks(from, to, n) {
  const step = roundSpan(to - from, n), format = step >= DAY ? days : step >= MINUTE ? minutes : seconds, found = [];
  for (let time = roundDown(from, step) + step; time < to; time += step) if (time < 8.64e15) found.push({ time, text: format.format(time) });
  return found;
}

/** Round values from one to another, about `n` of them. @param {number} least @param {number} most @param {number} n */
export function valueTicks(least, most, n) {
  const rough = (most - least) / n || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power, found = [];
  for (let i = Math.ceil(least / step - 1e-9); i * step <= most + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}
