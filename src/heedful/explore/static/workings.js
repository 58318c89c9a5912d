/* The arithmetic of a head for one asking word: as a table with a line for each word that answers, and as a formula.

`inside` is the answer of /explore/head with its keys and values decoded; `change` is what is left out, or null. */

import { track } from "heedful/bars.js";
import { diverging, paint } from "heedful/colours.js";
import { h } from "heedful/elements.js";
import { extent, percent, plain, row } from "heedful/numbers.js";
import { shownText } from "heedful/tokens.js";
import { t } from "heedful/words.js";

const FEW = 48;
const TERMS = 4;
const AT_ONCE = 100;

/** The table. Of a long sentence it has the words that weigh most, unless `all` are wanted. */
export function workings({ inside, change, source, pick, all, showAll }) {
  const { tokens, query, products, scaled, mask, weights, keys, values, output } = inside;
  const other = change === null ? null : inside.without[change];
  const highest = Math.max(...weights, ...(other?.weights ?? []), 1e-9);
  const [asked, said] = [Math.max(extent(query), extent(keys.values)), extent(values.values)];
  const hides = mask.some((seen) => !seen);
  const lines = shownLines(weights, all);
  const columns = [
    [t("head.key"), (index) => strip(row(keys, index), asked)],
    [scoreName(inside), (index) => number(products[index])],
    divided(inside) && [`÷ √${inside.width}`, (index) => number(scaled[index])],
    hides && [t("head.mask?"), (index) => h("span", { class: "number" }, mask[index] ? "" : "−∞")],
    [t("head.softmax"), (index) => weight(weights[index], highest)],
    other && [t(`head.${change}`), (index) => weight(other.weights[index], highest, true)],
    [t("head.value"), (index) => strip(row(values, index), said)],
  ].filter(Boolean);
  const line = (index) => h("tr", { class: index === source ? "chosen" : null, data: { source: index } },
    h("th", { scope: "row" }, answering(tokens[index], index, index === source, pick)),
    columns.map(([, cell]) => h("td", {}, cell(index))));
  const edge = (name, kind, first, last) => h("tr", { class: kind }, h("th", { scope: "row" }, name),
    columns.map((_, i) => h("td", {}, i === 0 ? first : i === columns.length - 1 ? last : null)));
  const outcome = edge(t("head.output"), "outcome", null, strip(output, said));
  const table = h("table", { class: "workings" },
    h("thead", {}, h("tr", {}, [t("head.word"), ...columns.map(([name]) => name)].map((name) =>
      h("th", { scope: "col" }, name)))),
    h("tbody", {},
      edge("q", "asking", strip(query, asked), null),
      lines.slice(0, AT_ONCE).map(line),
      outcome,
      other && edge(t("head.outputWithout"), "outcome", null, strip(other.output, said))));
  const rest = lines.slice(AT_ONCE);
  const goOn = () => {
    if (!table.isConnected) return;
    outcome.before(...rest.splice(0, AT_ONCE).map(line));
    if (rest.length) setTimeout(goOn); // in between the page listens
  };
  if (rest.length) setTimeout(goOn);
  return h("div", {},
    h("div", { class: "sideways" }, table),
    lines.length < weights.length && h("p", { class: "note unsaved" },
      t("head.few", { shown: lines.length, all: weights.length }), " ",
      h("button", { type: "button", class: "quiet", onclick: showAll }, t("head.showAll"))),
    other && h("p", { class: "note" }, t("head.moved", { change: percent(distance(output, other.output)) })));
}

function answering(token, index, chosen, pick) {
  return h("button", {
    type: "button",
    class: "quiet",
    data: { saved: "", focus: `source-${index}` },
    aria: { pressed: String(chosen) },
    onclick: () => pick(index),
  }, shownText(token));
}

/** All lines of a short sentence; of a long one those that weigh most, in the sentence's order. */
function shownLines(weights, all) {
  const lines = weights.map((_, index) => index);
  if (all || lines.length <= FEW) return lines;
  return lines.sort((a, b) => weights[b] - weights[a]).slice(0, FEW).sort((a, b) => a - b);
}

/** A vector as a row of coloured cells, which says its numbers to who points at it. */
function strip(vector, highest) {
  const canvas = paint(vector, 1, vector.length, diverging(), -highest, highest);
  canvas.className = "strip";
  const tell = () => (canvas.title = Array.from(vector, (value) => plain(value, 2)).join("  "));
  canvas.addEventListener("pointerenter", tell, { once: true }); // a long text has a thousand of them
  return canvas;
}

function number(value) {
  return h("span", { class: "number" }, plain(value));
}

function weight(value, highest, changed = false) {
  const share = h("span", { class: "bar-number" }, plain(value));
  return h("span", { class: "weight" }, track(value / highest, changed), share);
}

/** How a query and a key are compared: by their product, or as a recurrent model does. */
function scoreName({ score }) {
  return score ?? "q·k";
}

/** Whether scores are divided by √d: always, but for the other scores of recurrent models. */
function divided({ score }) {
  return (score ?? "scaled") === "scaled";
}

/** How far the output moves, against its own length. */
function distance(output, changed) {
  const length = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length(output.map((value, i) => value - changed[i])) / (length(output) || 1);
}

/** What the numbers of one answering word come from. */
export function formula({ inside, source, change }) {
  const { query, products, scaled, mask, weights, width, output } = inside;
  const [key, value] = [row(inside.keys, source), row(inside.values, source)];
  const [product, score, share] = [products[source], scaled[source], weights[source]].map((one) => plain(one));
  const more = width > TERMS;
  const terms = Array.from(query.slice(0, TERMS), (one, i) => `(${plain(one, 2)} × ${plain(key[i], 2)})`).join(" + ");
  const first = (vector) => {
    const numbers = Array.from(vector.slice(0, TERMS), (one) => plain(one, 2)).join(", ");
    return `[${numbers}${more ? ", …" : ""}]`;
  };
  const sum = scaled.reduce((total, one, i) => total + (mask[i] ? Math.exp(one - scaled[source]) : 0), 0);
  const multiplied = !["concat", "location"].includes(inside.score);
  const lines = [
    [scoreName(inside), multiplied ? `${terms}${more ? " + …" : ""} = ${product}` : product],
    divided(inside) && [`÷ √${width}`, `${product} ÷ ${plain(Math.sqrt(width))} = ${score}`],
    [t("head.softmax"), mask[source] ? `exp(${score}) ÷ Σ exp = 1 ÷ ${plain(sum)} = ${share}` : "exp(−∞) = 0"],
    ["× v", `${share} × ${first(value)} = ${first(value.map((one) => one * weights[source]))}`],
    [t("head.sum"), `Σ = ${first(output)}`],
    change !== null && [t(`head.${change}`), plain(inside.without[change].weights[source])],
  ].filter(Boolean);
  return h("dl", { class: "formula" }, lines.map(([name, words]) => [h("dt", {}, name), h("dd", {}, words)]));
}
