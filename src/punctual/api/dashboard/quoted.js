// A quote: when it is asked for, and in words, for every view that shows one.
import { amount, clock, element } from "./texts.js";

/** Time without a key before a quote is asked for. */
const PAUSE_MS = 300;

/**
 * Asks for a quote once nothing was typed for a moment; of several answers only the last one counts.
 * @template Question
 * @param {(question: Question, signal: AbortSignal) => Promise<any>} ask
 * @param {(answer: any) => void} onAnswer
 * @param {(error: unknown) => void} onError
 */
export function quotesAfterPause(ask, onAnswer, onError) {
  let latest = new AbortController(), timer = 0;
  const forget = () => {
    clearTimeout(timer);
    latest.abort();
  };
  /** @param {Question} question */
  const put = async (question) => {
    const own = (latest = new AbortController());
    try {
      const answer = await ask(question, own.signal);
      if (!own.signal.aborted) onAnswer(answer);
    } catch (error) {
      if (!own.signal.aborted) onError(error);
    }
  };
  /** @param {Question} question */
  const askSoon = (question) => {
    forget();
    timer = setTimeout(() => put(question), PAUSE_MS);
  };
  return { askSoon, forget };
}

/** @param {any} finish */
const landing = (finish) => `${clock(finish.finish)} (${clock(finish.low)} to ${clock(finish.high)})`;
/** @param {any} finish */
const size = (finish) => (finish.workers === null ? `${amount(finish.cores)} cores` : `${finish.workers} workers`);

/** @param {any} hurt */
function harm(hurt) {
  const lost = hurt.promisedUntil === null ? "" : ` loses its promise until ${clock(hurt.promisedUntil)},`;
  const later = hurt.laterSeconds === null ? "" : `, and lands ${Math.round(hurt.laterSeconds)} s later`;
  return `${hurt.job}${lost} would have ${amount(hurt.coresAfter)} cores in place of ${amount(hurt.coresBefore)}${later}`;
}

/**
 * What a quote says.
 * @param {any} quote
 * @param {(deadline: string) => void} onTake is called with the earliest deadline that can be promised, as a duration from now
 * @returns {HTMLElement[]}
 */
export function shown(quote, onTake) {
  const [mark, look] = quote.canBePromised === null || !quote.promises ? ["", ""] : quote.canBePromised ? ["✓ ", "met"] : ["✗ ", "missed"];
  const parts = [element("p", mark + quote.reason.text[0].toUpperCase() + quote.reason.text.slice(1), look)];
  if (quote.earliest !== null) {
    const earliest = element("p", `Earliest deadline that can be promised: ${clock(quote.earliest)} `), take = element("button", "Take it");
    const left = `${Math.ceil((Date.parse(quote.earliest) - Date.now()) / 1000) + 1}s`;
    /** @type {HTMLButtonElement} */ (take).type = "button";
    take.addEventListener("click", () => onTake(left));
    parts.push(earliest);
    earliest.append(take);
  }
  if (quote.expected) parts.push(element("p", `Expected: ${landing(quote.expected)}, with ${size(quote.expected)} from now on`));
  for (const [title, lines] of [
    ["When it would land", quote.finishes.map((/** @type {any} */ finish) => `with ${size(finish)}: ${landing(finish)}`)],
    ["Who would have less", quote.hurt.map(harm)],
  ]) if (lines.length) {
    const list = element("ul");
    list.append(...lines.map((/** @type {string} */ text) => element("li", text)));
    parts.push(element("h4", title), list);
  }
  return parts;
}
