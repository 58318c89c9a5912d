/* Attention as strands between two columns of words: on the left who looks, on the right what is looked at. */

import { s, walkable } from "heedful/elements.js";
import { shownText } from "heedful/tokens.js";

const ROW = 24;
const TOP = 14;
const MOST = 3000;
const FAINTEST = 0.01;
const NAME = 18;
const FULL = 0.25;

/** An SVG of weights.

weights(row, column)   how much a word looks at another
rows, columns          [{index, text, special, segment}], the words that are shown on either side
chosen                 the index of the word whose strands alone are shown, or null
pick(index or null)    what a click on a word of the left does
Also says how many strands are too faint to be drawn: `element.left`. */
export function strands({ weights, rows, columns, chosen, pick, width, label, describe }) {
  const margin = Math.min(150, width * 0.32);
  const height = TOP * 2 + Math.max(rows.length, columns.length) * ROW;
  const [from, to] = [margin, width - margin];
  const lines = s("g", { class: "lines" });
  const svg = s("svg", { class: "strands", width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
                         aria: { label } }, lines);
  const all = list(weights, rows, columns);
  const highest = all.reduce((most, one) => Math.max(most, one.weight), FULL);
  svg.left = rows.length * columns.length - all.length;

  function draw(only) {
    const seen = only === null ? all : each(weights, rows, columns, only);
    const top = only === null ? highest : seen.reduce((most, one) => Math.max(most, one.weight), FULL);
    lines.replaceChildren(...seen.map(({ r, c, weight }) => {
      const [y1, y2] = [TOP + (r + 0.5) * ROW, TOP + (c + 0.5) * ROW];
      const middle = (from + to) / 2;
      const strength = weight / top;
      return s("path", {
        d: `M${from + 6},${y1} C${middle},${y1} ${middle},${y2} ${to - 6},${y2}`,
        class: "strand",
        "stroke-width": (0.5 + 4.5 * strength).toFixed(2),
        "stroke-opacity": Math.max(0.04, strength * (only === null ? 0.7 : 0.95)).toFixed(3),
        data: { row: rows[r].index, column: columns[c].index, weight },
      });
    }));
    svg.querySelectorAll(".looks").forEach((word) => {
      word.classList.toggle("dim", only !== null && Number(word.dataset.index) !== only);
    });
  }

  rows.forEach((word, r) => {
    const toggle = () => pick(word.index === chosen ? null : word.index);
    svg.append(s("g", {
      class: `word looks segment-${word.segment}${word.special ? " special" : ""}`,
      role: "button",
      tabindex: "-1",
      data: { index: word.index, focus: `word-${word.index}` },
      aria: { pressed: String(word.index === chosen), label: describe(word.index) },
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
    s("rect", { x: from - 14 - measured(shownText(word)), y: TOP + r * ROW + 1, width: measured(shownText(word)) + 16,
                height: ROW - 2, rx: 5 }),
    s("text", { x: from - 6, y: TOP + (r + 0.5) * ROW, "text-anchor": "end" }, short(shownText(word)))));
  });
  columns.forEach((word, c) => {
    svg.append(s("text", { x: to + 6, y: TOP + (c + 0.5) * ROW,
                           class: `word seen segment-${word.segment}${word.special ? " special" : ""}` }, short(shownText(word))));
  });
  draw(rows.some((word) => word.index === chosen) ? chosen : null);
  walkable(svg, ".looks")();
  return svg;
}

/** The strongest strands of all words, none fainter than one in a hundred. */
function list(weights, rows, columns) {
  const found = [];
  rows.forEach((row, r) => columns.forEach((column, c) => {
    const weight = weights(row.index, column.index);
    if (weight >= FAINTEST) found.push({ r, c, weight });
  }));
  return found.length > MOST ? found.sort((a, b) => b.weight - a.weight).slice(0, MOST) : found;
}

/** All strands of one word. */
function each(weights, rows, columns, index) {
  const r = rows.findIndex((row) => row.index === index);
  return columns.map((column, c) => ({ r, c, weight: weights(index, column.index) })).filter((one) => one.weight >= 0.001);
}

const pen = document.createElement("canvas").getContext("2d");

/** How wide a name is, as the style sheet writes it. */
function measured(text) {
  pen.font = `14px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(short(text)).width;
}

function short(text) {
  return text.length > NAME ? `${text.slice(0, NAME - 1)}…` : text;
}
