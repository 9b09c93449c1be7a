// Which view the address names: `#/` all jobs, `#/jobs/NAME` one, `#/budget`, `#/submit`, `#/what-if`. A view is an element with `data-view`.

/** @typedef {() => void | Promise<void>} Enter */

/** @type {Map<string, Enter>} */
const entered = new Map();
let isOpen = false;
/** The view that had no answer to what it asked when it came to be seen; null: there is none. @type {string | null} */
let unanswered = null;

/** Decode a part of the address; return it unchanged if it is badly encoded. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {string[]} the parts of the address behind `#/` */
export const place = () => (location.hash.startsWith("#/") ? location.hash.slice(2).split("/").map(decoded) : [""]);

/** @param {string} name of the view @param {Enter} enter is called whenever the view comes to be seen, and again if it fails */
export const onView = (name, enter) => entered.set(name, enter);

/** Shows the view that the address names. @param {boolean} mayShow whether the service lets the reader in */
export function openViews(mayShow) {
  if (mayShow && unanswered !== null) enter(unanswered); // the service answers again
  if (mayShow === isOpen) return;
  isOpen = mayShow;
  show();
}

/** @param {string} name */
function enter(name) {
  unanswered = null;
  entered.get(name)?.()?.catch(() => { unanswered = name; });
}

function show() {
  const views = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-view]")]);
  const named = views.some((view) => view.dataset.view === place()[0]) ? place()[0] : "";
  for (const view of views) view.hidden = !isOpen || view.dataset.view !== named;
  /** @type {HTMLElement} */ (document.querySelector("nav")).hidden = !isOpen;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${named}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (isOpen) enter(named);
}

addEventListener("hashchange", () => {
  show();
  const title = /** @type {HTMLElement | null} */ (document.querySelector("[data-view]:not([hidden]) h2"));
  title?.focus();
});
