/* All heads of a model at once: a thumbnail for each, layers downwards and heads across. */

import { paint, sequential } from "heedful/colours.js";
import { h, walkable } from "heedful/elements.js";
import { t } from "heedful/words.js";

/** A grid of buttons; `thumbnails` are {shape (L, H, rows, columns), values 0 to 255}. */
export function headGrid({ thumbnails, chosen, pick }) {
  const [layers, heads, rows, columns] = thumbnails.shape;
  const colours = sequential();
  const size = rows * columns;
  const grid = h("div", { class: "head-grid", role: "group", aria: { label: t("attention.grid") },
                          style: { gridTemplateColumns: `auto repeat(${heads}, minmax(14px, ${heads > 8 ? 3.1 : heads > 4 ? 4.5 : 6.5}rem))` } });
  grid.append(h("span", { class: "corner" }), ...range(heads).map((head) => h("span", { class: "axis" }, String(head + 1))));
  for (const layer of range(layers)) {
    grid.append(h("span", { class: "axis" }, String(layer + 1)));
    for (const head of range(heads)) {
      const at = (layer * heads + head) * size;
      const image = paint(thumbnails.values.subarray(at, at + size), rows, columns, colours, 0, 255);
      const here = layer === chosen.layer && (head === chosen.head || typeof chosen.head === "string");
      const title = t("attention.place", { layer: layer + 1, head: head + 1 });
      grid.append(h("button", { type: "button", class: "thumbnail", title, tabindex: "-1", data: { saved: "", layer, head,
        focus: `head-${layer}-${head}` }, aria: { label: title, pressed: String(here) }, onclick: () => pick(layer, head) },
      image));
    }
  }
  walkable(grid, ".thumbnail", () => heads)();
  return grid;
}

function range(count) {
  return Array.from({ length: count }, (_, i) => i);
}
