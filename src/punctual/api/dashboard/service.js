// What the page asks its service. The token stays in this tab (sessionStorage); it is in no address and no cookie.
const KEY = "punctual-token";

const told = document.getElementById("frozen")?.textContent;
/**
 * What a frozen page has in place of a service: when it was made, what is said of each job, and answers by path. null: it is live.
 * @type {{at: string, said: Record<string, string>, answers: Record<string, string>} | null}
 */
export const frozen = told ? JSON.parse(told) : null;

/** Milliseconds by which the service's clock, whose times are shown, is ahead of the reader's; 0 for a difference up to `CLOCK_MS`. */
let aheadMs = 0;
/** Differences up to this are ignored: `Date` has whole seconds, and an answer takes a while to come. */
const CLOCK_MS = 3000;
/** The present by the service's clock, of a frozen page the instant at which it was made. */
export const present = () => (frozen ? Date.parse(frozen.at) : Date.now() + aheadMs);

/** What was last heard of the jobs, with their kinds, and of the cluster, for views that need no more than that. @type {{jobs: any[], cluster: any}} */
export const latest = { jobs: [], cluster: null };

/** What the service refused, in its words. */
export class Refused extends Error {
  /** @param {number} status @param {string} detail @param {any} [problem] */
  constructor(status, detail, problem = {}) {
    super(detail);
    this.status = status;
    /** @type {{must: string, got: string, where: string, remedy: string, field?: string}[]} what is wrong, each in four parts */
    this.faults = problem.must ? [problem, ...problem.others] : [];
  }
}

/** What is wrong, as one text. @param {{must: string, got: string, where: string, remedy: string}} fault */
export const inOneText = ({ must, got, where, remedy }) => `${must}: got ${got} (${where}). ${remedy}`;

/** Takes the token out of the address (`/#token=…`, and `&job=…` if a job is to be shown), so that it is neither seen nor kept in the history. */
function takeToken() {
  const named = new URLSearchParams(location.hash.slice(1)), token = named.get("token"), job = named.get("job");
  if (token) {
    keepToken(token);
    history.replaceState(null, "", job ? `#/jobs/${encodeURIComponent(job)}` : location.pathname);
  }
}

/** @param {string} token */
export const keepToken = (token) => sessionStorage.setItem(KEY, token.trim());
export const forgetToken = () => sessionStorage.removeItem(KEY);
export const hasToken = () => Boolean(frozen || sessionStorage.getItem(KEY));

takeToken();
// Also where the page is open already. No other listener comes before this one: what views read is the address without the token.
addEventListener("hashchange", takeToken);

/**
 * @param {string} path below /v1
 * @param {RequestInit & {headers?: Record<string, string>}} [options]
 * @returns {Promise<Response>} raises Refused
 */
async function ask(path, options = {}) {
  if (frozen) {
    if (!(path in frozen.answers)) throw new Refused(404, "a report holds its own jobs only");
    return new Response(frozen.answers[path]);
  }
  const headers = { ...options.headers, Authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  const answer = await fetch(`/v1${path}`, { ...options, headers });
  const ahead = Date.parse(answer.headers.get("Date") || "") - Date.now();
  if (Math.abs(ahead - aheadMs) > CLOCK_MS) aheadMs = Math.abs(ahead) > CLOCK_MS ? ahead : 0;
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, problem.detail || `status ${answer.status}`, problem);
  }
  return answer;
}

/** Hands on the text of an answer as it comes, until it ends. @param {Response} answer @param {(text: string) => void} onText */
async function readText(answer, onText) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onText(value);
  }
}

/**
 * Says something to the service.
 * @param {string} path below /v1
 * @param {any} body
 * @param {{method?: string, headers?: Record<string, string>, signal?: AbortSignal}} [options] POST where no method is named
 * @returns {Promise<any>} what it answers; raises Refused
 */
export async function post(path, body, options = {}) {
  const headers = { ...options.headers, "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", ...options, headers, body: JSON.stringify(body) })).json();
}

/** The path of a job. @param {string} name @param {string} [part] */
export const jobPath = (name, part = "") => `/jobs/${encodeURIComponent(name)}${part}`;
/** How a job stands. @param {string} name @returns {Promise<any>} */
export const oneJob = async (name) => (await ask(jobPath(name))).json();
/** How a job came to stand as it does. @param {string} name @returns {Promise<any>} */
export const jobHistory = async (name) => (await ask(jobPath(name, "/history"))).json();
/** What a job runs, without secrets. @param {string} name @returns {Promise<any>} */
export const jobProgram = async (name) => (await ask(jobPath(name, "/program"))).json();
/** What happened to a job and why, oldest first, and the decisive event. @param {string} name @param {number} last how many @returns {Promise<any>} */
export const reasons = async (name, last) => (await ask(jobPath(name, `/why?last=${last}`))).json();

/** The end of what a job that has ended wrote. @param {string} name @param {string} stream */
export const endOfLog = async (name, stream) => (await ask(jobPath(name, `/logs?${frozen ? "follow=true&" : ""}stream=${stream}`), { headers: { Range: "bytes=-65536" } })).text();

/**
 * What a job has written, and what it writes, until it has ended.
 * @param {string} name @param {string} stream @param {(text: string) => void} onText @param {AbortSignal} signal @param {string} [since] only what it has written from then on
 */
export async function followLog(name, stream, onText, signal, since) {
  await readText(await ask(jobPath(name, `/logs?follow=true&stream=${stream}${since ? `&since=${encodeURIComponent(since)}` : ""}`), { signal }), onText);
}

/** @returns {Promise<any>} */
export const cluster = async () => (await ask("/cluster")).json();
/** Who held how many cores, and what is planned. @param {string} hours how far back @param {string} node on this node; empty: on all @returns {Promise<any>} */
export const budget = async (hours, node) => (await ask(`/budget/history?hours=${hours}${node && `&node=${encodeURIComponent(node)}`}`)).json();
/** @returns {Promise<{name: string, summary: string, active: boolean}[]>} the policies that can be chosen */
export const policies = async () => (await (await ask("/policies")).json()).policies;
/** @returns {Promise<{caller: string, role: string, takesJobs: boolean}>} who asks */
export const health = async () => (await ask("/health")).json();

/** @returns {Promise<any[]>} all jobs, page after page */
export async function allJobs() {
  const jobs = [];
  let cursor = "";
  do {
    const page = await (await ask(`/jobs?limit=500${cursor && `&cursor=${encodeURIComponent(cursor)}`}`)).json();
    jobs.push(...page.jobs);
    cursor = page.nextCursor || "";
  } while (cursor);
  return jobs;
}

/** Events that are told of at once; what else changes, progress and usage above all, is seen at the next look. */
const KINDS = [
  "JobSubmitted", "JobStarted", "JobFinished", "JobFailed", "RejectJob", "SpecChanged", "StopRequested", "PauseRequested",
  "ResumeRequested", "PolicyChanged", "SteeringResumed", "NodeJoined", "NodeLost",
];

/**
 * Follows the events until the stream ends.
 * @param {string} after number of the last event that was heard; empty: from now on
 * @param {(id: string) => void} onHeard for each piece that came; id is empty where it was only a sign of life
 * @param {AbortSignal} signal
 */
export async function follow(after, onHeard, signal) {
  const answer = await ask(`/events?kind=${KINDS.join("&kind=")}`, { headers: after ? { "Last-Event-ID": after } : {}, signal });
  let rest = "";
  await readText(answer, (text) => {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop() || "";
    for (const block of blocks) onHeard(/^id: (\d+)$/m.exec(block)?.[1] || "");
  });
}
