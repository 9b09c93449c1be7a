// What of how the jobs stand concerns the reader first. The service judges each. Nothing here reads the page or the clock.
import { amount, capital, clock, counted } from "./texts.js";

/**
 * *late*, *risk*, *good*: it runs, and its forecast says so. *measuring*: it runs, and no forecast can be believed yet.
 * *free*: it runs without a deadline. *waiting*, *paused*; and how it ended: *met*, *missed*, *done* (without a deadline), *failed*, *stopped*.
 * @typedef {"late" | "risk" | "good" | "measuring" | "free" | "waiting" | "paused" | "met" | "missed" | "done" | "failed" | "stopped"} Kind
 */

/** What is drawn beside each kind. @type {Record<Kind, string>} */
export const ICONS = {
  late: "late", risk: "risk", good: "good", measuring: "measuring", free: "free", waiting: "waiting", paused: "paused",
  met: "good", missed: "late", done: "free", failed: "failed", stopped: "stopped",
};
/** Kinds of open jobs that want attention more than the others, or less. @type {Record<string, number>} */
const RANKS = { late: 0, risk: 1, waiting: 3 };

/** Whether the job has left its work behind. @param {any} job */
export const isOver = (job) => Boolean(job.landed || job.ended);

/** When it landed or is expected to, in milliseconds; null: not known. @param {any} job @param {number} nowMs */
export function landingAt(job, nowMs) {
  if (job.landed) return Date.parse(job.landed);
  return job.ended || job.state === "queued" || job.estimatedRemainingSeconds === null ? null : nowMs + 1000 * job.estimatedRemainingSeconds;
}

/** Texts as sentences in one line. @param {string[]} texts */
const sentences = (texts) => texts.filter(Boolean).map((text) => capital(text).replace(/[.\s]+$/, "").replaceAll("\n", " ").replace(/[^?!]$/, "$&.")).join(" ");
/** What its user is warned of; that it will be late its verdict says. @param {any} job @returns {string[]} */
export const warnings = (job) => (isOver(job) ? [] : Object.entries(job.warnings).flatMap(([code, text]) => (code === "infeasible" ? [] : [String(text)])));

/** So many jobs that hold cores are named, the first. */
const N_HOLDERS = 2;
/** What it is warned of, and what keeps it from having more cores: its own bound, or others, those with promises first. @param {any} job @param {any[]} jobs */
export function cause(job, jobs) {
  const told = sentences(warnings(job)), cores = counted(Number(amount(job.grantedCores || 0)), "core");
  if (job.mostCores !== null && amount(job.grantedCores || 0) === amount(job.mostCores)) return `${told} It has all ${cores} that it may have.`.trim();
  const holders = jobs.filter((other) => other.name !== job.name && other.grantedCores && !isOver(other)).sort((a, b) => Number(!a.promisedUntil) - Number(!b.promisedUntil) || b.grantedCores - a.grantedCores);
  const named = holders.slice(0, N_HOLDERS).map((other) => `${other.name} has ${amount(other.grantedCores)}${other.promisedUntil ? ", promised" : ""}`), more = holders.length - named.length;
  return `${told} It has ${cores}${named.length ? `; ${named.join("; ")}` : ""}${more > 0 ? `; ${counted(more, "other has", "others have")} the rest` : ""}.`.trim();
}
/** The whole reason, after what its user is warned of; of a refusal also which deadline would have been accepted. @param {any} job */
export const reason = (job) =>
  [sentences(warnings(job)), sentences([job.cause || (isOver(job) ? "" : job.reason?.text) || "", job.earliestDeadline === null ? "" : `the earliest that would have been accepted: ${clock(job.earliestDeadline)}`])].filter(Boolean).join(" ");

/** Jobs that want attention first, then by `due`, the deadline as a number; of ended ones the last first. @param {any} a @param {any} b */
export function byAttention(a, b) {
  const [left, right] = [RANKS[a.kind] ?? 2, RANKS[b.kind] ?? 2];
  if (isOver(a) !== isOver(b)) return Number(isOver(a)) - Number(isOver(b));
  if (isOver(a)) return (b.ended || b.landed) < (a.ended || a.landed) ? -1 : 1;
  if (left !== right) return left - right;
  if (cannotMakeIt(a) !== cannotMakeIt(b)) return Number(cannotMakeIt(b)) - Number(cannotMakeIt(a));
  return a.due === b.due ? Date.parse(a.submitted) - Date.parse(b.submitted) : a.due - b.due;
}

/** Whether a job that waits starts, as is expected, when its deadline has passed. @param {any} job */
const cannotMakeIt = (job) => Boolean(job.expectedStart) && Date.parse(job.expectedStart) >= job.due;

/** How many jobs stand how. @param {any[]} jobs @param {number} nowMs */
export function tally(jobs, nowMs) {
  const today = new Date(nowMs).setHours(0, 0, 0, 0), count = { good: 0, risk: 0, late: 0, measuring: 0, waiting: 0, hopeless: 0, free: 0, others: 0, done: 0, missed: 0, failed: 0 };
  for (const job of jobs) {
    const kind = /** @type {Kind} */ (job.kind);
    if (isOver(job)) {
      if (Date.parse(job.ended || job.landed) < today) continue;
      if (kind === "failed") count.failed += 1;
      else if (kind !== "stopped") count.done += 1;
      if (kind === "missed") count.missed += 1;
    } else if (kind === "waiting" && cannotMakeIt(job)) count.hopeless += 1;
    else if (kind === "good" || kind === "risk" || kind === "late" || kind === "measuring" || kind === "waiting" || kind === "free") count[kind] += 1;
    else count.others += 1;
  }
  return count;
}

/** Whether everything will be on time, in words. @param {ReturnType<typeof tally>} count @param {number} nJobs */
export function answer({ good, risk, late, measuring, waiting, hopeless, free, others, failed }, nJobs) {
  const parts = [];
  if (late) parts.push(counted(late, "job will be late", "jobs will be late"));
  if (risk) parts.push(counted(risk, "job is at risk", "jobs are at risk"));
  if (hopeless) parts.push(`${counted(hopeless, "waiting job")} cannot start in time`);
  if (failed) parts.push(`${parts.length ? failed : counted(failed, "job")} failed today`);
  if (parts.length) return `${parts.join(", ")}${good && !late && !risk ? "; what runs is on track" : ""}`;
  if (good) return measuring ? "On track, as far as is measured" : "Everything is on track";
  if (measuring) return `Nothing can be said yet: ${counted(measuring, "job")} ${measuring === 1 ? "is" : "are"} being measured`;
  if (free || others) return "No deadline is in sight";
  return waiting ? `${counted(waiting, "job waits", "jobs wait")}, and nothing runs yet` : nJobs ? "Nothing runs" : "No jobs yet";
}

/** What stands in the browser's tab. @param {ReturnType<typeof tally>} count */
export const title = ({ good, risk, late }) => `${late ? `${late} late – ` : risk ? `${risk} at risk – ` : good ? "On track – " : ""}Punctual`;

/** Changes that are worth a notice. @param {Map<string, any>} before @param {any[]} after @returns {{job: string, text: string}[]} */
export function notices(before, after) {
  return after.filter((job) => {
    const was = before.get(job.name);
    if (!was) return false;
    return was.kind !== job.kind ? ["late", "risk", "failed", "met", "missed", "done"].includes(job.kind) : was.state !== job.state && job.state === "stalled";
  }).map((job) => ({ job: job.name, text: `${job.name}: ${job.word}` }));
}
