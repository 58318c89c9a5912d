/* The arithmetic of a head for one asking word, as a table with a line for each word that answers, and as a formula. */

import { diverging, paint } from "heedful/colours.js";
import { h } from "heedful/elements.js";
import { extent, percent, plain, row } from "heedful/numbers.js";
import { shownText } from "heedful/tokens.js";
import { t } from "heedful/words.js";

const FEW = 48;
const TERMS = 4;

/** The table. `inside` is the answer of /explore/head with decoded keys and values; `change` what is left out, or null. */
export function workings({ inside, change, source, pick, all, showAll }) {
  const { tokens, query, products, scaled, masked, weights, keys, values, output } = inside;
  const other = change === null ? null : inside.without[change];
  const highest = Math.max(...weights, ...(other?.weights ?? []), 1e-9);
  const [asked, said] = [Math.max(extent(query), extent(keys.values)), extent(values.values)];
  const lines = shownLines(weights, all);
  const hides = masked.some((seen) => !seen);
  const between = 3 + [divided(inside), hides, other].filter(Boolean).length;
  const wide = h("div", { class: "sideways" },
    h("table", { class: "workings" },
      h("thead", {}, h("tr", {}, [t("head.word"), t("head.key"), scoreName(inside), divided(inside) && `÷ √${inside.width}`, hides && t("head.mask?"),
        t("head.softmax"), other && t(`head.${change}`), t("head.value")].filter(Boolean)
        .map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {},
        h("tr", { class: "asking" }, h("th", { scope: "row" }, "q"), h("td", {}, strip(query, asked)),
          blank(between)),
        lines.map((index) => h("tr", { class: index === source ? "chosen" : null, data: { source: index } },
          h("th", { scope: "row" }, h("button", { type: "button", class: "quiet", data: { saved: "", focus: `source-${index}` },
            aria: { pressed: String(index === source) }, onclick: () => pick(index) }, shownText(tokens[index]))),
          h("td", {}, strip(row(keys, index), asked)),
          h("td", { class: "number" }, plain(products[index])),
          divided(inside) && h("td", { class: "number" }, plain(scaled[index])),
          hides && h("td", { class: "number" }, masked[index] ? "" : "−∞"),
          h("td", {}, bar(weights[index], highest, "bar-fill")),
          other && h("td", {}, bar(other.weights[index], highest, "bar-fill changed")),
          h("td", {}, strip(row(values, index), said)))),
        outcome(t("head.output"), output, said, between),
        other && outcome(t("head.outputWithout"), other.output, said, between))));
  return h("div", {}, wide,
    lines.length < weights.length && h("p", { class: "note unsaved" },
      t("head.few", { shown: lines.length, all: weights.length }), " ",
      h("button", { type: "button", class: "quiet", onclick: showAll }, t("head.showAll"))),
    other && h("p", { class: "note" }, t("head.moved", { change: percent(distance(output, other.output)) })));
}

/** All lines of a short sentence; of a long one those that weigh most, in the sentence's order. */
function shownLines(weights, all) {
  const lines = weights.map((_, index) => index);
  if (all || lines.length <= FEW) return lines;
  return lines.sort((a, b) => weights[b] - weights[a]).slice(0, FEW).sort((a, b) => a - b);
}

function outcome(label, vector, highest, between) {
  return h("tr", { class: "outcome" }, h("th", { scope: "row" }, label), blank(between), h("td", {}, strip(vector, highest)));
}

function blank(count) {
  return Array.from({ length: count }, () => h("td", {}));
}

/** A vector as a row of coloured cells. */
function strip(vector, highest) {
  const canvas = paint(vector, 1, vector.length, diverging(), -highest, highest);
  canvas.className = "strip";
  canvas.title = Array.from(vector, (value) => plain(value, 2)).join("  ");
  return canvas;
}

function bar(weight, highest, className) {
  return h("span", { class: "weight" },
    h("span", { class: "bar-track" }, h("span", { class: className, style: { width: `${(weight / highest) * 100}%` } })),
    h("span", { class: "bar-number" }, plain(weight)));
}

/** How a query and a key are compared: by their product, or as a recurrent model does. */
function scoreName({ score }) {
  return score === undefined || score === null ? "q·k" : score;
}

/** Whether scores are divided by √d: always, but for the other scores of recurrent models. */
function divided({ score }) {
  return score === undefined || score === null || score === "scaled";
}

/** How far the output moves, against its own length. */
function distance(output, changed) {
  const length = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length(output.map((value, i) => value - changed[i])) / (length(output) || 1);
}

/** What the numbers of one answering word come from. */
export function formula({ inside, source, change }) {
  const { query, products, scaled, masked, weights, width, output } = inside;
  const [key, value] = [row(inside.keys, source), row(inside.values, source)];
  const terms = Array.from({ length: Math.min(TERMS, width) }, (_, i) => `(${plain(query[i], 2)} × ${plain(key[i], 2)})`);
  const rest = width > TERMS ? " + …" : "";
  const sum = scaled.reduce((total, score, i) => total + (masked[i] ? Math.exp(score - scaled[source]) : 0), 0);
  const first = (vector) => `[${Array.from(vector.slice(0, TERMS), (one) => plain(one, 2)).join(", ")}${width > TERMS ? ", …" : ""}]`;
  const multiplied = !["concat", "location"].includes(inside.score);
  const lines = [
    [scoreName(inside), multiplied ? `${terms.join(" + ")}${rest} = ${plain(products[source])}` : plain(products[source])],
    divided(inside) && [`÷ √${width}`, `${plain(products[source])} ÷ ${plain(Math.sqrt(width))} = ${plain(scaled[source])}`],
    [t("head.softmax"), masked[source]
      ? `exp(${plain(scaled[source])}) ÷ Σ exp = 1 ÷ ${plain(sum)} = ${plain(weights[source])}`
      : `exp(−∞) = 0`],
    ["× v", `${plain(weights[source])} × ${first(value)} = ${first(Array.from(value, (one) => one * weights[source]))}`],
    [t("head.sum"), `Σ = ${first(output)}`],
  ].filter(Boolean);
  if (change !== null) lines.push([t(`head.${change}`), `${plain(inside.without[change].weights[source])}`]);
  return h("dl", { class: "formula" }, lines.map(([name, words]) => [h("dt", {}, name), h("dd", {}, words)]));
}
