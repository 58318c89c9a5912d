/* "What am I looking at": a few lines for each view, with the paper and the file of ours that computes it. */

import { h } from "heedful/elements.js";
import { kept, keep } from "heedful/memory.js";
import { t } from "heedful/words.js";

/** The explanation of a view, folded or not as the reader left it. */
export function explanation(view, { paper, files }) {
  const details = h("details", { class: "what", open: kept("what") === "open",
                                 ontoggle: () => keep("what", details.open ? "open" : null) },
    h("summary", {}, t("what.ask")),
    t(`${view}.what`).split("\n").map((lines) => h("p", {}, lines)),
    h("dl", {},
      h("dt", {}, t("what.paper")), h("dd", {}, paper),
      h("dt", {}, t("what.files")), h("dd", {}, files.map((file) => h("code", {}, file)))));
  return details;
}
