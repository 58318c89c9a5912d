/* Inside one head: for a chosen word q·k, divided by √d, masked, softmax, times v; and the same without a part. */

import { answered } from "heedful/api.js";
import { chooser, h, segments } from "heedful/elements.js";
import { looking } from "heedful/looking.js";
import { decoded, index, numbered } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { shownText, tokenRow, word } from "heedful/tokens.js";
import { t } from "heedful/words.js";
import { formula, workings } from "heedful/workings.js";

export const what = {
  paper: "Vaswani et al. 2017, Attention Is All You Need, section 3.2.1, equation 1, and footnote 4 on the scale",
  files: ["src/heedful/nn/attention.py", "src/heedful/explore/sites.py"],
};

const HEAD = "/explore/head";
const CHANGES = ["scale", "mask", "positions"];
const PADDINGS = [0, 1, 2, 4, 8];

export function open({ root, model, put }) {
  const { form, parts, asked } = looking(model, ({ text, pair }) => put({ text, pair, token: undefined, source: undefined }));
  const stage = h("div", { class: "inside" });
  root.append(form, stage);

  async function changed({ state, ask }) {
    const { part, body } = asked(state);
    const layers = part === "encoder" ? model.layers : (model.decoder_layers ?? model.layers);
    const place = { layer: index(state.layer, layers) ?? 0, head: index(state.head, model.heads) ?? 0 };
    const padding = part !== "decoder" && PADDINGS.includes(Number(state.padding)) ? Number(state.padding) : 0;
    const more = part === "encoder" ? padding : 0; // behind the source, where a target's words only look
    const question = (change) => ({ ...body, ...place, padding: padding || undefined, ...change });
    const held = (change) => answered(HEAD, question(change));
    const grid = await ask("/explore/attention/grid", body);
    const token = askingRow(state, grid, more, (row) => held({ token: row }));
    const answer = await ask(HEAD, question({ token }));
    const inside = { ...answer, keys: decoded(answer.keys), values: decoded(answer.values) };
    const changes = CHANGES.filter((name) => answer.without[name]);
    const change = changes.includes(state.without) ? state.without : null;
    const heaviest = answer.weights.indexOf(Math.max(...answer.weights));
    const source = index(state.source, answer.weights.length) ?? heaviest;
    const asking = answer.target_tokens ?? answer.tokens;
    const names = { layer: place.layer + 1, head: place.head + 1, word: shownText(asking[token]) };
    stage.replaceChildren(
      h("div", { class: "controls" }, controls({
        parts, part, layers, place, padding, changes, change, held: (other) => held({ token, ...other }) })),
      h("div", { class: "asker" }, h("h2", {}, t("head.asks")),
        tokenRow(asking, token, (row) => put({ token: row, source: undefined }), t("head.asks"),
          (row) => held({ token: row }))),
      picture("workings", t("head.workings", names), workings({
        inside, change, source, all: state.all === "1",
        pick: (row) => put({ source: row }),
        showAll: () => put({ all: 1 }),
      })),
      picture("formula", t("head.formula", { word: shownText(answer.tokens[source]) }),
        formula({ inside, source, change })));
  }

  function controls({ parts, part, layers, place, padding, changes, change, held }) {
    const paddings = PADDINGS.filter((count) => held({ padding: count || undefined }));
    const another = { layer: undefined, head: undefined, token: undefined, source: undefined };
    const without = [["", t("head.nothing")], ...changes.map((name) => [name, t(`head.${name}`)])];
    return [
      parts.length > 1 && segments(t("attention.part"), parts.map((one) => [one, t(`attention.${one}`)]), part,
        (value) => put({ ...another, part: value })),
      chooser(t("attention.layer"), numbered(layers).filter(([layer]) => held({ layer })), place.layer,
        (layer) => put({ layer })),
      chooser(t("attention.head"), numbered(model.heads).filter(([head]) => held({ head })), place.head,
        (head) => put({ head })),
      part !== "decoder" && paddings.length > 1 &&
        chooser(t("head.padding"), paddings.map((count) => [count, String(count)]), padding,
          (value) => put({ padding: Number(value) || undefined, source: undefined })),
      changes.length > 0 && h("div", { class: "field" }, h("span", {}, t("head.change")),
        segments(t("head.change"), without, change ?? "", (value) => put({ without: value || undefined }))),
    ];
  }

  return { changed };
}

/** The row that asks: that of the address if it is `held`, or *it*, or the first that is a word. */
function askingRow(state, grid, padding, held) {
  const rows = grid.target_tokens ?? grid.tokens;
  const asked = index(state.token, rows.length + padding);
  if (asked !== null && held(asked)) return asked;
  const it = rows.findIndex((token) => word(token) === "it");
  return it >= 0 ? it : Math.max(0, rows.findIndex((token) => !token.special));
}
