/* Attention: the grid of layers and heads, and a chosen one of them as strands between words or as a matrix. */

import { answered } from "heedful/api.js";
import { link } from "heedful/address.js";
import { bars } from "heedful/bars.js";
import { chooser, h, segments, toggle } from "heedful/elements.js";
import { headGrid } from "heedful/headgrid.js";
import { looking } from "heedful/looking.js";
import { matrix } from "heedful/matrix.js";
import { decoded, index, numbered, percent } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { strands } from "heedful/strands.js";
import { shownText, word } from "heedful/tokens.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Vaswani et al. 2017, Attention Is All You Need, section 3.2; rollout: Abnar & Zuidema 2020, section 3",
  files: ["src/heedful/nn/attention.py", "src/heedful/explore/trace.py"],
};

const MATRIX = "/explore/attention/matrix";
const LISTED = 10;
const BETWEEN = { ab: [0, 1], ba: [1, 0], aa: [0, 0], bb: [1, 1] };

export function open({ root, model, put }) {
  const { form, parts, asked } = looking(model, ({ text, pair }) => put({ text, pair, token: undefined, between: undefined }));
  const stage = h("div", { class: "attention" });
  root.append(form, stage);

  async function changed({ state, ask }) {
    const { part, body } = asked(state);
    const grid = await ask("/explore/attention/grid", body);
    const thumbnails = decoded(grid.thumbnails);
    const place = chosenPlace(state, grid, thumbnails);
    const question = ({ layer, head }) => ({ ...body, layer, ...(head === "rollout" ? { rollout: true } : { head }) });
    const held = (change) => answered(MATRIX, question({ ...place, ...change }));
    const weights = decoded((await ask(MATRIX, question(place))).weights);
    const shown = { state, grid, place, part, parts, put, held, ...sides(grid, state) };
    shown.token = chosenToken(state, shown.rows);
    shown.at = (row, column) => weights.values[row * weights.shape[1] + column];
    const one = h("div", { class: "one" });
    stage.replaceChildren(
      h("div", { class: "controls" }, controls(shown)),
      picture("heads", t("attention.heads"),
        headGrid({ thumbnails, chosen: place, pick: (layer, head) => put({ layer, head }),
                   held: (layer, head) => held({ layer, head }) })),
      one);
    one.append(headPicture(shown, one.clientWidth));
    if (shown.token !== null) stage.append(looks(shown));
  }

  return { changed };
}

/** The layer and head of the address, or those where *it* looks hardest at what it may stand for. */
function chosenPlace(state, grid, thumbnails) {
  const layer = index(state.layer, grid.layers);
  const head = ["mean", "rollout"].includes(state.head) ? state.head : index(state.head, grid.heads);
  if (layer !== null && head !== null) return { layer, head };
  const [layers, heads, rows, columns] = thumbnails.shape;
  const words = grid.tokens.map(word);
  const [it, ...meant] = ["it", "animal", "street"].map((one) => words.indexOf(one));
  if (it < 0 || Math.min(...meant) < 0 || rows !== words.length || columns !== words.length) {
    return { layer: layer ?? layers - 1, head: head ?? 0 };
  }
  let best = { looks: -1 };
  for (let at = 0; at < layers * heads; at++) {
    const row = thumbnails.values.subarray((at * rows + it) * columns, (at * rows + it + 1) * columns);
    const looks = meant.reduce((sum, one) => sum + row[one], 0) / row.reduce((sum, weight) => sum + weight, 1);
    if (looks > best.looks) best = { looks, layer: Math.floor(at / heads), head: at % heads };
  }
  return { layer: layer ?? best.layer, head: head ?? best.head };
}

/** The words on either side that are to be seen, with their places in the sentence. */
function sides(grid, state) {
  const [from, to] = BETWEEN[state.between] ?? [null, null];
  const seen = (tokens, segment) => tokens
    .map((token, place) => ({ ...token, index: place }))
    .filter((token) => segment === null || token.segment === segment)
    .filter((token) => !token.special || state.special !== "hidden");
  return { rows: seen(grid.target_tokens ?? grid.tokens, from), columns: seen(grid.tokens, to) };
}

