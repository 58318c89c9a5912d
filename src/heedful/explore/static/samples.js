/* What a run said of the same few examples over time, step by step. */

import { h } from "heedful/elements.js";
import { percent } from "heedful/numbers.js";
import { player } from "heedful/player.js";
import { t } from "heedful/words.js";

/** A player over the steps of samples {step, input, output, reference?, probability?}; it stays at the newest if it was there. */
export function samplesPlayer(samples, before) {
  const steps = [...new Set(samples.map(({ step }) => step))].sort((a, b) => a - b);
  const referenced = samples.some(({ reference }) => reference !== undefined && reference !== null);
  const frames = steps.map((step) => () => frame(samples.filter((one) => one.step === step), step, referenced));
  const stayed = before && before.steps.length - 1 > before.at() ? steps.indexOf(before.steps[before.at()]) : -1;
  const element = player(frames, t("training.report"), { at: stayed >= 0 ? stayed : steps.length - 1 });
  element.steps = steps;
  return element;
}

function frame(samples, step, referenced) {
  return h("div", { class: "sideways" }, h("table", { class: "samples" },
    h("caption", {}, t("training.at", { step: step.toLocaleString("en") })),
    h("thead", {}, h("tr", {}, ["input", "output", ...(referenced ? ["reference"] : [])].map((name) =>
      h("th", { scope: "col" }, t(`training.${name}`))))),
    h("tbody", {}, samples.map(({ input, output, reference, probability }) => h("tr", {},
      h("td", {}, said(input)),
      h("td", { class: referenced && said(output) === said(reference) ? "right" : null }, said(output),
        typeof probability === "number" && h("span", { class: "note" }, ` ${percent(probability)}`)),
      referenced && h("td", {}, said(reference)))))));
}

function said(value) {
  return value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
}
