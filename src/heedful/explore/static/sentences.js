/* Where one types a word and the sentences it stands in. Knows nothing of what is done with them. */

import { h } from "heedful/elements.js";
import { hue } from "heedful/palette.js";
import { t } from "heedful/words.js";

const MOST = 16;

/** A form with `show(word, sentences)` that fills it in; `look({word, sentences})` is called with what was typed. */
export function sentencesForm(look) {
  const word = h("input", { type: "text", name: "word", required: true, spellcheck: "false", autocomplete: "off" });
  const list = h("ol", { class: "sentences", aria: { label: t("meaning.sentences") } });
  const add = h("button", { type: "button", class: "quiet", onclick: () => append("").focus() }, t("meaning.add"));
  const form = h("form", { class: "composer meaning-form", onsubmit: submit },
    h("label", { class: "field" }, h("span", {}, t("meaning.word")), word), list,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, t("text.look")), add));
  let told = "";

  function typed() {
    const texts = [...list.querySelectorAll("textarea")].map((area) => area.value.replace(/\s+/g, " ").trim());
    return { word: word.value.trim(), sentences: texts.filter(Boolean) };
  }

  function submit(event) {
    event?.preventDefault();
    const { word: asked, sentences } = typed();
    if (asked && sentences.length) look({ word: asked, sentences });
  }

  function append(text) {
    const [label, remove] = [t("text.sentence"), t("text.drop")];
    const area = h("textarea", { name: "sentence", rows: 1, spellcheck: "false", aria: { label }, value: text });
    const drop = h("button", { type: "button", class: "quiet", title: remove, aria: { label: remove } }, "×");
    const item = h("li", {}, h("span", { class: "badge" }), area, drop);
    drop.addEventListener("click", () => {
      item.remove();
      count();
      submit();
    });
    list.append(item);
    count();
    return area;
  }

  function count() {
    [...list.children].forEach((item, i) => {
      const badge = item.querySelector(".badge");
      badge.textContent = i + 1;
      badge.style.background = hue(i);
      item.querySelector("button").hidden = list.children.length < 2;
    });
    add.hidden = list.children.length >= MOST;
    grow();
  }

  function grow() {
    list.querySelectorAll("textarea").forEach((area) => {
      area.style.height = "auto";
      if (area.scrollHeight) area.style.height = `${area.scrollHeight + 2}px`;
    });
  }

  form.addEventListener("input", grow);
  form.addEventListener("keydown", (event) => {
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (sends && event.target.matches("textarea")) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.show = (shownWord, sentences) => {
    const next = JSON.stringify([shownWord, sentences]);
    const same = JSON.stringify(Object.values(typed())) === next && list.children.length === sentences.length;
    if (next !== told && !same) { // what is being typed stays
      word.value = shownWord;
      list.replaceChildren();
      sentences.forEach(append);
    }
    told = next;
    count();
  };
  return form;
}
