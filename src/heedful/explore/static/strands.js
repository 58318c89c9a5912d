/* Attention as strands between two columns of words: on the left who looks, on the right what is looked at. */

import { s, walkable } from "heedful/elements.js";
import { kinds, shownText } from "heedful/tokens.js";

const ROW = 24;
const TOP = 14;
const LETTERS = 14;
const LONGEST_NAME = 18;
const MOST = 3000;
const FAINTEST = 0.01;
const FAINTEST_OF_ONE = 0.001;
const FULL = 0.25;

/** An SVG of weights; `element.capped` says whether only the strongest strands are drawn.

weights(row, column)   how much a word looks at another
rows, columns          [{index, text, special, segment}], the words that are shown on either side
chosen                 the index of the word whose strands alone are shown, or null
pick(index or null)    what a click on a word of the left does */
export function strands({ weights, rows, columns, chosen, pick, width, label }) {
  const margin = Math.min(150, width * 0.32);
  const height = TOP * 2 + Math.max(rows.length, columns.length) * ROW;
  const [from, to] = [margin, width - margin];
  const { all, capped } = strongest(weights, rows, columns);
  const lines = s("g", {});
  const frame = { width, height, viewBox: `0 0 ${width} ${height}` };
  const svg = s("svg", { class: "strands", ...frame, role: "group", aria: { label } }, lines,
    rows.map(looking), columns.map(seen));
  svg.capped = capped;

  function draw(only) {
    const drawn = only === null ? all : strandsOf(only, weights, rows, columns);
    const full = drawn.reduce((most, one) => Math.max(most, one.weight), FULL);
    const boldness = only === null ? 0.7 : 0.95;
    const middle = (from + to) / 2;
    lines.replaceChildren(...drawn.map(({ r, c, weight }) => s("path", {
      class: "strand",
      d: `M${from + 6},${y(r)} C${middle},${y(r)} ${middle},${y(c)} ${to - 6},${y(c)}`,
      "stroke-width": (0.5 + (4.5 * weight) / full).toFixed(2),
      "stroke-opacity": Math.max(0.04, (boldness * weight) / full).toFixed(3),
      data: { row: rows[r].index, column: columns[c].index, weight },
    })));
  }

  function looking(word, r) {
    const name = short(shownText(word));
    const room = measured(name);
    const toggle = () => pick(word.index === chosen ? null : word.index);
    return s("g", {
      class: `word looks ${kinds(word)}`,
      role: "button",
      tabindex: "-1",
      data: { index: word.index, focus: `word-${word.index}` },
      aria: { pressed: String(word.index === chosen), label: shownText(word) },
      onclick: toggle,
      onpointerenter: () => draw(word.index),
      onpointerleave: () => draw(chosen),
      onkeydown: (event) => {
        if (event.key === "Escape" && chosen !== null) pick(null);
        else if (event.key === "Enter" || event.key === " ") toggle();
        else return;
        event.preventDefault();
      },
    },
    s("rect", { x: from - 14 - room, y: y(r) - ROW / 2 + 1, width: room + 16, height: ROW - 2, rx: 5 }),
    s("text", { x: from - 6, y: y(r), "text-anchor": "end" }, name));
  }

  function seen(word, c) {
    return s("text", { class: `word seen ${kinds(word)}`, x: to + 6, y: y(c) }, short(shownText(word)));
  }

  draw(chosen);
  walkable(svg, ".looks")();
  return svg;
}

/** The strands of all words that are not too faint, and at most as many as can be told apart. */
function strongest(weights, rows, columns) {
  const found = [];
  rows.forEach((row, r) => columns.forEach((column, c) => {
    const weight = weights(row.index, column.index);
    if (weight >= FAINTEST) found.push({ r, c, weight });
  }));
  const capped = found.length > MOST;
  return { all: capped ? found.sort((a, b) => b.weight - a.weight).slice(0, MOST) : found, capped };
}

/** All strands of one word. */
function strandsOf(index, weights, rows, columns) {
  const r = rows.findIndex((row) => row.index === index);
  const found = columns.map((column, c) => ({ r, c, weight: weights(index, column.index) }));
  return found.filter((one) => one.weight >= FAINTEST_OF_ONE);
}

function y(row) {
  return TOP + (row + 0.5) * ROW;
}

function short(text) {
  return text.length > LONGEST_NAME ? `${text.slice(0, LONGEST_NAME - 1)}…` : text;
}

const pen = document.createElement("canvas").getContext("2d");

/** How wide a name is, as the style sheet writes it. */
function measured(name) {
  pen.font = `${LETTERS}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(name).width;
}
