/* Weights of patches over the picture they are of: what is looked at glows, the rest is dimmed. The same in both themes,
since it lies on a picture and not on the page. */

import { h, s } from "heedful/elements.js";
import { percent } from "heedful/numbers.js";

const GLOW = [255, 150, 40];
const DIM = 0.5;
const BRIGHT = 0.62;

/** An element with the picture `image` (a data URI) and weights (rows x columns), with a cursor that reads them out. */
export function patches({ image, weights, grid: [rows, columns], width, label, describe }) {
  const high = Math.max(...weights, 1e-9);
  const cell = Math.max(4, Math.floor(Math.min(width / columns, 420 / rows)));
  const [wide, tall] = [cell * columns, cell * rows];
  const cells = Array.from(weights, (weight, i) => s("rect", {
    class: "patch", x: (i % columns) * cell, y: Math.floor(i / columns) * cell, width: cell, height: cell,
    fill: `rgb(${GLOW.map((part) => Math.round((part * weight) / high)).join(" ")})`,
    "fill-opacity": (DIM + ((BRIGHT - DIM) * weight) / high).toFixed(3), data: { row: Math.floor(i / columns), column: i % columns, weight },
    onpointerenter: () => move(i),
  }));
  const mark = s("rect", { class: "patch-mark", width: cell, height: cell, visibility: "hidden" });
  const svg = s("svg", { class: "patches", width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", tabindex: "0", "shape-rendering": "crispEdges",
                         aria: { label }, onpointerleave: () => move(null), onkeydown: onKey },
    s("image", { href: image, width: wide, height: tall, preserveAspectRatio: "none", "image-rendering": "pixelated" }),
    cells, mark);
  const readout = h("p", { class: "readout unsaved", aria: { live: "polite" } }, "\u00a0");
  let at = null;

  function move(next) {
    at = next;
    mark.setAttribute("visibility", at === null ? "hidden" : "visible");
    readout.textContent = at === null ? "\u00a0" : describe(Math.floor(at / columns), at % columns, percent(weights[at]));
    if (at === null) return;
    mark.setAttribute("x", (at % columns) * cell);
    mark.setAttribute("y", Math.floor(at / columns) * cell);
  }

  function onKey(event) {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    if (at === null) move(0);
    else {
      const row = Math.max(0, Math.min(rows - 1, Math.floor(at / columns) + down));
      move(row * columns + Math.max(0, Math.min(columns - 1, (at % columns) + right)));
    }
  }

  return h("div", { class: "patches-frame" }, svg, readout);
}
