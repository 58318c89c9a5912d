/* Weights of patches over the picture they are of: what is looked at glows, the rest is dimmed. The same in both
themes, since it lies on a picture and not on the page. */

import { h, s } from "heedful/elements.js";
import { percent } from "heedful/numbers.js";

const GLOW = [255, 150, 40];
const DIM = 0.5;
const BRIGHT = 0.62;
const TALLEST = 420;
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** An element with the picture `image` (a data URI) and weights (rows x columns), with a cursor that reads them out.

describe(row, column, weight)   what the cursor says */
export function patches({ image, weights, grid: [rows, columns], width, label, describe }) {
  const high = Math.max(...weights, 1e-9);
  const cell = Math.max(4, Math.floor(Math.min(width / columns, TALLEST / rows)));
  const size = { width: cell * columns, height: cell * rows };
  const place = (at) => ({ row: Math.floor(at / columns), column: at % columns });
  const mark = s("rect", { class: "patch-mark", width: cell, height: cell, visibility: "hidden" });
  const readout = h("p", { class: "readout unsaved", aria: { live: "polite" } }, "\u00a0");
  const svg = s("svg", {
    class: "patches",
    ...size,
    viewBox: `0 0 ${size.width} ${size.height}`,
    role: "img",
    tabindex: "0",
    "shape-rendering": "crispEdges",
    aria: { label },
    onpointerleave: () => move(null),
    onkeydown: onKey,
  }, s("image", { href: image, ...size, preserveAspectRatio: "none", "image-rendering": "pixelated" }),
  Array.from(weights, patch), mark);
  let cursor = null;

  function patch(weight, at) {
    const { row, column } = place(at);
    const part = weight / high;
    return s("rect", {
      class: "patch",
      x: column * cell,
      y: row * cell,
      width: cell,
      height: cell,
      fill: `rgb(${GLOW.map((one) => Math.round(one * part)).join(" ")})`,
      "fill-opacity": (DIM + (BRIGHT - DIM) * part).toFixed(3),
      data: { row, column, weight },
      onpointerenter: () => move(at),
    });
  }

  function move(next) {
    cursor = next;
    mark.setAttribute("visibility", cursor === null ? "hidden" : "visible");
    if (cursor === null) {
      readout.textContent = "\u00a0";
      return;
    }
    const { row, column } = place(cursor);
    readout.textContent = describe(row, column, percent(weights[cursor]));
    mark.setAttribute("x", column * cell);
    mark.setAttribute("y", row * cell);
  }

  function onKey(event) {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const from = cursor === null ? { row: -step[0], column: -step[1] } : place(cursor);
    const row = Math.max(0, Math.min(rows - 1, from.row + step[0]));
    move(row * columns + Math.max(0, Math.min(columns - 1, from.column + step[1])));
  }

  return h("div", {}, svg, readout);
}
