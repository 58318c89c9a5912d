/* Tokens as people read them and choose them. */

import { h, walkable } from "heedful/elements.js";

/** The text of a token; the mark for a space before a word is drawn thin. */
export function shownText(token) {
  return token ? token.text.replaceAll("▁", "_") : "";
}

/** The word that a token is, for looking it up: in small letters, without marks. */
export function word(token) {
  return token.text.toLowerCase().replaceAll("▁", "");
}

/** The classes that say what a token is. */
export function kinds(token) {
  return `segment-${token.segment}${token.special ? " special" : ""}`;
}

/** A row of buttons, one a token; those that are not `held` can't be chosen. */
export function tokenRow(tokens, chosen, pick, label, held) {
  const button = (token, index) => h("button", {
    type: "button",
    class: `chip ${kinds(token)}`,
    tabindex: "-1",
    disabled: !held(index),
    data: { index, focus: `token-${index}` },
    aria: { pressed: String(index === chosen) },
    onclick: () => pick(index),
  }, shownText(token));
  const line = h("p", { class: "chips tokens", role: "group", aria: { label } }, tokens.map(button));
  walkable(line, ".chip")();
  return line;
}
