// What if another policy made the plans: when each job would end, beside the policy that there is. It changes nothing.
import { health, policies, post, Refused } from "./service.js";
import { at, clock, counted, element, icon, jobLink, offer, span } from "./texts.js";
import { onView } from "./views.js";

/** Ends that lie nearer than this are called the same, in seconds. */
const SAME_S = 1;

/** @typedef {{state: string, verdict: string | null, landed: string | null, cause: string, unknown: string}} Outcome */
/** @typedef {{job: string, deadline: string | null, today: Outcome, other: Outcome}} JobOutlook */

/** What is drawn and said of a verdict. @type {Record<string, [string, string]>} */
const VERDICTS = { met: ["good", "met"], missed: ["late", "missed"], on_track: ["good", "on track"], at_risk: ["risk", "at risk"], infeasible: ["late", "will be late"] };

/** A job that only waited has no end there; it is said why it waits. @param {Outcome} outcome */
const end = (outcome) => (outcome.landed ? clock(outcome.landed) : outcome.unknown || `${outcome.state}: ${outcome.cause}`);

/** How much later the job lands under the other policy. @param {JobOutlook} job */
function later(job) {
  if (!job.today.landed || !job.other.landed) return job.today.landed ? "does not land any more" : job.other.landed ? "lands" : "not known";
  const seconds = (Date.parse(job.other.landed) - Date.parse(job.today.landed)) / 1000;
  if (Math.abs(seconds) < SAME_S) return "the same";
  return `${span(seconds)} ${seconds > 0 ? "later" : "earlier"}`;
}

/** @param {JobOutlook} job */
function row(job) {
  const made = element("tr"), head = element("th");
  /** @type {HTMLTableCellElement} */ (head).scope = "row";
  head.append(jobLink(job.job));
  made.append(head, element("td", job.deadline ? clock(job.deadline) : "none"), element("td", end(job.today)), verdict(job.today), element("td", end(job.other)), verdict(job.other), element("td", later(job)));
  return made;
}

/** @param {Outcome} outcome @param {string} [tag] */
function verdict({ verdict }, tag = "td") {
  const [sign, text] = VERDICTS[verdict || ""] || ["", ""], made = element(tag, "", `verdict ${sign}`);
  if (sign) made.append(icon(sign), text);
  return made;
}

/** A change of a verdict, in a line. @param {JobOutlook} job */
function changed(job) {
  const made = element("p");
  made.append(jobLink(job.job), ": ", verdict(job.today, "span"), " → ", verdict(job.other, "span"), ` (${later(job)})`);
  return made;
}

/** How many deadlines are met. @param {JobOutlook[]} jobs @param {"today" | "other"} which */
const met = (jobs, which) => jobs.filter((job) => job.deadline && job[which].verdict === "met").length;

/** What the policies do, by name. @type {Map<string, string>} */
let summaries = new Map();
/** A policy, and in a clause what it does. @param {string} name @param {string} when */
const explained = (name, when) => element("p", `${name}, ${when}: ${summaries.get(name) || "not described"}`, "soft");

/** @param {{policy: string, other: string, since: string, jobs: JobOutlook[]}} answer */
function show(answer) {
  const { jobs, policy, other } = answer, nDue = jobs.filter((job) => job.deadline).length, differ = jobs.filter((job) => job.today.verdict !== job.other.verdict);
  at("what-if-result").hidden = at("what-if-rest").hidden = !jobs.length;
  at("what-if-today").textContent = `Under ${policy}, as today`;
  at("what-if-other").textContent = `Under ${other}`;
  at("what-if-jobs").replaceChildren(...jobs.map(row));
  at("what-if-rest").firstElementChild.textContent = `All ends, of ${counted(jobs.length, "job")}`;
  const [today, then] = [met(jobs, "today"), met(jobs, "other")], verdicts = differ.length ? `${counted(differ.length, "deadline changes its verdict", "deadlines change their verdict")}.` : "No deadline changes its verdict.";
  at("what-if-changes").replaceChildren(...(jobs.length ? [explained(policy, "as today"), explained(other, "in its place"), element("h3", verdicts), ...differ.map(changed)] : []));
  at("what-if-said").textContent = jobs.length
    ? `${today === then ? "Neither is better" : `${today > then ? policy : other} is better`}: of ${counted(nDue, "deadline")}, ${today} would be met under ${policy} and ${then} under ${other}. Simulated from ${clock(answer.since)} on, as if no other job came. Nothing was changed.`
    : "No job runs or waits, so there is nothing to simulate. Submit one first.";
}

/** @param {Event} event */
async function ask(event) {
  event.preventDefault();
  const button = at("what-if-ask");
  at("what-if-changes").replaceChildren();
  at("what-if-rest").hidden = true;
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
  summaries = new Map(known.map(({ name, summary }) => [name, summary]));
  if (at("what-if-policy").options.length) return;
  const today = known.find(({ active }) => active)?.name;
  offer(at("what-if-policy"), known.map(({ name }) => name), (name) => (name === today ? `${name} (as today)` : name));
  at("what-if-policy").value = known.find(({ active }) => !active)?.name;
  explain();
}

function explain() {
  at("what-if-summary").textContent = summaries.get(at("what-if-policy").value) || "";
}

at("what-if-form").addEventListener("submit", ask);
at("what-if-policy").addEventListener("input", explain);
onView("what-if", enter);
