// How a job stands, in one word and in a phrase, and what of that concerns the reader first. Nothing here reads the page or the clock.
import { amount, capital, clock, counted, span } from "./texts.js";

/**
 * *late*, *risk*, *good*: it runs, and its forecast says so. *measuring*: it runs, and no forecast can be believed yet.
 * *free*: it runs without a deadline. *waiting*, *paused*; and how it ended: *met*, *missed*, *done* (without a deadline), *failed*, *stopped*.
 * @typedef {"late" | "risk" | "good" | "measuring" | "free" | "waiting" | "paused" | "met" | "missed" | "done" | "failed" | "stopped"} Kind
 */

/** Each kind's name, and what is drawn beside it. @type {Record<Kind, [string, string]>} */
export const KINDS = {
  late: ["will be late", "late"], risk: ["at risk", "risk"], good: ["on track", "good"], measuring: ["measuring", "measuring"], free: ["no deadline", "free"],
  waiting: ["waiting", "waiting"], paused: ["paused", "paused"], met: ["met", "good"], missed: ["missed", "late"], done: ["done", "free"],
  failed: ["failed", "failed"], stopped: ["stopped", "stopped"],
};
/** Kinds in the order in which they want attention. @type {Kind[]} */
const ORDER = ["late", "risk", "measuring", "good", "free", "paused", "waiting", "failed", "missed", "met", "done", "stopped"];

/** Whether the job has left its work behind. @param {any} job */
export const isOver = (job) => Boolean(job.landed || job.ended);

/**
 * Whether its forecast is founded on its own steps. A job that uses less than half of what it holds goes no faster with more:
 * a forecast that has it run at twice its speed or faster is none.
 * @param {any} job
 */
export function isMeasured(job) {
  const { estimatedRemainingSeconds: left, stepsPerSecond: rate, stepsDone, stepsTotal } = job;
  if (left === null || !job.progressPercentage || !rate) return false;
  const isIdle = job.usedCores !== null && job.grantedCores && job.usedCores < job.grantedCores / 2;
  return !(isIdle && stepsTotal && left < (stepsTotal - stepsDone) / rate / 2);
}

/** @param {any} job @returns {Kind} */
export function kindOf(job) {
  if (job.state === "failed" && !job.landed) return "failed";
  if (job.state === "stopped" || job.state === "turned away") return "stopped";
  if (isOver(job)) return job.verdict === "met" || job.verdict === "missed" ? job.verdict : "done";
  if (job.state === "queued") return job.verdict === "missed" ? "late" : "waiting";
  if (job.verdict === "missed") return "late";
  if (job.state === "paused") return "paused";
  if (job.state === "stalled") return job.verdict === "infeasible" ? "late" : "risk";
  if (!isMeasured(job)) return "measuring";
  if (job.deadline === null || job.verdict === null) return "free";
  return job.verdict === "infeasible" ? "late" : job.verdict === "at_risk" ? "risk" : "good";
}

/** The kind's name; that a deadline has passed is said. @param {any} job @param {Kind} kind */
export const word = (job, kind) => (job.state === "stalled" ? "stalled" : kind === "late" && job.verdict === "missed" ? "late" : job.state === "turned away" ? "turned away" : KINDS[kind][0]);

/** When it landed or is expected to, in milliseconds; null: not known. @param {any} job @param {number} nowMs */
export function landingAt(job, nowMs) {
  if (job.landed) return Date.parse(job.landed);
  return job.ended || job.state === "queued" || !isMeasured(job) ? null : nowMs + 1000 * job.estimatedRemainingSeconds;
}

/** When a job that waits for others can start at the earliest; null: not known. @param {any} job @param {Map<string, any>} named all jobs @param {number} nowMs */
export function startAt(job, named, nowMs) {
  if (job.state !== "queued" || !job.after?.length) return null;
  const ends = job.after.map((/** @type {string} */ name) => { const other = named.get(name); return other ? landingAt(other, nowMs) : null; });
  return ends.includes(null) ? null : Math.max(nowMs, ...ends);
}

