/* All heads of a model at once: a thumbnail for each, layers downwards and heads across. */

import { paint, sequential } from "heedful/colours.js";
import { h, walkable } from "heedful/elements.js";
import { t } from "heedful/words.js";

/** A grid of buttons; `thumbnails` are {shape (L, H, rows, columns), values 0 to 255}.

`chosen` is {layer, head}, where the head may be a word for all of the layer's; what is not `held` can't be chosen. */
export function headGrid({ thumbnails, chosen, pick, held = () => true }) {
  const [layers, heads, rows, columns] = thumbnails.shape;
  const colours = sequential();
  const size = rows * columns;

  function thumbnail(layer, head) {
    const at = (layer * heads + head) * size;
    const title = t("attention.place", { layer: layer + 1, head: head + 1 });
    const pressed = layer === chosen.layer && (head === chosen.head || typeof chosen.head === "string");
    return h("button", {
      type: "button",
      class: "thumbnail",
      title,
      tabindex: "-1",
      disabled: !held(layer, head),
      data: { saved: "", layer, head, focus: `head-${layer}-${head}` },
      aria: { label: title, pressed: String(pressed) },
      onclick: () => pick(layer, head),
    }, paint(thumbnails.values.subarray(at, at + size), rows, columns, colours, 0, 255));
  }

  const widest = heads > 8 ? 3.1 : heads > 4 ? 4.5 : 6.5;
  const grid = h("div", {
    class: "head-grid",
    role: "group",
    aria: { label: t("attention.grid") },
    style: { gridTemplateColumns: `auto repeat(${heads}, minmax(14px, ${widest}rem))` },
  },
  h("span", {}), count(heads).map(axis),
  count(layers).map((layer) => [axis(layer), count(heads).map((head) => thumbnail(layer, head))]));
  walkable(grid, ".thumbnail", () => heads)();
  return grid;
}

function axis(number) {
  return h("span", { class: "axis" }, String(number + 1));
}

function count(many) {
  return Array.from({ length: many }, (_, i) => i);
}
