/* Pictures one after another: a slider, a step back, a step on, and play. Knows nothing of what is played. */

import { h } from "heedful/elements.js";
import { t } from "heedful/words.js";

const PACE = 900;

/** An element that shows one of `frames` at a time: each an element, a list of them, or a function that gives them.

`at` is the frame it opens on, or else the last; `moved(at)` hears of every move of the reader's. The element has
`stop()`, which ends its clock, `show(at)`, and `at()`. */
export function player(frames, label, { at = frames.length - 1, moved = () => {} } = {}) {
  let clock = null;
  const shown = h("div", { class: "frame" });
  const slider = h("input", { type: "range", min: 0, max: frames.length - 1, value: at, aria: { label },
                              oninput: () => go(Number(slider.value)) });
  const count = h("span", { class: "note", aria: { live: "polite" } });
  const play = h("button", { type: "button", onclick: () => (clock ? stop() : run()) });
  const step = (by) => h("button", { type: "button", aria: { label: t(by < 0 ? "player.back" : "player.on") },
                                     onclick: () => go(at + by) }, by < 0 ? "‹" : "›");
  const element = h("div", { class: "player" }, shown,
    h("div", { class: "player-controls unsaved" }, step(-1), play, step(1), slider, count));

  function go(next) {
    stop();
    show(next);
    moved(at);
  }

  function show(next) {
    at = Math.max(0, Math.min(frames.length - 1, next));
    slider.value = at;
    const frame = [typeof frames[at] === "function" ? frames[at]() : frames[at]].flat().filter(Boolean);
    const stays = frame.length === 1 && shown.firstChild === frame[0]; // and keeps its scroll
    if (!stays) shown.replaceChildren(...frame);
    count.textContent = `${label} ${at + 1} / ${frames.length}`;
    play.textContent = clock ? t("player.stop") : t("player.play");
  }

  function run() {
    clock = setInterval(() => {
      if (at >= frames.length - 1) stop();
      else show(at + 1);
    }, PACE);
    show(at >= frames.length - 1 ? 0 : at);
  }

  function stop() {
    clearInterval(clock);
    clock = null;
    show(at);
  }

  element.stop = () => clearInterval(clock);
  element.show = show;
  element.at = () => at;
  show(at);
  return element;
}
