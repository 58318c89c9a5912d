/* A frame around a picture: its title, what it says, and the buttons that save it. */

import { h } from "heedful/elements.js";
import { savePng, saveSvg } from "heedful/save.js";
import { t } from "heedful/words.js";

/** A figure named `name` (in the file's name and for tests), with the content that is saved. */
export function picture(name, title, ...content) {
  const body = h("div", { class: "picture-body" }, ...content);
  const save = (keep) => () => keep(body, `heedful-${name}`);
  return h("figure", { class: "picture", data: { picture: name } },
    h("figcaption", {}, h("h2", {}, title),
      h("div", { class: "saves", role: "group", aria: { label: t("save.label", { title }) } },
        h("button", { type: "button", class: "quiet", title: t("save.png"), onclick: save(savePng) }, "PNG"),
        h("button", { type: "button", class: "quiet", title: t("save.svg"), onclick: save(saveSvg) }, "SVG"))),
    body);
}
