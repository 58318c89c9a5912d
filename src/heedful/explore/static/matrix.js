/* A matrix of numbers as a picture on a canvas, up to thousands of cells a side, with a cursor that reads it out.

Knows rows, columns and their names; nothing of what the numbers mean. */

import { diverging, paint, sequential } from "heedful/colours.js";
import { h } from "heedful/elements.js";
import { extent, plain } from "heedful/numbers.js";
import { colour } from "heedful/theme.js";

const LARGEST = 26;
const READABLE = 11;
const LONGEST_NAME = 92;
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** An element that shows values (rows x columns, row-major).

rowNames, columnNames   what the axes say where cells are large enough, and what the cursor reads out
signed                  whether zero stands in the middle of the colours
tall                    height of a cell where it is not to be square
highest                 what has the last colour, or else the largest value
describe(row, column, value)   what the cursor reads out
pick(row, column)       what a click or Enter does; chosen: the row that is marked */
export function matrix({
  values, rows, columns, rowNames, columnNames, signed = false, tall = null, highest = null, label, width, describe,
  pick, chosen = null,
}) {
  const high = highest ?? extent(values);
  const colours = signed ? diverging() : sequential();
  const image = paint(values, rows, columns, colours, signed ? -high : 0, high);
  const reachable = { tabindex: "0", role: "img", data: { focus: label }, aria: { label } };
  const canvas = h("canvas", { class: "matrix", ...reachable });
  const readout = h("p", { class: "readout unsaved", aria: { live: "polite" } }, "\u00a0");
  const element = h("div", { class: "matrix-frame" }, h("div", { class: "scroll" }, canvas), readout,
    scaleBar(colours, signed ? -high : 0, high));
  let cursor = null;

  const context = canvas.getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  const layout = measure(context, family, { rows, columns, rowNames, columnNames, width, tall });
  const sharp = window.devicePixelRatio || 1;
  canvas.width = Math.ceil(layout.width * sharp);
  canvas.height = Math.ceil(layout.height * sharp);
  canvas.style.width = `${layout.width}px`;
  canvas.style.height = `${layout.height}px`;
  context.scale(sharp, sharp);

  function draw() {
    const { left, top, across, down } = layout;
    context.clearRect(0, 0, layout.width, layout.height);
    context.imageSmoothingEnabled = across < 1 || down < 1;
    context.drawImage(image, left, top, across * columns, down * rows);
    context.strokeStyle = colour("line");
    context.strokeRect(left + 0.5, top + 0.5, across * columns - 1, down * rows - 1);
    names();
    if (chosen !== null) mark(0, chosen, columns, 1, colour("accent"));
    if (cursor) mark(cursor.column, cursor.row, 1, 1, colour("ink"));
  }

  function mark(column, row, wide, high, ink) {
    const { left, top, across, down } = layout;
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    const [x, y] = [left + column * across, top + row * down];
    context.strokeRect(x, y, Math.max(3, wide * across), Math.max(3, high * down));
    context.lineWidth = 1;
  }

  function names() {
    const { left, top, across, down, size } = layout;
    context.font = `${size}px ${family}`;
    context.textBaseline = "middle";
    if (layout.namedRows) {
      context.textAlign = "right";
      rowNames.forEach((name, row) => {
        context.fillStyle = row === cursor?.row || row === chosen ? colour("accent") : colour("soft");
        context.fillText(name, left - 6, top + (row + 0.5) * down, LONGEST_NAME);
      });
    }
    if (layout.namedColumns) {
      context.textAlign = "left";
      columnNames.forEach((name, column) => {
        context.save();
        context.translate(left + (column + 0.5) * across, top - 6);
        context.rotate(-Math.PI / 2);
        context.fillStyle = column === cursor?.column ? colour("accent") : colour("soft");
        context.fillText(name, 0, 0, LONGEST_NAME);
        context.restore();
      });
    }
  }

  function move(next) {
    cursor = next;
    const { row, column } = cursor ?? {};
    readout.textContent = cursor ? describe(row, column, values[row * columns + column]) : "\u00a0";
    draw();
  }

  function under(event) {
    const row = Math.floor((event.offsetY - layout.top) / layout.down);
    const column = Math.floor((event.offsetX - layout.left) / layout.across);
    return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
  }

  canvas.addEventListener("pointermove", (event) => move(under(event)));
  canvas.addEventListener("pointerleave", () => move(null));
  canvas.addEventListener("click", (event) => {
    const at = under(event);
    if (at) pick?.(at.row, at.column);
  });
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = STEPS[event.key] ?? [0, 0];
    if (down || right) {
      const from = cursor ?? { row: chosen ?? 0, column: -right };
      const row = Math.max(0, Math.min(rows - 1, from.row + (cursor ? down : 0)));
      move({ row, column: Math.max(0, Math.min(columns - 1, from.column + right)) });
    } else if (event.key === "Enter" && cursor) pick?.(cursor.row, cursor.column);
    else return;
    event.preventDefault();
  });
  draw();
  return element;
}

/** Sizes of cells and margins, so that the picture fits the width. */
function measure(context, family, { rows, columns, rowNames, columnNames, width, tall }) {
  const size = 12;
  context.font = `${size}px ${family}`;
  const longest = (names) => {
    const widest = names.reduce((most, name) => Math.max(most, context.measureText(name).width), 0);
    return Math.min(LONGEST_NAME, widest) + 8;
  };
  let left = rowNames ? longest(rowNames) : 0;
  let across = fit((width - left) / columns, tall !== null);
  let down = tall ?? across;
  const namedRows = Boolean(rowNames) && down >= READABLE;
  if (!namedRows) {
    left = 0;
    across = fit(width / columns, tall !== null);
    down = tall ?? across;
  }
  const namedColumns = Boolean(columnNames) && across >= READABLE;
  const top = namedColumns ? longest(columnNames) : 0;
  const [right, bottom] = [left + across * columns, top + down * rows];
  return { left, top, across, down, size, namedRows, namedColumns, width: right, height: bottom };
}

/** The width of a cell, in whole pixels where it has to be square. */
function fit(cell, stretched) {
  if (stretched) return Math.min(LARGEST, cell);
  if (cell >= 2) return Math.min(LARGEST, Math.floor(cell));
  return cell >= 1 ? 1 : cell;
}

/** The colours with the numbers at their ends. */
function scaleBar(colours, low, high) {
  const bar = paint(Float32Array.from({ length: 96 }, (_, i) => i / 95), 1, 96, colours, 0, 1);
  bar.className = "scale-bar";
  return h("div", { class: "scale" }, h("span", {}, plain(low, 2)), bar, h("span", {}, plain(high, 2)));
}