/** The word whose strands alone are shown: that of the address, or *it*, or none. */
function chosenToken(state, rows) {
  const asked = state.token === undefined ? rows.find((one) => word(one) === "it")?.index : Number(state.token);
  return rows.some((one) => one.index === asked) ? asked : null;
}

function controls({ state, grid, place, part, parts, put, held, token }) {
  const layers = numbered(grid.layers).filter(([layer]) => held({ layer }));
  const heads = [...numbered(grid.heads), ["mean", t("attention.mean")]];
  if (part !== "cross") heads.push(["rollout", t("attention.rollout")]);
  const shows = [["strands", t("attention.asStrands")], ["matrix", t("attention.asMatrix")]];
  const between = [["", t("attention.all")], ["ab", "A → B"], ["ba", "B → A"], ["aa", "A → A"], ["bb", "B → B"]];
  const another = (value) => put({ part: value, layer: undefined, head: undefined, token: undefined });
  return [
    parts.length > 1 &&
      segments(t("attention.part"), parts.map((one) => [one, t(`attention.${one}`)]), part, another),
    chooser(t("attention.layer"), layers, place.layer, (layer) => put({ ...place, layer })),
    chooser(t("attention.head"), heads.filter(([head]) => held({ head })), place.head,
      (head) => put({ ...place, head })),
    segments(t("attention.show"), shows, state.show === "matrix" ? "matrix" : "strands", (show) => put({ show })),
    grid.tokens.some((one) => one.segment === 1) &&
      segments(t("attention.between"), between, state.between ?? "", (value) => put({ between: value || undefined })),
    toggle(t("attention.special"), state.special !== "hidden", (on) => put({ special: on ? undefined : "hidden" })),
    typeof place.head === "number" &&
      h("a", { class: "inward", href: link("head", { ...state, ...place, token }) }, t("attention.inside")),
  ];
}

/** The chosen head. */
function headPicture(shown, room) {
  const { state, place, rows, columns } = shown;
  const asMatrix = state.show === "matrix";
  const width = Math.max(280, room - 44);
  const notes = [state.special === "hidden" && t("attention.hidden")];
  let body = h("p", { class: "note" }, t("attention.none"));
  if (rows.length && columns.length && asMatrix) body = matrixOf(shown, width);
  else if (rows.length && columns.length) {
    body = strandsOf(shown, Math.min(width, 640));
    if (shown.token === null) notes.push(t(body.capped ? "attention.capped" : "attention.faint"));
    body = h("div", { class: "scroll" }, body);
  }
  return picture(asMatrix ? "matrix" : "strands", title(place), body,
    h("p", { class: "note" }, notes.filter(Boolean).join(" ")));
}

function title({ layer, head }) {
  if (head === "mean") return t("attention.placeMean", { layer: layer + 1 });
  if (head === "rollout") return t("attention.placeRollout", { layer: layer + 1 });
  return t("attention.place", { layer: layer + 1, head: head + 1 });
}

function strandsOf({ at, rows, columns, token, put }, width) {
  const pick = (chosen) => put({ token: chosen ?? "none" });
  return strands({ weights: at, rows, columns, chosen: token, pick, width, label: t("attention.strands") });
}

function matrixOf({ at, rows, columns, token, put }, width) {
  const values = new Float32Array(rows.length * columns.length);
  rows.forEach((row, r) => columns.forEach((column, c) => {
    values[r * columns.length + c] = at(row.index, column.index);
  }));
  const [rowNames, columnNames] = [rows.map(shownText), columns.map(shownText)];
  return matrix({
    values, rows: rows.length, columns: columns.length, rowNames, columnNames, width,
    label: t("attention.matrix"),
    chosen: token === null ? null : rows.findIndex((row) => row.index === token),
    pick: (row) => put({ token: rows[row].index }),
    describe: (row, column, value) =>
      t("attention.cell", { from: rowNames[row], to: columnNames[column], weight: percent(value) }),
  });
}

/** What the chosen word looks at most, as bars. */
function looks({ at, rows, columns, token }) {
  const most = columns.map((one) => ({
    name: shownText(one),
    share: at(token, one.index),
    class: one.special ? "special" : null,
    data: { column: one.index },
  })).sort((one, other) => other.share - one.share);
  const looking = shownText(rows.find((row) => row.index === token));
  return picture("looks", t("attention.looks", { word: looking }), bars(most.slice(0, LISTED)));
}
