/* A sentence as tokens that can be chosen. */

import { h, walkable } from "heedful/elements.js";

/** A token as people read it: the mark for a space before a word is drawn thin. */
export function shownText(token) {
  return token.text.replaceAll("▁", "_");
}

/** A row of buttons, one a token. */
export function tokenRow(tokens, chosen, pick, label) {
  const line = h("p", { class: "chips tokens", role: "group", aria: { label } }, tokens.map((token, index) =>
    h("button", { type: "button", class: `chip segment-${token.segment}${token.special ? " special" : ""}`, tabindex: "-1",
                  data: { index, focus: `token-${index}` }, aria: { pressed: String(index === chosen) },
                  onclick: () => pick(index) }, shownText(token))));
  walkable(line, ".chip")();
  return line;
}
