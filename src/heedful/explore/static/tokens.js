/* A sentence as tokens that can be chosen. */

import { h, walkable } from "heedful/elements.js";

/** A row of buttons, one a token. */
export function tokenRow(tokens, chosen, pick, label) {
  const line = h("p", { class: "chips tokens", role: "group", aria: { label } }, tokens.map((token, index) =>
    h("button", { type: "button", class: `chip segment-${token.segment}${token.special ? " special" : ""}`, tabindex: "-1",
                  data: { index, focus: `token-${index}` }, aria: { pressed: String(index === chosen) },
                  onclick: () => pick(index) }, token.text)));
  walkable(line, ".chip")();
  return line;
}
