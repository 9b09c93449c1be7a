// What a job writes, as it comes. The last lines are kept; a search shows those of them that hold a text.
import { followLog } from "./service.js";
import { at } from "./texts.js";

const N_LINES = 5000, N_CHARACTERS = 10000, PAUSE_MS = 200;

/** The last one is not ended yet. @type {string[]} */
let lines = [""];
let nDropped = 0, timer = 0, job = "";
let reading = new AbortController();

function draw() {
  timer = 0;
  const text = at("log-search").value.toLowerCase(), log = at("one-log");
  const written = lines.at(-1) ? lines : lines.slice(0, -1);
  const found = text ? written.filter((line) => line.toLowerCase().includes(text)) : written;
  log.textContent = found.join("\n");
  const earlier = nDropped ? ` ${nDropped} earlier ones are not kept here: punctual logs has them.` : "";
  const said = (text ? `${found.length} of ${written.length} lines.` : `${written.length} lines.`) + earlier;
  if (at("log-count").textContent !== said) at("log-count").textContent = said;
  if (at("log-follow").checked) log.scrollTop = log.scrollHeight;
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

export const stopReading = () => reading.abort();

/** Shows the log of this job from now on. @param {string} name */
export async function readLog(name) {
  stopReading();
  const own = (reading = new AbortController());
  [job, lines, nDropped] = [name, [""], 0];
  at("log-problem").textContent = "";
  draw();
  try {
    await followLog(name, at("log-stream").value, (text) => { if (!own.signal.aborted) take(text); }, own.signal);
  } catch (error) {
    if (!own.signal.aborted) at("log-problem").textContent = `The log could not be had: ${/** @type {Error} */ (error).message}. Choose "Read again".`;
  }
}

at("log-search").addEventListener("input", draw);
at("log-follow").addEventListener("input", draw);
at("log-stream").addEventListener("input", () => readLog(job));
at("log-again").addEventListener("click", () => readLog(job));
