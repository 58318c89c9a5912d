/* Light, dark, or as the system is; and the colours of pictures, which follow it. */

import { kept, keep } from "heedful/memory.js";

export const THEMES = ["system", "light", "dark"];

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Tells "change" whenever the colours on the screen become others. */
export const theme = new EventTarget();

/** What was chosen. */
export function chosenTheme() {
  const name = kept("theme");
  return THEMES.includes(name) ? name : "system";
}

/** Whether the page is dark now. */
export function isDark() {
  return chosenTheme() === "dark" || (chosenTheme() === "system" && dark.matches);
}

/** Choose a theme, and keep the choice. */
export function wear(name) {
  keep("theme", name === "system" ? null : name);
  paintPage();
  theme.dispatchEvent(new Event("change"));
}

/** A colour of the style sheet by its name. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function paintPage() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

paintPage();
dark.addEventListener("change", () => {
  paintPage();
  theme.dispatchEvent(new Event("change"));
});
