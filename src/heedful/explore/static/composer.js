/* Where one types the sentence, and a second one if there is to be one. Knows nothing of what is done with them.

An exported page has answers for its own text alone, which is then only told. */

import { exported } from "heedful/api.js";
import { h } from "heedful/elements.js";
import { t } from "heedful/words.js";

/** A form with `show(text, pair)` that fills it in; `look({text, pair})` is called with what was typed.

`pairLabel` and `pairAdd` are words for the second text; without them there is none. */
export function composer(look, { pairLabel = null, pairAdd = null } = {}) {
  if (exported) return given(pairLabel);
  const text = field("text", t("text.sentence"));
  const pair = field("pair", pairLabel ?? "");
  const add = h("button", { type: "button", class: "quiet", onclick: () => unfold(true) }, pairAdd ?? "");
  const drop = h("button", { type: "button", class: "quiet", onclick: remove }, t("text.drop"));
  const second = h("div", { class: "second" }, pair, drop);
  const form = h("form", { class: "composer", onsubmit: submit },
    text, pairLabel ? [second, add] : [], h("button", { type: "submit", class: "primary" }, t("text.look")));
  const [one, two] = [text, pair].map((part) => part.querySelector("textarea"));

  function submit(event) {
    event?.preventDefault();
    look({ text: one.value, pair: pairLabel && !second.hidden && two.value.trim() ? two.value : undefined });
  }

  function unfold(open) {
    second.hidden = !open;
    add.hidden = open;
    if (open) two.focus();
    grow();
  }

  function grow() {
    for (const area of [one, two]) {
      area.style.height = "auto";
      if (area.scrollHeight) area.style.height = `${area.scrollHeight + 2}px`;
    }
  }

  function remove() {
    two.value = "";
    second.hidden = true;
    add.hidden = false;
    submit();
  }

  form.addEventListener("input", grow);
  form.addEventListener("keydown", (event) => {
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing; // of Hangul that is being composed
    if (sends && event.target.matches("textarea")) submit(event);
  });
  form.show = (first, other) => {
    one.value = first;
    two.value = other ?? "";
    second.hidden = other === undefined;
    add.hidden = other !== undefined;
    grow();
  };
  return form;
}

/** The text alone, with the reason why no other can be typed. */
function given(pairLabel) {
  const element = h("div", { class: "composer" });
  const told = (label, text) => h("p", { class: "field wide given" }, h("span", {}, label), h("b", {}, text));
  element.show = (text, pair) => element.replaceChildren(
    told(t("text.sentence"), text), ...(pair === undefined ? [] : [told(pairLabel, pair)]),
    h("p", { class: "note" }, t("text.given")));
  return element;
}

function field(name, label) {
  const area = h("textarea", { name, rows: 1, spellcheck: "false" });
  return h("label", { class: "field wide" }, h("span", {}, label), area);
}
