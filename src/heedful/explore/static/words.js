/* The words of the interface, in the reader's language: text.en.json and text.ko.json. */

import { ask } from "heedful/api.js";
import { kept, keep } from "heedful/memory.js";

export const LANGUAGES = [["en", "English"], ["ko", "한국어"]];

let words = {};

/** The language that was chosen, or else the browser's if we speak it. */
export function language() {
  const chosen = kept("language") ?? (navigator.language ?? "en").slice(0, 2);
  return LANGUAGES.some(([code]) => code === chosen) ? chosen : "en";
}

/** Read the words of a language, and keep the choice where one was made. */
export async function speak(code, chosen = false) {
  words = await ask("GET", `/static/text.${code}.json`);
  if (chosen) keep("language", code);
  document.documentElement.lang = code;
}

/** The words for a key, with {names} replaced by values. */
export function t(key, values = {}) {
  const said = words[key] ?? key;
  return said.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
