/* Images: which patches a head looks at, over the picture; rollout through all layers; and what the model takes it for. */

import { digit, DIGITS } from "heedful/digits.js";
import { chooser, h, walkable } from "heedful/elements.js";
import { whole } from "heedful/fields.js";
import { headGrid } from "heedful/headgrid.js";
import { canvasData, forAddress, fromAddress, packed, receive } from "heedful/images.js";
import { decoded, percent } from "heedful/numbers.js";
import { patches } from "heedful/patches.js";
import { picture } from "heedful/picture.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Dosovitskiy et al. 2020, An Image is Worth 16x16 Words, sections 3.1 and 4.5; rollout: Abnar & Zuidema 2020, section 3",
  files: ["src/heedful/models/vit.py", "src/heedful/explore/images.py"],
};

export function open({ root, model, put }) {
  const trouble = h("p", { class: "note bad", role: "alert" });
  const file = h("input", { type: "file", accept: "image/*", id: "image-file", class: "file", onchange: () => take(file.files[0]) });
  const row = h("div", { class: "digits", role: "group", aria: { label: t("images.digits") } }, DIGITS.map((name) => {
    const canvas = digit(name);
    return h("button", { type: "button", class: "thumbnail", tabindex: "-1", title: t("images.digit", { digit: name }),
                         data: { digit: name, focus: `digit-${name}` }, aria: { label: t("images.digit", { digit: name }) },
                         onclick: () => put({ digit: name, image: undefined }) }, canvas);
  }));
  const settle = walkable(row, ".thumbnail");
  const sources = h("div", { class: "sources" },
    h("div", { class: "drop" }, file, h("label", { class: "button", for: "image-file" }, t("images.choose")),
      h("span", { class: "note" }, t("images.drop"))),
    h("div", { class: "field" }, h("span", {}, t("images.digits")), row));
  const stage = h("div", { class: "images" });
  root.append(sources, trouble, stage);
  const deaf = receive(root, take);

  async function take(given) {
    trouble.textContent = "";
    try {
      if (!given) throw new Error("nothing");
      const { data } = await packed(given, model.image_size ?? 224);
      put({ image: forAddress(data), digit: undefined });
    } catch {
      trouble.textContent = t("images.unreadable");
    }
    file.value = "";
  }

  async function changed({ state, ask }) {
    const name = state.image ? null : DIGITS.includes(state.digit) ? state.digit : "3";
    row.querySelectorAll(".thumbnail").forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.digit === name)));
    settle();
    const image = name === null ? fromAddress(state.image) : canvasData(digit(name));
    const answer = await ask("/explore/look", { model: model.name, image });
    const weights = decoded(answer.weights);
    const [layers, heads, count] = weights.shape;
    const layer = whole(state.layer, layers) ?? layers - 1;
    const head = state.head === "mean" ? "mean" : (whole(state.head, heads) ?? 0);
    const [rows, columns] = answer.grid;
    const thumbnails = { shape: [layers, heads, rows, columns], values: bytes(weights.values, count) };
    const title = head === "mean" ? t("attention.placeMean", { layer: layer + 1 })
      : t("attention.place", { layer: layer + 1, head: head + 1 });
    const [one, all] = [h("div"), h("div")];
    stage.replaceChildren(
      h("div", { class: "controls" },
        chooser(t("attention.layer"), counted(layers), layer, (value) => put({ layer: value, head })),
        chooser(t("attention.head"), [...counted(heads), ["mean", t("attention.mean")]], head,
          (value) => put({ layer, head: value }))),
      h("div", { class: "over" }, picture("patches", title, one), picture("rollout", t("images.rollout"), all)),
      h("div", { class: "taken" },
        picture("classes", t("images.classes"), h("div", { class: "class-bars" },
          h("img", { class: "plain", src: answer.image, alt: t("images.seen"), title: t("images.seen") }), classes(answer.classes)),
          h("p", { class: "note" }, [t("images.size", { side: model.image_size, rows, columns, patch: model.patch_size }),
            name === null && t("images.reduced")].filter(Boolean).join(" "))),
        picture("heads", t("attention.heads"),
          headGrid({ thumbnails, chosen: { layer, head }, pick: (l, other) => put({ layer: l, head: other }) }))));
    drawOver(one, answer, chosen(weights, layer, head), title);
    drawOver(all, answer, decoded(answer.rollout).values, t("images.rollout"));
  }

  return { changed, close: deaf };
}

function counted(count) {
  return Array.from({ length: count }, (_, i) => [i, String(i + 1)]);
}

/** Each head's weights as 0 to 255, where its largest is 255. */
function bytes(values, count) {
  const out = new Uint8Array(values.length);
  for (let start = 0; start < values.length; start += count) {
    const one = values.subarray(start, start + count);
    const high = Math.max(...one) || 1;
    one.forEach((value, i) => {
      out[start + i] = Math.round((255 * value) / high);
    });
  }
  return out;
}

/** The weights (patches) of a head, or the mean of a layer's heads. */
function chosen({ shape: [, heads, count], values }, layer, head) {
  const of = (one) => values.subarray((layer * heads + one) * count, (layer * heads + one + 1) * count);
  if (head !== "mean") return of(head);
  return Float32Array.from({ length: count }, (_, i) => counted(heads).reduce((sum, [one]) => sum + of(one)[i], 0) / heads);
}

function classes(found) {
  const highest = found[0]?.score || 1;
  return h("ol", { class: "bars" }, found.map(({ label, score }) =>
    h("li", {}, h("span", { class: "bar-name" }, label),
      h("span", { class: "bar-track" }, h("span", { class: "bar-fill", style: { width: `${(score / highest) * 100}%` } })),
      h("span", { class: "bar-number" }, percent(score)))));
}

function drawOver(frame, { image, grid }, weights, label) {
  frame.append(
    patches({ image, grid, weights, label, width: Math.max(160, frame.clientWidth),
              describe: (row, column, weight) => t("images.patch", { row: row + 1, column: column + 1, weight }) }),
    h("p", { class: "note" }, t("images.brightest", { weight: percent(Math.max(...weights)) })));
}