/** A landing that is expected nearer to its deadline than this, in seconds, is on time: no forecast is better. */
const ON_TIME_S = 1;

/** How far the landing lies from the deadline. @param {number} seconds that it is early @param {boolean} isPast */
function against(seconds, isPast) {
  if (!isPast && Math.abs(seconds) < ON_TIME_S) return "lands on time";
  return `${isPast ? "landed" : "lands"} ${span(seconds)} ${seconds < 0 ? "late" : "early"}`;
}

/** Why the job stands as it does, in some words. @param {any} job @param {Kind} kind @param {number} nowMs */
export function phrase(job, kind, nowMs) {
  const deadline = job.deadline && Date.parse(job.deadline), landing = landingAt(job, nowMs);
  if (job.landed) return deadline ? against((deadline - Date.parse(job.landed)) / 1000, true) : `took ${span((Date.parse(job.landed) - Date.parse(job.submitted)) / 1000)}`;
  if (kind === "failed") return job.exitCode ? `exit status ${job.exitCode}` : job.cause ? "see why" : "failed";
  if (kind === "stopped") return job.state;
  if (kind === "waiting") return job.after?.length ? `after ${job.after.join(", ")}` : "waits for room";
  if (job.state === "stalled") return "no step for a while";
  if (kind === "late" && landing === null) return "deadline passed";
  if (kind === "paused") return "paused";
  if (kind === "measuring") return job.state === "starting" ? "starts" : job.progressPercentage === null ? "no progress yet" : "measures its speed";
  if (deadline === null || landing === null) return "shares what is free";
  const high = nowMs + 1000 * (job.estimatedRemainingSecondsHigh ?? job.estimatedRemainingSeconds);
  if (kind === "risk" && high > deadline) return `may be ${span((high - deadline) / 1000)} late`;
  return against((deadline - landing) / 1000, false);
}

/** Texts as sentences in one line. @param {string[]} texts */
const sentences = (texts) => texts.filter(Boolean).map((text) => `${capital(text).replace(/[.\s]+$/, "").replaceAll("\n", " ")}.`).join(" ");
/** What its user is warned of. @param {any} job */
export const warning = (job) => (isOver(job) ? "" : sentences(Object.values(job.warnings)));
/** The whole reason, after what its user is warned of; of a refusal also which deadline would have been accepted. @param {any} job */
export const reason = (job) =>
  [warning(job), sentences([job.cause || (isOver(job) ? "" : job.reason?.text) || "", job.earliestDeadline === null ? "" : `the earliest that would have been accepted: ${clock(job.earliestDeadline)}`])].filter(Boolean).join(" ");

/** Jobs that want attention first, then by deadline; of ended ones the last first. @param {any} a @param {any} b */
export function byAttention(a, b) {
  const [left, right] = [ORDER.indexOf(a.kind), ORDER.indexOf(b.kind)];
  if (isOver(a) !== isOver(b)) return Number(isOver(a)) - Number(isOver(b));
  if (isOver(a)) return (b.ended || b.landed) < (a.ended || a.landed) ? -1 : 1;
  const urgent = (/** @type {number} */ rank) => (rank < 2 ? rank : rank < ORDER.indexOf("waiting") ? 2 : 3);
  if (urgent(left) !== urgent(right)) return urgent(left) - urgent(right);
  const due = (/** @type {any} */ job) => (job.deadline ? Date.parse(job.deadline) : Infinity);
  return due(a) === due(b) ? Date.parse(a.submitted) - Date.parse(b.submitted) : due(a) - due(b);
}

/** How many jobs stand how. @param {any[]} jobs with their kinds @param {number} nowMs */
export function tally(jobs, nowMs) {
  const today = new Date(nowMs).setHours(0, 0, 0, 0), count = { good: 0, risk: 0, late: 0, measuring: 0, waiting: 0, others: 0, done: 0, missed: 0, failed: 0 };
  for (const job of jobs) {
    const kind = /** @type {Kind} */ (job.kind);
    if (isOver(job)) {
      if (Date.parse(job.ended || job.landed) < today) continue;
      if (kind === "failed") count.failed += 1;
      else if (kind !== "stopped") count.done += 1;
      if (kind === "missed") count.missed += 1;
    } else if (kind === "good" || kind === "risk" || kind === "late" || kind === "measuring" || kind === "waiting") count[kind] += 1;
    else count.others += 1;
  }
  return count;
}

