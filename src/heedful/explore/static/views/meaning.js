/* Meaning: one word in several sentences, what is near to it in each, a map of it, and the word without context. */

import { css, diverging } from "heedful/colours.js";
import { chooser, h } from "heedful/elements.js";
import { labelledPoints } from "heedful/labelled.js";
import { SENTENCE } from "heedful/looking.js";
import { decoded, index, percent, plain } from "heedful/numbers.js";
import { hue } from "heedful/palette.js";
import { picture } from "heedful/picture.js";
import { sentencesForm } from "heedful/sentences.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Devlin et al. 2018, BERT, section 5.3; Mikolov et al. 2013 (one vector a word); " +
    "Ethayarajh 2019 (how states of a word differ with context)",
  files: ["src/heedful/explore/meaning.py", "src/heedful/runs/contrast.py"],
};

/** What the view opens on: the first whose word the model knows whole. */
const EXAMPLES = [
  {
    word: "bank",
    sentences: ["He sat on the bank of the river.", "She put her money in the bank.",
                "The bank raised its interest rates.", "We walked along the bank and watched the boats."],
  },
  {
    word: "set",
    sentences: ["Set the value of the option.", "Return a set of strings.", "The union of this set and others.",
                "Use this function to set the name."],
  },
  { word: "it", sentences: [SENTENCE, SENTENCE.replace("tired", "wide")] },
  { word: "배", sentences: ["배 한 척이 바다에 떠 있다.", "배 하나를 깎아 먹었다.", "점심을 굶어 배 속이 비었다."] },
];

export function open({ root, model, put }) {
  const form = sentencesForm(({ word, sentences }) => put({ word, sentences: sentences.join("\n") }));
  const stage = h("div", { class: "meaning" });
  root.append(form, stage);

  async function changed({ state, ask }) {
    const told = state.word && state.sentences;
    const { word, sentences } = told
      ? { word: state.word, sentences: state.sentences.split("\n") }
      : await opening(model, ask);
    form.show(word, sentences);
    const layer = index(state.layer, model.layers + 1) ?? undefined;
    const answer = await ask("/explore/meaning", { model: model.name, word, sentences, layer });
    const place = h("div");
    const cards = answer.neighbours.map((near, i) => card(near, heading(sentences[i], word, i), i));
    const alone = [
      card(answer.context_free.neighbours, [t("meaning.without")], null),
      answer.word_vectors && vectorsCard(answer.word_vectors, word),
    ];
    const pick = (chosen) => put({ layer: Number(chosen) === answer.layers ? undefined : chosen });
    stage.replaceChildren(
      h("div", { class: "controls" }, chooser(t("attention.layer"), layers(answer.layers), answer.layer, pick)),
      h("div", { class: "alike-and-map" },
        picture("similarity", t("meaning.alike", { word }), alike(decoded(answer.similarity)),
          h("p", { class: "note" }, t("meaning.always"))),
        picture("map", t("meaning.map"), place, h("p", { class: "note" }, t("meaning.plane")))),
      picture("neighbours", t("meaning.neighbours", { word }), h("div", { class: "near" }, cards, alone)));
    const map = drawMap(answer.map, place);
    cards.forEach((one, i) => {
      one.addEventListener("pointerenter", () => map.only(i));
      one.addEventListener("pointerleave", () => map.only(null));
    });
  }

  return { changed };
}

/** The states as points: those of the word are large and say which sentence they are from. */
function drawMap(states, place) {
  const points = states.map(({ x, y, label, sentence, kind }) => ({
    x, y, label, group: sentence, large: kind === "word", mark: kind === "word" ? String(sentence + 1) : null,
    colour: hue(sentence), words: t("meaning.point", { word: label, number: sentence + 1 }),
  }));
  const width = Math.max(260, place.clientWidth);
  const height = Math.round(Math.max(280, Math.min(480, width * 0.72)));
  const map = labelledPoints({ points, width, height, label: t("meaning.map") });
  place.append(map);
  return map;
}

async function opening(model, ask) {
  const text = EXAMPLES.map(({ word }) => word).join(" ");
  const { tokens } = await ask("/explore/tokens", { model: model.name, text });
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
  const cell = (value) => h("td", {
    class: Math.abs(value) > 0.55 ? "strong" : null,
    data: { value },
    style: { background: css(colours, 0.5 + value / 2) },
  }, plain(value, 2));
  return h("div", { class: "sideways" }, h("table", { class: "alike" },
    h("thead", {}, h("tr", {}, h("td", {}), numbers.map((i) => h("th", { scope: "col" }, badge(i))))),
    h("tbody", {}, numbers.map((i) =>
      h("tr", {}, h("th", { scope: "row" }, badge(i)), numbers.map((j) => cell(values[i * count + j])))))));
}

function badge(i) {
  return h("span", { class: "badge", style: { background: hue(i) } }, String(i + 1));
}

/** A sentence with the word in it marked. */
function heading(sentence, word, i) {
  const at = sentence.search(new RegExp(`(?<![\\p{L}\\p{N}])${escaped(word)}(?![\\p{L}\\p{N}])`, "iu"));
  if (at < 0) return [badge(i), sentence];
  const end = at + word.length;
  const marked = h("b", { style: { color: hue(i) } }, sentence.slice(at, end));
  return [badge(i), h("span", {}, sentence.slice(0, at), marked, sentence.slice(end))];
}

function escaped(word) {
  return word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

/** What word vectors that stand beside the model say, which know no context either. */
function vectorsCard({ words, known, neighbours }, word) {
  const title = [t("meaning.vectors", { count: words.toLocaleString("en") })];
  return card(neighbours, title, null, "vectors", known ? t("meaning.none") : t("meaning.unknown", { word }));
}

/** What is near in one sentence, or (`i` null) without any. */
function card(near, title, i, name = i ?? "none", none = t("meaning.none")) {
  const highest = Math.max(...near.map(({ similarity }) => similarity), 1e-6);
  const fits = near.some(({ probability }) => typeof probability === "number");
  const background = i === null ? "var(--soft)" : hue(i);
  const bar = (similarity) => h("span", { class: "bar-track" },
    h("span", { class: "bar-fill", style: { width: `${Math.max(0, similarity / highest) * 100}%`, background } }));
  const fit = (share) => h("span", { class: "bar-number fits", title: t("meaning.fits") }, percent(share ?? 0));
  return h("section", { class: "near-card", data: { sentence: name } },
    h("h3", {}, title),
    near.length === 0 && h("p", { class: "note" }, none),
    h("ol", { class: `bars${fits ? " fitting" : ""}` }, near.map(({ word, similarity, probability }) =>
      h("li", {}, h("span", { class: "bar-name" }, word), bar(similarity),
        h("span", { class: "bar-number" }, plain(similarity, 2)), fits && fit(probability)))));
}
