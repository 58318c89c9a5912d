/* Positions: the encoding as a picture, and how alike two positions are, by how far apart they stand. */

import { chart } from "heedful/charts.js";
import { h } from "heedful/elements.js";
import { matrix } from "heedful/matrix.js";
import { decoded, extent, index, plain, row, spread } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { t } from "heedful/words.js";

export const what = {
  paper:
    "Vaswani et al. 2017, section 3.5 (sinusoidal); Devlin et al. 2018, section 3 (learned); Su et al. 2021 (rotary)",
  files: ["src/heedful/nn/positions.py", "src/heedful/nn/embeddings.py"],
};

const HIGH = 384;
const TALL = [3, 14];
const WIDE = 820;

export function open({ root, model, put }) {
  async function changed({ state, ask }) {
    const answer = await ask("/explore/positions", { model: model.name });
    const similarity = decoded(answer.similarity);
    const line = h("div", { class: "chart" });
    const pair = h("div", { class: "pair" }, picture("distance", t("positions.distance"), line));
    root.replaceChildren(h("p", { class: "kind" }, t(`positions.${answer.kind}`)));
    root.append(encodingPicture(decoded(answer.encoding), root.clientWidth - 44), pair);
    const room = (pair.clientWidth > WIDE ? (pair.clientWidth - 24) / 2 : pair.clientWidth) - 44;
    pair.prepend(answer.grid
      ? patchesPicture(similarity, answer.grid, state, put, Math.min(room, 420))
      : similarityPicture(similarity, Math.min(room, 520)));
    const y = answer.by_distance;
    const look = { mode: "lines+markers", marker: { size: 4 }, name: t("positions.similarity") };
    const curve = { x: y.map((_, i) => i), y, ...look };
    await chart(line, [curve], { x: t("positions.apart"), y: t("positions.similarity") });
  }

  return { changed };
}

function encodingPicture(encoding, width) {
  const [rows, columns] = encoding.shape;
  const highest = spread(encoding.values);
  const notes = [t("positions.axes", { rows, columns }), highest < extent(encoding.values) && t("positions.ends")];
  const body = matrix({
    values: encoding.values, rows, columns, signed: true, highest, width,
    tall: Math.max(TALL[0], Math.min(TALL[1], Math.floor(HIGH / rows))),
    label: t("positions.encoding"),
    describe: (position, number, value) => t("positions.cell", { position, number, value: plain(value) }),
  });
  return picture("encoding", t("positions.encoding"), body,
    h("p", { class: "note" }, notes.filter(Boolean).join(" ")));
}

function similarityPicture(similarity, width) {
  const [rows, columns] = similarity.shape;
  return picture("similarity", t("positions.alike"), matrix({
    values: similarity.values, rows, columns, signed: true, width,
    label: t("positions.alike"),
    describe: (one, other, value) => t("positions.two", { one, other, value: plain(value) }),
  }));
}

/** Of an image: how alike all patches' positions are to that of the chosen one. */
function patchesPicture(similarity, [rows, columns], state, put, width) {
  const chosen = index(state.at, rows * columns) ?? 0;
  const place = { row: Math.floor(chosen / columns) + 1, column: (chosen % columns) + 1 };
  const body = matrix({
    values: row(similarity, chosen), rows, columns, signed: true, highest: 1, width,
    label: t("positions.alike"),
    pick: (r, c) => put({ at: r * columns + c }),
    describe: (r, c, value) => t("positions.patchCell", { row: r + 1, column: c + 1, value: plain(value) }),
  });
  return picture("similarity", t("positions.patch", place), body,
    h("p", { class: "note unsaved" }, t("positions.pickPatch")));
}
