/* Words with their shares as bars, the largest as long as there is room. */

import { h } from "heedful/elements.js";
import { percent } from "heedful/numbers.js";

/** A list of bars; items are {name: text or element, share, class, data}. */
export function bars(items) {
  const highest = Math.max(...items.map((item) => item.share), 1e-9);
  return h("ol", { class: "bars" }, items.map((item) =>
    h("li", { class: item.class, data: item.data },
      typeof item.name === "string" ? h("span", { class: "bar-name" }, item.name) : item.name,
      track(item.share / highest),
      h("span", { class: "bar-number" }, percent(item.share)))));
}

/** A bar alone, filled to a part between 0 and 1. */
export function track(part, changed = false) {
  const fill = h("span", { class: changed ? "bar-fill changed" : "bar-fill", style: { width: `${part * 100}%` } });
  return h("span", { class: "bar-track" }, fill);
}
