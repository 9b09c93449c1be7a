// Another run of the same program, to be seen beside the one that is shown.
import { allJobs, jobHistory, oneJob } from "./service.js";
import { at, offer } from "./texts.js";

/** The one that was chosen, and its course; null: none. @type {{job: any, told: any, byProgress: boolean} | null} */
let other = null;
let job = "", onChange = () => {};

export const chosenOther = () => other;

/** The words up to the script or module; what follows may differ from run to run. @param {string[]} program */
function script(program) {
  const place = program.findIndex((word, i) => i > 0 && !word.startsWith("-"));
  return JSON.stringify(place < 0 ? program : program.slice(0, place + 1));
}

/** Lets one be chosen of the runs of its program. @param {string} name of the job that is shown @param {() => void} changed is called when it was */
export async function offerOthers(name, changed) {
  [job, onChange, other] = [name, changed, null];
  at("compare").hidden = at("compare-how").hidden = true;
  const jobs = await allJobs().catch(() => []), own = jobs.find((each) => each.name === name);
  if (job !== name || !own) return;
  const same = jobs.filter((each) => each.name !== name && script(each.program) === script(own.program)).reverse();
  at("compare").hidden = false;
  at("compare-none").hidden = same.length > 0;
  at("compare-with").parentElement.hidden = !same.length;
  offer(at("compare-with"), ["", ...same.map((each) => each.name)], (each) => each || "none");
}

async function choose() {
  const [name, chosen, byProgress] = [job, at("compare-with").value, at("compare-by").value === "progress"];
  const found = chosen ? await Promise.all([oneJob(chosen), jobHistory(chosen)]).catch(() => null) : null;
  if (job !== name || at("compare-with").value !== chosen) return; // something else was chosen meanwhile
  other = found && { job: found[0], told: found[1], byProgress };
  at("compare-how").hidden = !other;
  onChange();
}

for (const id of ["compare-with", "compare-by"]) at(id).addEventListener("input", choose);
