// Which view the address names: `#/` all jobs, `#/jobs/NAME` one, `#/budget`, `#/submit`. A view is an element with `data-view`.

/** @type {Map<string, () => void>} */
const entered = new Map();
let isOpen = false;

/** @returns {string[]} the parts of the address behind `#/` */
export const place = () => (location.hash.startsWith("#/") ? location.hash.slice(2).split("/").map(decodeURIComponent) : [""]);

/** @param {string} name of the view @param {() => void} enter is called whenever the view comes to be seen */
export const onView = (name, enter) => entered.set(name, enter);

/** Shows the view that the address names. @param {boolean} mayShow whether the service lets the reader in */
export function openViews(mayShow) {
  if (mayShow === isOpen) return;
  isOpen = mayShow;
  show();
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
  if (isOpen) entered.get(named)?.();
}

addEventListener("hashchange", () => {
  show();
  const title = /** @type {HTMLElement | null} */ (document.querySelector("[data-view]:not([hidden]) h2"));
  title?.focus();
});
