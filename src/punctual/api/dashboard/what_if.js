// What if another policy made the plans: when each job would end, beside the policy that there is. It changes nothing.
import { health, policies, post, Refused } from "./service.js";
import { at, clock, element, VERDICTS } from "./texts.js";
import { onView } from "./views.js";

/** Ends that lie nearer than this are called the same, in seconds. */
const SAME_S = 1;

/** @typedef {{state: string, verdict: string | null, landed: string | null, cause: string, unknown: string}} Outcome */
/** @typedef {{job: string, deadline: string | null, today: Outcome, other: Outcome}} JobOutlook */

/** @param {Outcome} outcome */
const end = (outcome) => outcome.unknown || (outcome.landed ? clock(outcome.landed) : `${outcome.state}: ${outcome.cause}`);

/** How much later the job lands under the other policy. @param {JobOutlook} job */
function later(job) {
  if (!job.today.landed || !job.other.landed) return "–";
  const seconds = (Date.parse(job.other.landed) - Date.parse(job.today.landed)) / 1000;
  if (Math.abs(seconds) < SAME_S) return "the same";
  return `${Math.round(Math.abs(seconds))} s ${seconds > 0 ? "later" : "earlier"}`;
}

/** @param {JobOutlook} job */
function row(job) {
  const made = element("tr"), head = element("th"), link = /** @type {HTMLAnchorElement} */ (element("a", job.job));
  link.href = `#/jobs/${encodeURIComponent(job.job)}`;
  /** @type {HTMLTableCellElement} */ (head).scope = "row";
  head.append(link);
  const verdict = (/** @type {Outcome} */ outcome) => element("td", VERDICTS[outcome.verdict || ""] || "–", outcome.verdict || "");
  made.append(head, element("td", clock(job.deadline)), element("td", end(job.today)), verdict(job.today), element("td", end(job.other)), verdict(job.other), element("td", later(job)));
  return made;
}

/** How many deadlines are met. @param {JobOutlook[]} jobs @param {"today" | "other"} which @param {string} policy */
const met = (jobs, which, policy) => `${jobs.filter((job) => job[which].verdict === "met").length} under ${policy}`;

/** @param {{policy: string, other: string, since: string, jobs: JobOutlook[]}} answer */
function show(answer) {
  const { jobs, policy, other } = answer, nDue = jobs.filter((job) => job.deadline).length;
  at("what-if-result").hidden = !jobs.length;
  at("what-if-today").textContent = `Under ${policy}, as today`;
  at("what-if-other").textContent = `Under ${other}`;
  at("what-if-jobs").replaceChildren(...jobs.map(row));
  at("what-if-said").textContent = jobs.length
    ? `Simulated from ${clock(answer.since)} on, as if no other job came. Of ${nDue} ${nDue === 1 ? "deadline" : "deadlines"}, ${met(jobs, "today", policy)} and ${met(jobs, "other", other)} would be met. Nothing was changed.`
    : "No job runs or waits, so there is nothing to simulate. Submit one first.";
}

/** @param {Event} event */
async function ask(event) {
  event.preventDefault();
  const button = at("what-if-ask");
  [button.disabled, at("what-if-fault").textContent, at("what-if-said").textContent] = [true, "", "It is simulated; this takes some seconds."];
  try {
    show(await post("/what-if", { policy: { name: at("what-if-policy").value } }));
  } catch (error) {
    const isBusy = error instanceof Refused && error.status === 429;
    const told = error instanceof Refused ? error.message : "the service does not answer";
    at("what-if-said").textContent = "";
    at("what-if-fault").textContent = `There is no answer: ${told}. ${isBusy ? "Ask again in some seconds." : "Try again later."}`;
  } finally {
    button.disabled = false;
  }
}

async function enter() {
  const [{ role }, known] = await Promise.all([health(), policies()]);
  [at("what-if-reads-only").hidden, at("what-if-form").hidden] = [role !== "viewer", role === "viewer"];
  if (at("what-if-policy").options.length) return;
  at("what-if-policy").replaceChildren(...known.map(({ name, active }) => {
    const option = /** @type {HTMLOptionElement} */ (element("option", active ? `${name} (as today)` : name));
    option.value = name;
    return option;
  }));
  at("what-if-policy").value = known.find(({ active }) => !active)?.name;
  explain();
}

async function explain() {
  const chosen = (await policies()).find(({ name }) => name === at("what-if-policy").value);
  at("what-if-summary").textContent = chosen?.summary || "";
}

at("what-if-form").addEventListener("submit", ask);
at("what-if-policy").addEventListener("input", explain);
onView("what-if", enter);
