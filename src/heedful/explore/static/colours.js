/* Colour maps of pictures. Lightness alone carries the value and blue-green stands against orange, so that they can
be read by the colour-blind and in print. */

import { isDark } from "heedful/theme.js";

const LIGHT = [[255, 255, 255], [206, 231, 231], [128, 190, 194], [38, 132, 141], [4, 52, 60]];
const DARK = [[21, 26, 29], [20, 62, 69], [22, 113, 122], [86, 184, 190], [214, 247, 247]];
const LIGHT_SIGNED = [
  [133, 55, 8], [214, 132, 73], [244, 205, 176], [250, 250, 249], [165, 212, 214], [48, 140, 149], [3, 68, 78],
];
const DARK_SIGNED = [
  [255, 190, 140], [201, 112, 52], [92, 52, 28], [24, 29, 32], [16, 66, 73], [40, 146, 155], [176, 238, 240],
];

/** 256 colours [r, g, b] for values from 0 to 1. */
export function sequential() {
  return table(isDark() ? DARK : LIGHT);
}

/** 256 colours for values from -1 to 1. */
export function diverging() {
  return table(isDark() ? DARK_SIGNED : LIGHT_SIGNED);
}

/** `rgb(…)` for a value from 0 to 1 of a table. */
export function css(colours, value) {
  return `rgb(${colours[index(value)].join(" ")})`;
}

/** Colour values (rows x columns) onto a canvas that is one pixel a value. `low` and `high` get the ends' colours. */
export function paint(values, rows, columns, colours, low, high) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const scale = high > low ? 1 / (high - low) : 0;
  for (let i = 0; i < rows * columns; i++) {
    const colour = colours[index((values[i] - low) * scale)];
    for (let part = 0; part < 3; part++) image.data[4 * i + part] = colour[part];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function index(value) {
  return Math.max(0, Math.min(255, Math.round(value * 255)));
}

const tables = new Map();

function table(stops) {
  if (!tables.has(stops)) {
    tables.set(stops, Array.from({ length: 256 }, (_, i) => {
      const at = (i / 255) * (stops.length - 1);
      const below = Math.min(Math.floor(at), stops.length - 2);
      return stops[below].map((part, c) => Math.round(part + (stops[below + 1][c] - part) * (at - below)));
    }));
  }
  return tables.get(stops);
}
