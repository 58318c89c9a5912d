/* Attention: the grid of layers and heads, and a chosen one of them as strands between words or as a matrix. */

import { link } from "heedful/address.js";
import { composer } from "heedful/composer.js";
import { chooser, h, segments, toggle } from "heedful/elements.js";
import { headGrid } from "heedful/headgrid.js";
import { matrix } from "heedful/matrix.js";
import { decoded, percent } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { strands } from "heedful/strands.js";
import { shownText } from "heedful/tokens.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Vaswani et al. 2017, Attention Is All You Need, section 3.2; rollout: Abnar & Zuidema 2020, section 3",
  files: ["src/heedful/nn/attention.py", "src/heedful/explore/trace.py"],
};

/** Where *it* must choose between *animal* and *street*. */
export const SENTENCE = "The animal didn't cross the street because it was too tired.";

/** What a translator opens on: of numbers, or of anything. */
export const NUMBER = "three hundred and five";

const LISTED = 10;
const BETWEEN = { ab: [0, 1], ba: [1, 0], aa: [0, 0], bb: [1, 1] };

export function open({ root, model, put }) {
  const translates = model.family === "transformer" || model.family === "rnn";
  const parts = model.parts ?? ["encoder"];
  const form = composer(({ text, pair }) => put({ text, pair, token: undefined, between: undefined }), {
    pairLabel: translates ? t("attention.target") : t("text.pair"),
    pairAdd: translates ? t("attention.addTarget") : t("text.add"),
  });
  const stage = h("div", { class: "attention" });
  root.append(form, stage);

  async function changed({ state, ask }) {
    const text = state.text ?? (translates ? NUMBER : SENTENCE);
    form.show(text, state.pair);
    const part = parts.includes(state.part) ? state.part : parts[0];
    const body = { model: model.name, text, pair: state.pair, part: part === "encoder" ? undefined : part };
    const grid = await ask("/explore/attention/grid", body);
    const thumbnails = decoded(grid.thumbnails);
    const place = chosenPlace(state, grid, thumbnails);
    const asked = place.head === "rollout" ? { layer: place.layer, rollout: true } : place;
    const weights = decoded((await ask("/explore/attention/matrix", { ...body, ...asked })).weights);
    const shown = { state, grid, place, weights, part, parts, put, ...words(grid, state) };
    shown.token = chosenToken(state, shown.rows);
    const one = h("div", { class: "one" });
    stage.replaceChildren(
      h("div", { class: "controls" }, controls(shown)),
      picture("heads", t("attention.heads"),
        headGrid({ thumbnails, chosen: place, pick: (layer, head) => put({ layer, head }) })),
      one);
    drawOne(shown, one, stage);
  }

  return { changed };
}

/** The layer and head of the address, or where *it* looks hardest at what it may stand for. */
function chosenPlace(state, grid, thumbnails) {
  const layer = whole(state.layer, grid.layers);
  const head = ["mean", "rollout"].includes(state.head) ? state.head : whole(state.head, grid.heads);
  if (layer !== null && head !== null) return { layer, head };
  const [layers, heads, rows, columns] = thumbnails.shape;
  const names = grid.tokens.map((token) => plainName(token));
  const [it, ...meant] = ["it", "animal", "street"].map((word) => names.indexOf(word));
  if (it < 0 || Math.min(...meant) < 0 || rows !== names.length || columns !== names.length) {
    return { layer: layer ?? layers - 1, head: head ?? 0 };
  }
  let best = { looks: -1 };
  for (let at = 0; at < layers * heads; at++) {
    const row = thumbnails.values.subarray((at * rows + it) * columns, (at * rows + it + 1) * columns);
    const looks = meant.reduce((sum, word) => sum + row[word], 0) / row.reduce((sum, weight) => sum + weight, 1);
    if (looks > best.looks) best = { looks, layer: Math.floor(at / heads), head: at % heads };
  }
  return { layer: layer ?? best.layer, head: head ?? best.head };
}

/** The chosen head into its place, and beside it what the chosen word looks at. */
function drawOne({ state, grid, place, weights, put, rows, columns, token }, frame, stage) {
  const at = (row, column) => weights.values[row * weights.shape[1] + column];
  const width = Math.max(280, frame.clientWidth - 44);
  const asMatrix = state.show === "matrix";
  const say = (row, column) => t("attention.cell", { from: name(rowTokens(grid)[row]), to: name(grid.tokens[column]),
                                                     weight: percent(at(row, column)) });
  const pick = (index) => put({ token: index ?? "none" });
  const body = !rows.length || !columns.length
    ? h("p", { class: "note" }, t("attention.none"))
    : asMatrix
      ? matrix({ ...cut(at, rows, columns), rowNames: rows.map(name), columnNames: columns.map(name), width,
                 label: t("attention.matrix"), pick: (row) => pick(rows[row].index),
                 chosen: token === null ? null : rows.findIndex((word) => word.index === token),
                 describe: (row, column) => say(rows[row].index, columns[column].index) })
      : h("div", { class: "scroll" }, strands({ weights: at, rows, columns, chosen: token, pick, width: Math.min(width, 640),
                  label: t("attention.strands"), describe: (index) => name(rowTokens(grid)[index]) }));
  frame.append(picture(asMatrix ? "matrix" : "strands", title(place), body, h("p", { class: "note" }, note(state, token))));
  if (token !== null) {
    stage.append(picture("looks", t("attention.looks", { word: name(rowTokens(grid)[token]) }), looks(token, at, columns)));
  }
}

