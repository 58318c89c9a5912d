/* Images: which patches a head looks at, over the picture; rollout; and what the model takes it for. */

import { exported } from "heedful/api.js";
import { bars } from "heedful/bars.js";
import { digit, DIGITS } from "heedful/digits.js";
import { chooser, h, walkable } from "heedful/elements.js";
import { headGrid } from "heedful/headgrid.js";
import { canvasData, forAddress, fromAddress, packed, receive } from "heedful/images.js";
import { decoded, index, numbered, percent } from "heedful/numbers.js";
import { patches } from "heedful/patches.js";
import { picture } from "heedful/picture.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Dosovitskiy et al. 2020, An Image is Worth 16x16 Words, sections 3.1 and 4.5; " +
    "rollout: Abnar & Zuidema 2020, section 3",
  files: ["src/heedful/models/vit.py", "src/heedful/explore/images.py"],
};

const FIRST = "3";

export function open({ root, model, put }) {
  const trouble = h("p", { class: "note bad", role: "alert" });
  const file = h("input", { type: "file", accept: "image/*", id: "image-file", class: "file" });
  const digits = h("div", { class: "digits", role: "group", aria: { label: t("images.digits") } },
    DIGITS.map((name) => digitButton(name, () => put({ digit: name, image: undefined }))));
  const settle = walkable(digits, ".thumbnail");
  const stage = h("div", { class: "images" });
  const sources = h("div", { class: "sources" },
    h("div", { class: "drop" }, file, h("label", { class: "button", for: "image-file" }, t("images.choose")),
      h("span", { class: "note" }, t("images.drop"))),
    h("div", { class: "field" }, h("span", {}, t("images.digits")), digits, h("span", {}, t("images.drawn"))));
  root.append(exported ? h("p", { class: "note" }, t("images.given")) : sources, trouble, stage);
  file.addEventListener("change", () => take(file.files[0]));
  const deaf = exported ? undefined : receive(root, take);

  async function take(given) {
    trouble.textContent = "";
    try {
      const { data } = await packed(given, model.image_size ?? 224);
      put({ image: forAddress(data), digit: undefined });
    } catch {
      trouble.textContent = t("images.unreadable");
    }
    file.value = "";
  }

  async function changed({ state, ask }) {
    const name = state.image ? null : DIGITS.includes(state.digit) ? state.digit : FIRST;
    digits.querySelectorAll(".thumbnail").forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.digit === name)));
    settle();
    const image = name === null ? fromAddress(state.image) : canvasData(digit(name));
    const answer = await ask("/explore/look", { model: model.name, image });
    const weights = decoded(answer.weights);
    const [layers, heads] = weights.shape;
    const layer = index(state.layer, layers) ?? layers - 1;
    const head = state.head === "mean" ? "mean" : (index(state.head, heads) ?? 0);
    const title = head === "mean"
      ? t("attention.placeMean", { layer: layer + 1 })
      : t("attention.place", { layer: layer + 1, head: head + 1 });
    const [one, all] = [h("div"), h("div")];
    stage.replaceChildren(
      h("div", { class: "controls" },
        chooser(t("attention.layer"), numbered(layers), layer, (value) => put({ layer: value, head })),
        chooser(t("attention.head"), [...numbered(heads), ["mean", t("attention.mean")]], head,
          (value) => put({ layer, head: value }))),
      h("div", { class: "over" }, picture("patches", title, one), picture("rollout", t("images.rollout"), all)),
      h("div", { class: "taken" },
        picture("classes", t("images.classes"), taken(answer), h("p", { class: "note" }, size(model, answer, name))),
        picture("heads", t("attention.heads"), headGrid({
          thumbnails: small(weights, answer.grid),
          chosen: { layer, head },
          pick: (row, column) => put({ layer: row, head: column }),
        }))));
    drawOver(one, answer, chosen(weights, layer, head), title);
    drawOver(all, answer, decoded(answer.rollout).values, t("images.rollout"));
  }

  return { changed, close: deaf };
}

function digitButton(name, pick) {
  const label = t("images.digit", { digit: name });
  return h("button", {
    type: "button",
    class: "thumbnail",
    tabindex: "-1",
    title: label,
    data: { digit: name, focus: `digit-${name}` },
    aria: { label },
    onclick: pick,
  }, digit(name));
}

/** All heads in small: each one's weights as 0 to 255, where its largest is 255. */
function small({ shape: [layers, heads, count], values }, grid) {
  const bytes = new Uint8Array(values.length);
  for (let start = 0; start < values.length; start += count) {
    const one = values.subarray(start, start + count);
    const high = Math.max(...one) || 1;
    bytes.set(one.map((value) => Math.round((255 * value) / high)), start);
  }
  return { shape: [layers, heads, ...grid], values: bytes };
}

/** The weights (patches) of a head, or the mean of a layer's heads. */
function chosen({ shape: [, heads, count], values }, layer, head) {
  const of = (one) => values.subarray((layer * heads + one) * count, (layer * heads + one + 1) * count);
  if (head !== "mean") return of(head);
  return of(0).map((_, i) => numbered(heads).reduce((sum, [one]) => sum + of(one)[i], 0) / heads);
}

/** What the model sees, and what it takes that for. */
function taken({ image, classes }) {
  return h("div", { class: "class-bars" },
    h("img", { class: "plain", src: image, alt: t("images.seen"), title: t("images.seen") }),
    bars(classes.map(({ label, score }) => ({ name: label, share: score }))));
}

function size({ image_size: side, patch_size: patch }, { grid: [rows, columns] }, digitName) {
  const told = t("images.size", { side, rows, columns, patch });
  return digitName === null && !exported ? `${told} ${t("images.reduced")}` : told;
}

function drawOver(frame, { image, grid }, weights, label) {
  const describe = (row, column, weight) => t("images.patch", { row: row + 1, column: column + 1, weight });
  frame.append(
    patches({ image, grid, weights, label, describe, width: Math.max(160, frame.clientWidth) }),
    h("p", { class: "note" }, t("images.brightest", { weight: percent(Math.max(...weights)) })));
}
