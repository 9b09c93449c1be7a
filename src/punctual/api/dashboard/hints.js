// What is said whole of an element with `data-whole`: under the pointer, and when it has the focus; Escape hides it.
import { at } from "./texts.js";

/** @param {Event} event */
function show(event) {
  const target = /** @type {HTMLElement} */ (event.target), about = target.closest?.("[data-whole]"), hint = at("whole");
  const text = about?.getAttribute("data-whole") || "";
  hint.hidden = !text;
  if (!about || !text) return;
  hint.textContent = text;
  const box = about.getBoundingClientRect(), own = hint.getBoundingClientRect(), isBelow = box.bottom + own.height + 8 < innerHeight;
  hint.style.left = `${Math.max(8, Math.min(innerWidth - own.width - 8, box.left))}px`;
  hint.style.top = `${isBelow ? box.bottom + 4 : Math.max(4, box.top - own.height - 4)}px`;
}
const hide = () => { at("whole").hidden = true; };

for (const name of ["pointerover", "focusin"]) document.addEventListener(name, show);
for (const name of ["focusout", "scroll", "hashchange"]) addEventListener(name, hide, true);
addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
