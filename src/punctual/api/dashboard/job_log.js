// What a job writes, as it comes. The last lines are kept; those that hold a text or are of a level can be seen alone. Colours of terminals are shown.
import { endOfLog, followLog, present, Refused } from "./service.js";
import { at, clock, counted } from "./texts.js";

const N_LINES = 5000, N_CHARACTERS = 10000, PAUSE_MS = 200, AGAIN_MS = 5000, LEAVE_MS = 60000;
/** So many last lines stand above the course of a job that has failed. */
const N_LAST = 15;
/** What lines of a level have in them. @type {Record<string, RegExp>} */
const LEVELS = { error: /\b(error|critical|fatal|exception|traceback)\b|\w+(Error|Exception):/i, warning: /\b(warn(ing)?|error|critical|fatal|exception|traceback)\b|\w+(Error|Exception|Warning):/i };
/** Signs that move a terminal's cursor or colour what follows. */
const CODE = /\x1b\[([\d;]*)([A-Za-z])/g;

/** The last one is not ended yet. @type {string[]} */
let lines = [""];
let nDropped = 0, timer = 0, job = "";
/** The time from which on the log is shown; null: all of it. @type {number | null} */
let since = null;
/** The job whose last lines stand above all else, and what it wrote as errors, if that is apart. */
let failed = "", errors = /** @type {string[]} */ ([]);
let reading = new AbortController(), againTimer = 0, leaveTimer = 0;
/** Whether a log is being followed, and whether it was left because the tab is not seen. */
let isOpen = false, isLeft = false;

/** The same without signs for terminals. @param {string} line */
const plain = (line) => line.replace(CODE, "");

/** A line in its colours. @param {string} line @returns {(string | HTMLElement)[]} */
function coloured(line) {
  if (!line.includes("\x1b[")) return [line];
  const parts = /** @type {(string | HTMLElement)[]} */ ([]);
  let colour = "", isBold = false, from = 0;
  const put = (/** @type {string} */ text) => {
    if (!text) return;
    const span = document.createElement("span");
    span.className = [colour && `ansi-${colour}`, isBold && "ansi-bold"].filter(Boolean).join(" ");
    span.textContent = text;
    parts.push(span.className ? span : text);
  };
  for (const found of line.matchAll(CODE)) {
    put(line.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] === "m") for (const code of (found[1] || "0").split(";").map(Number)) {
      if (code === 0) [colour, isBold] = ["", false];
      else if (code === 1) isBold = true;
      else if (code === 22) isBold = false;
      else if (code === 39) colour = "";
      else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) colour = String(code % 10);
    }
  }
  put(line.slice(from));
  return parts;
}

/** @param {HTMLElement} into @param {string[]} shown */
function write(into, shown) {
  const parts = /** @type {(string | HTMLElement)[]} */ ([]);
  let text = "";
  shown.forEach((line, i) => {
    for (const part of coloured(line)) {
      if (typeof part === "string") text += part;
      else {
        parts.push(text, part);
        text = "";
      }
    }
    if (i + 1 < shown.length) text += "\n";
  });
  into.replaceChildren(...parts, text);
}

function draw() {
  timer = 0;
  const text = at("log-search").value.toLowerCase(), level = LEVELS[at("log-level").value], log = at("one-log");
  const written = lines.at(-1) ? lines : lines.slice(0, -1), isPart = Boolean(text || level);
  const found = isPart ? written.filter((line) => { const read = plain(line); return (!level || level.test(read)) && read.toLowerCase().includes(text); }) : written;
  write(log, found);
  const earlier = nDropped ? ` ${nDropped} earlier ones are not kept here: punctual logs has them.` : "";
  const said = `${isPart ? `${found.length} of ` : ""}${counted(written.length, "line")}${since === null ? "" : ` from ${clock(since)} on`}.${earlier}`;
  if (at("log-count").textContent !== said) at("log-count").textContent = said;
  if (at("log-follow").checked) log.scrollTop = log.scrollHeight;
  const last = (errors.length ? errors : written).slice(-N_LAST);
  at("last").hidden = !failed || !last.length;
  if (failed) write(at("last-lines"), last);
}

function drawSoon() {
  timer ||= setTimeout(draw, PAUSE_MS);
}

/** The end of a line: of a bar of progress that is written over and over, the last. @param {string} line */
const kept = (line) => line.slice(line.lastIndexOf("\r", line.length - 2) + 1).slice(-N_CHARACTERS);

/** @param {string} text */
function take(text) {
  const [first, ...more] = text.split("\n");
  lines[lines.length - 1] = kept(lines[lines.length - 1] + first);
  for (const line of more) lines.push(kept(line));
  if (lines.length > N_LINES) nDropped += lines.splice(0, lines.length - N_LINES).length;
  drawSoon();
}

export function stopReading() {
  clearTimeout(againTimer);
  againTimer = 0;
  reading.abort();
}

/** Has the last lines of a job stand above all else; "": none. @param {string} name */
export async function showLast(name) {
  if (failed === name) return;
  [failed, errors] = [name, []];
  draw();
  if (!name) return;
  const text = await endOfLog(name, "stderr").catch(() => ""); // it wrote none, say: what is in the log is shown all the same
  if (failed !== name) return;
  errors = text.split("\n").filter(Boolean).slice(-N_LAST).map(kept);
  draw();
  if (!errors.length || since !== null || at("log-stream").value === "stderr") return;
  at("log-stream").value = "stderr"; // what it failed by stands there
  readLog(name);
}

/** Shows the log of this job from now on: all of it, or what it has written since a time. @param {string} name @param {number | null} [from] */
export async function readLog(name, from = null) {
  stopReading();
  const own = (reading = new AbortController());
  [job, lines, nDropped, since, isLeft] = [name, [""], 0, from, false];
  at("log-problem").textContent = "";
  at("log-again").textContent = from === null ? "Read again" : "Read all of it";
  draw();
  isOpen = true;
  try {
    await followLog(name, at("log-stream").value, (text) => { if (!own.signal.aborted) take(text); }, own.signal, from === null ? "" : new Date(from).toISOString());
  } catch (error) {
    if (own.signal.aborted) return;
    at("log-problem").textContent = `The log could not be had: ${/** @type {Error} */ (error).message}. Choose "${at("log-again").textContent}".`;
    if (!(error instanceof Refused)) againTimer = setTimeout(() => readLog(name, from), AGAIN_MS); // the service was started again, say
  } finally {
    if (reading === own) isOpen = againTimer > 0;
  }
}

/** A tab that is not seen for a while leaves the log: a browser has six connections to a service for all its tabs. */
function leaveUnseen() {
  clearTimeout(leaveTimer);
  if (document.hidden) leaveTimer = setTimeout(() => {
    isLeft ||= isOpen;
    stopReading();
  }, LEAVE_MS);
  else if (isLeft) readLog(job, since);
}

/** Shows the log from this time on, and goes there. @param {number} time */
export function jumpTo(time) {
  at("log-follow").checked = false;
  readLog(job, Math.min(time, present())); // of a future time: what is written from now on
  at("one-log").scrollTop = 0;
  at("one-log").focus();
}

for (const id of ["log-search", "log-level", "log-follow"]) at(id).addEventListener("input", draw);
document.addEventListener("visibilitychange", leaveUnseen);
at("log-stream").addEventListener("input", () => readLog(job, since));
at("log-again").addEventListener("click", () => readLog(job));
