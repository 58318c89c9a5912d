/* Meaning: one word in several sentences, what it is close to in each, all of it on a map, and the word without context. */

import { css, diverging } from "heedful/colours.js";
import { chooser, h } from "heedful/elements.js";
import { whole } from "heedful/fields.js";
import { labelledPoints } from "heedful/labelled.js";
import { decoded, percent, plain } from "heedful/numbers.js";
import { hue } from "heedful/palette.js";
import { picture } from "heedful/picture.js";
import { sentencesForm } from "heedful/sentences.js";
import { SENTENCE } from "heedful/views/attention.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Devlin et al. 2018, BERT, section 5.3; Mikolov et al. 2013 (one vector a word); Ethayarajh 2019 (how states of a " +
    "word differ with context)",
  files: ["src/heedful/explore/meaning.py", "src/heedful/runs/contrast.py"],
};

/** What the view opens on: the first whose word the model knows whole. */
const EXAMPLES = [
  { word: "bank", sentences: ["He sat on the bank of the river.", "She put her money in the bank.",
                              "The bank raised its interest rates.", "We walked along the bank and watched the boats."] },
  { word: "set", sentences: ["Set the value of the option.", "Return a set of strings.", "The union of this set and others.",
                             "Use this function to set the name."] },
  { word: "it", sentences: [SENTENCE, SENTENCE.replace("tired", "wide")] },
  { word: "배", sentences: ["배 한 척이 바다에 떠 있다.", "배 하나를 깎아 먹었다.", "점심을 굶어 배 속이 비었다."] },
];

export function open({ root, model, put }) {
  const form = sentencesForm(({ word, sentences }) => put({ word, sentences: sentences.join("\n") }));
  const stage = h("div", { class: "meaning" });
  root.append(form, stage);

  async function changed({ state, ask }) {
    const example = state.word && state.sentences ? null : await opening(model, ask);
    const { word, sentences } = example ?? { word: state.word, sentences: state.sentences.split("\n") };
    form.show(word, sentences);
    const layer = whole(state.layer, model.layers + 1);
    const answer = await ask("/explore/meaning", { model: model.name, word, sentences, layer: layer ?? undefined });
    const points = answer.map.map((point) => ({ ...point, group: point.sentence, large: point.kind === "word",
      mark: point.kind === "word" ? String(point.sentence + 1) : null, colour: hue(point.sentence),
      words: t("meaning.point", { word: point.label, number: point.sentence + 1 }) }));
    const place = h("div", { class: "map" });
    const cards = answer.neighbours.map((near, i) => card(near, heading(sentences[i], word, i), i));
    stage.replaceChildren(
      h("div", { class: "controls" }, chooser(t("attention.layer"), layers(answer.layers), answer.layer,
        (chosen) => put({ layer: Number(chosen) === answer.layers ? undefined : chosen }))),
      h("div", { class: "alike-and-map" },
        picture("similarity", t("meaning.alike", { word }), alike(decoded(answer.similarity)),
          h("p", { class: "note" }, t("meaning.always"))),
        picture("map", t("meaning.map"), place, h("p", { class: "note" }, t("meaning.plane")))),
      picture("neighbours", t("meaning.neighbours", { word }), h("div", { class: "near" }, cards,
        card(answer.context_free.neighbours, [t("meaning.without")], null))));
    const width = Math.max(260, place.clientWidth);
    const map = labelledPoints({ points, width, height: Math.round(Math.max(280, Math.min(480, width * 0.72))), label: t("meaning.map") });
    place.append(map);
    cards.forEach((one, i) => {
      one.addEventListener("pointerenter", () => map.only(i));
      one.addEventListener("pointerleave", () => map.only(null));
    });
  }

  return { changed };
}

async function opening(model, ask) {
  const { tokens } = await ask("/explore/tokens", { model: model.name, text: EXAMPLES.map(({ word }) => word).join(" ") });
  const known = new Set(tokens.map((token) => token.text));
  return EXAMPLES.find(({ word }) => known.has(word)) ?? EXAMPLES[0];
}

function layers(count) {
  return Array.from({ length: count + 1 }, (_, i) => [i, i === 0 ? t("meaning.input") : String(i)]);
}

/** A table of numbers on their colours. */
function alike({ shape: [count], values }) {
  const colours = diverging();
  const numbers = Array.from({ length: count }, (_, i) => i);
  return h("div", { class: "sideways" }, h("table", { class: "alike" },
    h("thead", {}, h("tr", {}, h("td", {}), numbers.map((i) => h("th", { scope: "col" }, badge(i))))),
    h("tbody", {}, numbers.map((i) => h("tr", {}, h("th", { scope: "row" }, badge(i)), numbers.map((j) => {
      const value = values[i * count + j];
      return h("td", { class: Math.abs(value) > 0.55 ? "strong" : null, data: { value },
                       style: { background: css(colours, 0.5 + value / 2) } }, plain(value, 2));
    }))))));
}

function badge(i) {
  return h("span", { class: "badge", style: { background: hue(i) } }, String(i + 1));
}

/** A sentence with the word in it marked. */
function heading(sentence, word, i) {
  const at = sentence.search(new RegExp(`(?<![\\p{L}\\p{N}])${escaped(word)}(?![\\p{L}\\p{N}])`, "iu"));
  if (at < 0) return [badge(i), sentence];
  return [badge(i), h("span", {}, sentence.slice(0, at), h("b", { style: { color: hue(i) } }, sentence.slice(at, at + word.length)),
    sentence.slice(at + word.length))];
}

function escaped(word) {
  return word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

/** What is near in one sentence, or without any. */
function card(near, title, i) {
  const highest = Math.max(...near.map(({ similarity }) => similarity), 1e-6);
  const fits = near.some(({ probability }) => typeof probability === "number");
  return h("section", { class: "near-card", data: { sentence: i ?? "none" } }, h("h3", {}, title),
    near.length === 0 && h("p", { class: "note" }, t("meaning.none")),
    h("ol", { class: `bars${fits ? " fitting" : ""}` }, near.map(({ word, similarity, probability }) =>
      h("li", {}, h("span", { class: "bar-name" }, word),
        h("span", { class: "bar-track" }, h("span", { class: "bar-fill",
          style: { width: `${Math.max(0, similarity / highest) * 100}%`, background: i === null ? "var(--soft)" : hue(i) } })),
        h("span", { class: "bar-number" }, plain(similarity, 2)),
        fits && h("span", { class: "bar-number fits", title: t("meaning.fits") },
          typeof probability === "number" ? percent(probability) : "")))));
}