function title({ layer, head }) {
  if (head === "mean") return t("attention.placeMean", { layer: layer + 1 });
  if (head === "rollout") return t("attention.placeRollout", { layer: layer + 1 });
  return t("attention.place", { layer: layer + 1, head: head + 1 });
}

function controls({ state, grid, place, part, parts, put, token }) {
  const layers = Array.from({ length: grid.layers }, (_, i) => [i, String(i + 1)]);
  const heads = [...Array.from({ length: grid.heads }, (_, i) => [i, String(i + 1)]), ["mean", t("attention.mean")],
                 ...(part === "cross" ? [] : [["rollout", t("attention.rollout")]])];
  const between = [["", t("attention.all")], ["ab", "A → B"], ["ba", "B → A"], ["aa", "A → A"], ["bb", "B → B"]];
  return [
    parts.length > 1 && segments(t("attention.part"), parts.map((one) => [one, t(`attention.${one}`)]), part,
      (value) => put({ part: value, layer: undefined, head: undefined, token: undefined })),
    chooser(t("attention.layer"), layers, place.layer, (value) => put({ layer: value, head: place.head })),
    chooser(t("attention.head"), heads, place.head, (value) => put({ layer: place.layer, head: value })),
    segments(t("attention.show"), [["strands", t("attention.asStrands")], ["matrix", t("attention.asMatrix")]],
      state.show === "matrix" ? "matrix" : "strands", (value) => put({ show: value === "matrix" ? value : undefined })),
    grid.tokens.some((token) => token.segment === 1) &&
      segments(t("attention.between"), between, state.between ?? "", (value) => put({ between: value || undefined })),
    toggle(t("attention.special"), state.special !== "hidden", (on) => put({ special: on ? undefined : "hidden" })),
    typeof place.head === "number" && h("a", { class: "inward", href: link("head", { ...state, ...place, token }) },
      t("attention.inside")),
  ];
}

function note(state, token) {
  const faint = state.show !== "matrix" && token === null;
  return [state.special === "hidden" && t("attention.hidden"), faint && t("attention.faint")].filter(Boolean).join(" ");
}

/** The words on either side that are to be seen. */
function words(grid, state) {
  const [from, to] = BETWEEN[state.between] ?? [null, null];
  const seen = (tokens, segment) => tokens
    .map((token, index) => ({ ...token, index }))
    .filter((token) => (segment === null || token.segment === segment) && !(token.special && state.special === "hidden"));
  return { rows: seen(rowTokens(grid), from), columns: seen(grid.tokens, to) };
}

function rowTokens(grid) {
  return grid.target_tokens ?? grid.tokens;
}

/** The word whose strands alone are shown: that of the address, or *it*, or none. */
function chosenToken(state, rows) {
  const index = state.token === undefined
    ? rows.find((word) => plainName(word) === "it")?.index
    : Number(state.token);
  return rows.some((word) => word.index === index) ? index : null;
}

function cut(at, rows, columns) {
  const values = new Float32Array(rows.length * columns.length);
  rows.forEach((row, r) => columns.forEach((column, c) => {
    values[r * columns.length + c] = at(row.index, column.index);
  }));
  return { values, rows: rows.length, columns: columns.length };
}

/** What one word looks at most, as bars. */
function looks(token, at, columns) {
  const most = columns.map((word) => ({ word, weight: at(token, word.index) })).sort((a, b) => b.weight - a.weight);
  const highest = most[0]?.weight || 1;
  return h("ol", { class: "bars" }, most.slice(0, LISTED).map(({ word, weight }) =>
    h("li", { data: { column: word.index } },
      h("span", { class: `bar-name${word.special ? " special" : ""}` }, name(word)),
      h("span", { class: "bar-track" }, h("span", { class: "bar-fill", style: { width: `${(weight / highest) * 100}%` } })),
      h("span", { class: "bar-number" }, percent(weight)))));
}

function name(token) {
  return token ? shownText(token) : "";
}

function plainName(token) {
  return token.text.toLowerCase().replace("▁", "");
}

function whole(value, count) {
  const number = Number(value);
  return value !== undefined && Number.isInteger(number) && number >= 0 && number < count ? number : null;
}
