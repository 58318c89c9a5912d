/* Inside one head: for a chosen word q·k, divided by √d, masked, softmax, times v; and the same with a part left out. */

import { composer } from "heedful/composer.js";
import { chooser, h, segments } from "heedful/elements.js";
import { formula, workings } from "heedful/workings.js";
import { decoded } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { shownText, tokenRow } from "heedful/tokens.js";
import { NUMBER, SENTENCE } from "heedful/views/attention.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Vaswani et al. 2017, Attention Is All You Need, section 3.2.1, equation 1, and footnote 4 on the scale",
  files: ["src/heedful/nn/attention.py", "src/heedful/explore/trace.py"],
};

const CHANGES = ["scale", "mask", "positions"];
const PADDINGS = [0, 1, 2, 4, 8];

export function open({ root, model, put }) {
  const translates = model.family === "transformer" || model.family === "rnn";
  const parts = model.parts ?? ["encoder"];
  const form = composer(({ text, pair }) => put({ text, pair, token: undefined, source: undefined }), {
    pairLabel: translates ? t("attention.target") : t("text.pair"),
    pairAdd: translates ? t("attention.addTarget") : t("text.add"),
  });
  const stage = h("div", { class: "inside" });
  root.append(form, stage);

  async function changed({ state, ask }) {
    const text = state.text ?? (translates ? NUMBER : SENTENCE);
    form.show(text, state.pair);
    const part = parts.includes(state.part) ? state.part : parts[0];
    const layers = part === "encoder" ? model.layers : (model.decoder_layers ?? model.layers);
    const place = { layer: whole(state.layer, layers) ?? 0, head: whole(state.head, model.heads) ?? 0 };
    const padding = PADDINGS.includes(Number(state.padding)) ? Number(state.padding) : 0;
    const body = { model: model.name, text, pair: state.pair, part: part === "encoder" ? undefined : part, ...place,
                   padding: padding || undefined };
    const token = await rowFor(state, body, ask);
    const answer = await ask("/explore/head", { ...body, token });
    const inside = { ...answer, keys: decoded(answer.keys), values: decoded(answer.values) };
    const changes = CHANGES.filter((name) => answer.without[name]);
    const change = changes.includes(state.without) ? state.without : null;
    const strongest = answer.weights.indexOf(Math.max(...answer.weights));
    const source = whole(state.source, answer.weights.length) ?? strongest;
    stage.replaceChildren(
      h("div", { class: "controls" },
        parts.length > 1 && segments(t("attention.part"), parts.map((one) => [one, t(`attention.${one}`)]), part,
          (value) => put({ part: value, layer: undefined, head: undefined, token: undefined, source: undefined })),
        counted(t("attention.layer"), layers, place.layer, (layer) => put({ layer })),
        counted(t("attention.head"), model.heads, place.head, (head) => put({ head })),
        part === "encoder" && model.family !== "vit" && chooser(t("head.padding"), PADDINGS.map((one) => [one, String(one)]),
          padding, (value) => put({ padding: Number(value) || undefined, source: undefined })),
        changes.length > 0 && h("div", { class: "field" }, h("span", {}, t("head.change")),
          segments(t("head.change"), [["", t("head.nothing")], ...changes.map((name) => [name, t(`head.${name}`)])],
            change ?? "", (value) => put({ without: value || undefined })))),
      h("div", { class: "asker" }, h("h2", {}, t("head.asks")),
        tokenRow(answer.target_tokens ?? answer.tokens, token, (index) => put({ token: index, source: undefined }),
          t("head.asks"))),
      picture("workings", t("head.workings", { layer: place.layer + 1, head: place.head + 1,
                                               word: shownText((answer.target_tokens ?? answer.tokens)[token]) }),
        workings({ inside, change, source, pick: (index) => put({ source: index }), all: state.all === "1",
                   showAll: () => put({ all: 1 }) })),
      picture("formula", t("head.formula", { word: shownText(answer.tokens[source]) }), formula({ inside, source, change })));
  }

  return { changed };
}

/** The row that asks: that of the address, or *it*, or the first that is a word. */
async function rowFor(state, body, ask) {
  const { layer, head, padding, ...rest } = body;
  const grid = await ask("/explore/attention/grid", rest);
  const rows = grid.target_tokens ?? grid.tokens;
  const asked = whole(state.token, rows.length);
  if (asked !== null) return asked;
  const it = rows.findIndex((token) => token.text.toLowerCase().replace("▁", "") === "it");
  return it >= 0 ? it : Math.max(0, rows.findIndex((token) => !token.special));
}

function counted(label, count, chosen, pick) {
  return chooser(label, Array.from({ length: count }, (_, i) => [i, String(i + 1)]), chosen, pick);
}

function whole(value, count) {
  const number = Number(value);
  return value !== undefined && Number.isInteger(number) && number >= 0 && number < count ? number : null;
}