/** Whether everything will be on time, in words. @param {ReturnType<typeof tally>} count @param {number} nJobs */
export function answer({ good, risk, late, measuring, waiting, others, failed }, nJobs) {
  const parts = [];
  if (late) parts.push(counted(late, "job will be late", "jobs will be late"));
  if (risk) parts.push(counted(risk, "job is at risk", "jobs are at risk"));
  if (parts.length) return parts.join(", ");
  if (failed && !good && !measuring) return `${counted(failed, "job")} failed today`;
  if (good) return measuring ? "On track, as far as is measured" : "Everything is on track";
  if (measuring) return "Measuring";
  if (others) return "No deadline is in sight";
  return waiting ? "Jobs wait" : nJobs ? "Nothing runs" : "No jobs yet";
}

/** What stands in the browser's tab. @param {ReturnType<typeof tally>} count */
export const title = ({ good, risk, late }) => `${late ? `${late} late – ` : risk ? `${risk} at risk – ` : good ? "On track – " : ""}Punctual`;

/** How one job stands, in a sentence. @param {any} job @param {Kind} kind @param {number | null} mostCores of all nodes @param {number} nowMs */
export function headline(job, kind, mostCores, nowMs) {
  const deadline = job.deadline && Date.parse(job.deadline), landing = landingAt(job, nowMs), parts = [];
  const holds = job.grantedCores ? `holds ${amount(job.grantedCores)}${mostCores ? ` of ${amount(mostCores)}` : ""} cores${job.promisedUntil ? ", promised" : ""}` : "";
  const begun = { late: "Late", risk: "At risk", good: "On track", measuring: "Measuring", free: "Running", waiting: "Waiting", paused: "Paused", met: "Met", missed: "Missed", done: "Done", failed: "Failed", stopped: "Stopped" }[kind];
  if (isOver(job)) {
    const took = job.ended ? `took ${span((Date.parse(job.landed || job.ended) - Date.parse(job.submitted)) / 1000)}` : "";
    return `${job.state === "turned away" ? "Turned away" : begun}: ${[kind === "done" || kind === "stopped" ? "" : phrase(job, kind, nowMs), took].filter(Boolean).join("; ")}`;
  }
  if (landing !== null && kind !== "paused") {
    const { estimatedRemainingSecondsLow: low, estimatedRemainingSecondsHigh: high } = job;
    const spread = low === null || high === null ? "" : `, ± ${span((high - low) / 2)}`;
    parts.push(`lands ${clock(landing)}${spread}${deadline && kind === "late" ? `, ${span((landing - deadline) / 1000)} after its deadline` : ""}`);
  } else parts.push(kind === "measuring" ? "its speed is not known yet" : phrase(job, kind, nowMs));
  if (deadline) parts.push(deadline > nowMs ? `${span((deadline - nowMs) / 1000)} left` : `due ${span((nowMs - deadline) / 1000)} ago`);
  if (holds) parts.push(holds);
  return `${begun}: ${parts.filter((part) => part.toLowerCase() !== begun.toLowerCase()).join("; ")}`;
}

/** Changes that are worth a notice. @param {Map<string, any>} before @param {any[]} after, both with kinds @returns {{job: string, text: string}[]} */
export function notices(before, after) {
  return after.flatMap((job) => {
    const was = before.get(job.name), texts = [];
    if (was && was.state !== job.state && job.state === "stalled") texts.push("stalled");
    else if (was && was.kind !== job.kind && ["late", "risk", "failed", "met", "missed", "done"].includes(job.kind)) texts.push(word(job, job.kind));
    return texts.map((text) => ({ job: job.name, text: `${job.name}: ${text}` }));
  });
}
