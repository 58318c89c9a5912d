/* Blanks: hide words and see what the model would write there; or let it write, step by step. */

import { answered, exported } from "heedful/api.js";
import { bars } from "heedful/bars.js";
import { composer } from "heedful/composer.js";
import { chooser, h } from "heedful/elements.js";
import { numberField } from "heedful/fields.js";
import { percent } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { player } from "heedful/player.js";
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
const GENERATE = "/explore/generate";
const ORDERS = ["mask-predict", "gibbs"];
const WORDS = 8;

export function open({ root, model, put }) {
  const form = composer(({ text }) => put({ text, hide: undefined, write: undefined }));
  const stage = h("div", { class: "blanks" });
  root.append(form, stage);
  let playing = null;

  async function changed({ state, ask }) {
    const text = state.text ?? TEXT;
    form.show(text);
    const words = split(text, state.hide ?? (state.text === undefined ? HIDDEN : ""));
    const holes = words.filter((word) => word.hidden);
    const masked = joined(text, words, (word) => (word.hidden ? MASK : word.text));
    const answer = holes.length
      ? await ask("/explore/blanks", { model: model.name, text: masked, count: COUNT })
      : { blanks: [], filled: null };
    const written = state.write === undefined ? null : await ask(GENERATE, generation(masked, state));
    const orders = ORDERS.filter((order) => answered(GENERATE, generation(masked, { ...state, order })));
    playing?.stop();
    playing = written && player(written.steps.map(frame), t("blanks.step"));
    stage.replaceChildren(
      picture("words", t("blanks.hide"), chips(words, text),
        answer.filled === null
          ? h("p", { class: "note" }, t("blanks.none"))
          : h("p", { class: "filled" }, answer.filled)),
      h("div", { class: "candidates", hidden: !holes.length },
        answer.blanks.map((blank, i) => candidates(blank, i, holes[i], words, text))),
      orders.length ? picture("writing", t("blanks.writing"),
        h("p", { class: "note unsaved" }, t(holes.length ? "blanks.into" : "blanks.after")),
        writing(state, orders, holes.length > 0), playing ?? []) : "");
  }

  /** The text's words as buttons that hide them; in an exported page one at a time, as its answers are. */
  function chips(words, text) {
    const turn = (word) => {
      const hidden = words.filter((one) => (one === word ? !one.hidden : one.hidden && !exported));
      put({ text, hide: listed(hidden), write: undefined });
    };
    const chip = (word) => h("button", {
      type: "button",
      class: "chip",
      disabled: word.blank,
      data: { saved: "", focus: `word-${word.number}` },
      aria: { pressed: String(word.hidden) },
      onclick: () => turn(word),
    }, word.text);
    return h("p", { class: "chips", role: "group", aria: { label: t("blanks.hide") } }, words.map(chip));
  }

  /** What may stand in a blank; a click writes it there, but in an exported page, which knows no other text. */
  function candidates(blank, number, word, words, text) {
    const write = (token) => {
      const left = words.filter((one) => one.hidden && one !== word);
      put({ text: replaced(text, words, word, token), hide: listed(left), write: undefined });
    };
    const name = (token) => h("button", {
      type: "button",
      class: "bar-name",
      title: t("blanks.write", { word: token }),
      data: { saved: "" },
      onclick: () => write(token),
    }, token);
    const title = word.blank ? t("blanks.blank", { number: number + 1 }) : t("blanks.for", { word: word.text });
    const original = word.text.toLowerCase();
    return picture(`blank-${number + 1}`, title, bars(blank.candidates.map(({ token, probability }) => ({
      name: exported ? token : name(token),
      share: probability,
      class: token.toLowerCase() === original ? "right" : null,
    }))));
  }

  function generation(text, state) {
    const order = ORDERS.includes(state.order) ? state.order : ORDERS[0];
    return { model: model.name, text, words: Number(state.words ?? WORDS), seed: Number(state.seed ?? 0), order };
  }

  function writing(state, orders, intoBlanks) {
    const number = (name, label, value, low, high) =>
      numberField({ label, name, value, low, high, pick: (kept) => put({ [name]: kept }, { replace: true }) });
    return h("div", { class: "controls unsaved" },
      chooser(t("blanks.order"), orders.map((order) => [order, t(`blanks.${order}`)]), state.order ?? ORDERS[0],
        (order) => put({ order }, { replace: true })),
      !exported && !intoBlanks && number("words", t("blanks.count"), state.words ?? WORDS, 1, 32),
      !exported && number("seed", t("blanks.seed"), state.seed ?? 0, 0, 9999),
      h("button", { type: "button", class: "primary", data: { focus: "write" }, onclick: () => put({ write: 1 }) },
        t("blanks.go")));
  }

  return { changed, close: () => playing?.stop() };
}

/** The words of a text with where they stand; those of `hide` ("1,4") and typed blanks are hidden. */
function split(text, hide) {
  const hidden = new Set(hide.split(",").filter(Boolean).map(Number));
  return [...text.matchAll(WORD)].map(({ 0: word, index: start }, number) => {
    const blank = word === MASK;
    return { text: word, number, start, end: start + word.length, blank, hidden: blank || hidden.has(number) };
  });
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

/** The text with a token in place of a word; a piece of a word joins what stands before it. */
function replaced(text, words, word, token) {
  const continues = token.startsWith("##");
  const whole = joined(text, words, (one) => (one === word ? token.replace(/^##/, "") : one.text));
  const gap = continues && text[word.start - 1] === " ";
  return gap ? whole.slice(0, word.start - 1) + whole.slice(word.start) : whole;
}

/** Hidden words as the address names them. */
function listed(hidden) {
  return hidden.filter((word) => !word.blank).map((word) => word.number).join(",") || "none";
}

/** One step of writing: the text with its blanks, and what was written last with how sure the model was. */
function frame({ text, written }) {
  const hole = () => h("span", { class: "hole" }, "\u00a0");
  const parts = text.split(MASK).flatMap((part, i) => (i ? [hole(), part] : [part]));
  return [
    h("p", { class: "written" }, parts),
    h("ul", { class: "wrote" }, written.map(({ token, probability }) =>
      h("li", {}, h("b", {}, token), " ", h("span", { class: "note" }, percent(probability))))),
  ];
}
