/* Fields for numbers, which only tell of numbers that may be. */

import { h } from "heedful/elements.js";

/** A labelled number from `low` to `high` in steps; `pick(number)` hears of it when it has been changed. */
export function numberField({ label, name, value, low, high, step = 1, pick }) {
  const input = h("input", { type: "number", name, min: low, max: high, step, value, data: { focus: name } });
  input.addEventListener("change", () => {
    const asked = Number(input.value);
    const near = Math.round((Number.isFinite(asked) ? asked : low) / step) * step;
    const kept = Number(Math.max(low, Math.min(high, near)).toFixed(6));
    input.value = kept;
    pick(kept);
  });
  return h("label", { class: "field" }, h("span", {}, label), input);
}
