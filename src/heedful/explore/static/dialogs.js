/* What the page asks or says in a window of its own: the server's key, and the keys of the keyboard. */

import { exported } from "heedful/api.js";
import { h } from "heedful/elements.js";
import { t } from "heedful/words.js";

const KEYS = [
  ["1 … 8", "keys.view"], ...(exported ? [] : [["/", "keys.text"]]), ["← → ↑ ↓", "keys.walk"],
  ["Enter", "keys.pick"], ["Esc", "keys.free"], ["?", "keys.this"],
];

/** The key that the reader types, or null if it is not told. */
export function askForKey(wrong) {
  const input = h("input", { type: "password", name: "key", autocomplete: "off", required: true });
  const form = h("form", { method: "dialog" },
    h("h2", {}, t("lock.title")),
    h("p", {}, wrong ? t("lock.wrong") : t("lock.words")),
    h("label", { class: "field" }, h("span", {}, t("lock.key")), input),
    h("div", { class: "actions" },
      h("button", { type: "submit", class: "primary", value: "open" }, t("lock.open")),
      h("button", { type: "submit", value: "", formnovalidate: true }, t("dialog.close"))));
  return open(form).then((choice) => (choice === "open" ? input.value.trim() : null));
}

/** Which keys do what. */
export function showKeys() {
  return open(h("form", { method: "dialog" },
    h("h2", {}, t("shell.keys")),
    h("dl", { class: "keys" }, KEYS.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, t(words))])),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, t("dialog.close")))));
}

function open(content) {
  const dialog = h("dialog", {}, content);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}
