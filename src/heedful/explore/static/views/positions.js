/* Positions: the encoding as a picture, and how alike two positions are, by how far apart they stand. */

import { chart } from "heedful/charts.js";
import { h } from "heedful/elements.js";
import { matrix } from "heedful/matrix.js";
import { decoded, extent, plain, row, spread } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Vaswani et al. 2017, section 3.5 (sinusoidal); Devlin et al. 2018, section 3 (learned); Su et al. 2021 (rotary)",
  files: ["src/heedful/nn/positions.py", "src/heedful/nn/embeddings.py"],
};

const TALL = 3;

export function open({ root, model, put }) {
  async function changed({ state, ask }) {
    const answer = await ask("/explore/positions", { model: model.name });
    const encoding = decoded(answer.encoding);
    const similarity = decoded(answer.similarity);
    const line = h("div", { class: "chart", data: { chart: "distance" } });
    const pair = h("div", { class: "pair" });
    root.replaceChildren(h("p", { class: "kind" }, t(`positions.${answer.kind}`)));
    root.append(encodingPicture(encoding, root.clientWidth), pair);
    pair.append(picture("distance", t("positions.distance"), line));
    pair.prepend(answer.grid
      ? gridPicture(similarity, answer.grid, state, put, pair.clientWidth)
      : similarityPicture(similarity, pair.clientWidth));
    const distances = answer.by_distance.map((_, i) => i);
    await chart(line, [{ x: distances, y: answer.by_distance, mode: "lines+markers", marker: { size: 4 },
                         name: t("positions.similarity") }],
      { x: t("positions.apart"), y: t("positions.similarity") });
  }

  return { changed };
}

function encodingPicture(encoding, room) {
  const [rows, columns] = encoding.shape;
  const highest = spread(encoding.values);
  const note = [t("positions.axes", { rows, columns }), highest < extent(encoding.values) && t("positions.ends")];
  return picture("encoding", t("positions.encoding"), matrix({
    values: encoding.values, rows, columns, signed: true, highest, tall: Math.max(TALL, Math.min(14, Math.floor(384 / rows))),
    width: room - 44, label: t("positions.encoding"),
    describe: (at, number, value) => t("positions.cell", { position: at, number, value: plain(value) }),
  }), h("p", { class: "note" }, note.filter(Boolean).join(" ")));
}

function similarityPicture(similarity, room) {
  const [rows, columns] = similarity.shape;
  return picture("similarity", t("positions.alike"), matrix({
    values: similarity.values, rows, columns, signed: true, width: Math.min(half(room), 520), label: t("positions.alike"),
    describe: (one, other, value) => t("positions.two", { one, other, value: plain(value) }),
  }));
}

/** Of an image: how alike all patches' positions are to that of the chosen one. */
function gridPicture(similarity, [rows, columns], state, put, room) {
  const chosen = Math.min(rows * columns - 1, Number(state.at) || 0);
  return picture("similarity", t("positions.patch", { row: Math.floor(chosen / columns) + 1, column: (chosen % columns) + 1 }),
    matrix({ values: row(similarity, chosen), rows, columns, signed: true, highest: 1, width: Math.min(half(room), 420),
             label: t("positions.alike"), pick: (r, c) => put({ at: r * columns + c }),
             describe: (r, c, value) => t("positions.patchCell", { row: r + 1, column: c + 1, value: plain(value) }) }),
    h("p", { class: "note unsaved" }, t("positions.pickPatch")));
}

function half(room) {
  return (room > 820 ? (room - 24) / 2 : room) - 44;
}
