/* Blanks: hide words and see what the model would write there; or let it write, step by step. */

import { chooser, h } from "heedful/elements.js";
import { percent } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { player } from "heedful/player.js";
import { composer } from "heedful/composer.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Devlin et al. 2018, BERT, section 3.1, task 1; writing: Ghazvininejad et al. 2019 and Wang & Cho 2019",
  files: ["src/heedful/predict/blanks.py", "src/heedful/predict/generation.py"],
};

const TEXT = "The capital of France is Paris.";
const HIDDEN = "5";
const MASK = "[MASK]";
const COUNT = 8;
const WORD = /\[MASK\]|[\p{L}\p{N}\p{M}]+(?:['’-][\p{L}\p{N}\p{M}]+)*|\S/gu;
const ORDERS = ["mask-predict", "gibbs"];

export function open({ root, model, put }) {
  const form = composer(({ text }) => put({ text, hide: undefined, write: undefined }));
  const stage = h("div", { class: "blanks" });
  root.append(form, stage);
  let playing = null;

  async function changed({ state, ask }) {
    const text = state.text ?? TEXT;
    const words = split(text, state.hide ?? (state.text === undefined ? HIDDEN : ""));
    form.show(text);
    const masked = joined(text, words, (word) => (word.hidden ? MASK : word.text));
    const none = !words.some((word) => word.hidden);
    const answer = none ? null : await ask("/explore/blanks", { model: model.name, text: masked, count: COUNT });
    const steps = state.write === undefined ? null : await ask("/explore/generate", generation(model, masked, state));
    playing?.stop();
    playing = steps && player(steps.steps.map((step) => written(step)), t("blanks.step"));
    stage.replaceChildren(
      picture("words", t("blanks.hide"), chips(words, state, text, put),
        none ? h("p", { class: "note" }, t("blanks.none")) : h("p", { class: "filled" }, answer.filled)),
      ...(none ? [] : [h("div", { class: "candidates" }, answer.blanks.map((blank, i) =>
        candidates(blank, i, words.filter((word) => word.hidden)[i], text, words, put)))]),
      picture("writing", t("blanks.writing"), h("p", { class: "note unsaved" }, t(none ? "blanks.after" : "blanks.into")),
        writingControls(state, none, put), playing ?? []));
  }

  return { changed, close: () => playing?.stop() };
}

/** The words of a text with where they stand, and whether they are hidden. */
function split(text, hide) {
  const hidden = new Set(hide.split(",").filter(Boolean).map(Number));
  return [...text.matchAll(WORD)].map(({ 0: word, index }, number) => ({
    text: word, number, start: index, end: index + word.length, blank: word === MASK, hidden: word === MASK || hidden.has(number),
  }));
}

/** The text again, each word written by a function. */
function joined(text, words, write) {
  let out = "";
  let at = 0;
  for (const word of words) {
    out += text.slice(at, word.start) + write(word);
    at = word.end;
  }
  return out + text.slice(at);
}

function chips(words, state, text, put) {
  const toggle = (word) => {
    const hidden = words.filter((one) => !one.blank && (one === word ? !one.hidden : one.hidden)).map((one) => one.number);
    put({ text, hide: hidden.join(",") || "none", write: undefined });
  };
  return h("p", { class: "chips", role: "group", aria: { label: t("blanks.hide") } }, words.map((word) =>
    h("button", { type: "button", class: "chip", disabled: word.blank, data: { saved: "", focus: `word-${word.number}` },
                  aria: { pressed: String(word.hidden) }, onclick: () => toggle(word) },
    word.blank ? MASK : word.text)));
}

function candidates(blank, number, word, text, words, put) {
  const highest = blank.candidates[0]?.probability || 1;
  const original = word.blank ? null : word.text.toLowerCase();
  const write = (token) => {
    const joins = token.startsWith("##");
    const changedText = joined(text, words, (one) => (one === word ? token.replace(/^##/, "") : one.text));
    const gap = joins && text[word.start - 1] === " ";
    const hidden = words.filter((one) => one.hidden && !one.blank && one !== word).map((one) => one.number);
    put({ text: gap ? changedText.slice(0, word.start - 1) + changedText.slice(word.start) : changedText,
          hide: hidden.join(",") || "none", write: undefined });
  };
  const title = original === null ? t("blanks.blank", { number: number + 1 }) : t("blanks.for", { word: word.text });
  return picture(`blank-${number + 1}`, title, h("ol", { class: "bars" }, blank.candidates.map(({ token, probability }) => {
    const right = token.toLowerCase() === original;
    return h("li", { class: right ? "right" : null },
      h("button", { type: "button", class: "bar-name", title: t("blanks.write", { word: token }), data: { saved: "" },
                    onclick: () => write(token) }, token),
      h("span", { class: "bar-track" },
        h("span", { class: "bar-fill", style: { width: `${(probability / highest) * 100}%` } })),
      h("span", { class: "bar-number" }, percent(probability)));
  })));
}

function generation(model, text, state) {
  return { model: model.name, text, words: Number(state.words ?? 8), seed: Number(state.seed ?? 0),
           order: ORDERS.includes(state.order) ? state.order : ORDERS[0] };
}

function writingControls(state, none, put) {
  const number = (name, label, value, low, high) => {
    const input = h("input", { type: "number", min: low, max: high, value, data: { focus: name }, onchange: () => {
      const wanted = Math.max(low, Math.min(high, Math.round(Number(input.value)) || low));
      put({ [name]: wanted }, { replace: true });
    } });
    return h("label", { class: "field" }, h("span", {}, label), input);
  };
  return h("div", { class: "controls unsaved" },
    chooser(t("blanks.order"), ORDERS.map((order) => [order, t(`blanks.${order}`)]), state.order ?? ORDERS[0],
      (order) => put({ order }, { replace: true })),
    none && number("words", t("blanks.count"), state.words ?? 8, 1, 32),
    number("seed", t("blanks.seed"), state.seed ?? 0, 0, 9999),
    h("button", { type: "button", class: "primary", data: { focus: "write" }, onclick: () => put({ write: 1 }) },
      t("blanks.go")));
}

/** One step: the text with its blanks, and which token was written last and how sure the model was. */
function written(step) {
  const parts = step.text.split(MASK).flatMap((part, i) => (i ? [h("span", { class: "hole" }, "\u00a0"), part] : [part]));
  const token = step.token === undefined || step.token === null ? null
    : h("span", { class: "note" }, `${step.token} ${step.probability === undefined ? "" : percent(step.probability)}`);
  return [h("p", { class: "written" }, parts), token];
}
