/* Colours for things that have to be told apart: sentences, runs. Of one lightness, and never the only sign. */

import { isDark } from "heedful/theme.js";

const LIGHT = ["#0a6a73", "#b4530f", "#5b4a9e", "#a02a5c", "#2b5fa8", "#7a6200", "#4d6b1c", "#56626a"];
const DARK = ["#62c9cf", "#f2a56f", "#b3a4f2", "#f291bb", "#8ab8f5", "#e3c55c", "#b4d27a", "#9daab0"];

/** The colour of thing `index`; after eight they begin anew. */
export function hue(index) {
  return (isDark() ? DARK : LIGHT)[index % LIGHT.length];
}
