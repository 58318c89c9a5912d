/* Where training runs stand, as a table: how far, how long, and how well. */

import { best, curve } from "heedful/curves.js";
import { h } from "heedful/elements.js";
import { plain } from "heedful/numbers.js";
import { t } from "heedful/words.js";

const HEADS = ["run", "state", "step", "time", "last", "lastHeldout", "bestHeldout"];
const SHARES = /accuracy|f1|precision|recall|exact/;

/** A table of runs [{run, colour}] with the newest and the best numbers of a metric. */
export function standing(runs, metric) {
  const heads = HEADS.map((name) => h("th", { scope: "col" }, t(`training.${name}`, { metric: spoken(metric) })));
  return h("div", { class: "sideways" }, h("table", { class: "standing" },
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, runs.map(({ run, colour }) => line(run, colour, metric)))));
}

/** mlm_accuracy -> mlm accuracy. */
export function spoken(metric) {
  return metric.replaceAll("_", " ");
}

/** Whether a metric is a share, which is told in hundredths. */
export function isShare(metric) {
  return SHARES.test(metric);
}

/** The mark of a run: filled where it is shown. */
export function dot(colour, filled = true) {
  return h("span", { class: "dot", style: { background: filled ? colour : "transparent", borderColor: colour } });
}

function line(run, colour, metric) {
  const [train, held] = ["train", "heldout"].map((kind) => curve(run, kind, metric, "step").y);
  const last = run.rows.at(-1) ?? {};
  const numbers = [
    last.step?.toLocaleString("en"), time(last.elapsed),
    ...[train.at(-1), held.at(-1), best(metric, held)].map((value) => written(metric, value)),
  ];
  return h("tr", { data: { run: run.name } },
    h("th", { scope: "row" }, dot(colour), run.name),
    h("td", {}, t(`training.${run.state}`)),
    numbers.map((words) => h("td", { class: "number" }, words ?? "–")));
}

function written(metric, value) {
  if (value === undefined) return undefined;
  if (isShare(metric)) return `${(value * 100).toFixed(1)} %`;
  const size = Math.abs(value);
  if (size > 0 && size < 0.001) return value.toExponential(2).replace("-", "−");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : plain(value);
}

/** Seconds as h:mm:ss. */
function time(seconds) {
  if (typeof seconds !== "number") return undefined;
  const whole = Math.round(seconds);
  const two = (number) => String(number % 60).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60))}:${two(whole)}`;
}
