/* Training: curves of one or several runs, live while they train, and what they said of the same examples over time. */

import { chart } from "heedful/charts.js";
import { best, curve, followed, metricsOf, smoothed, thinned } from "heedful/curves.js";
import { chooser, h, segments } from "heedful/elements.js";
import { plain } from "heedful/numbers.js";
import { hue } from "heedful/palette.js";
import { picture } from "heedful/picture.js";
import { samplesPlayer } from "heedful/samples.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Vaswani et al. 2017, section 5.3 (warm-up and decay); Devlin et al. 2018, appendix A.2 (pre-training)",
  files: ["src/heedful/train/loop.py", "src/heedful/train/log.py", "src/heedful/explore/training.py"],
};

const SOON = 2_000;
const LATER = 10_000;
const AT_FIRST = 8;
const SMOOTHEST = 0.99;
const ACROSS = ["step", "tokens", "elapsed"];
const SHARES = /accuracy|f1|precision|recall|exact/;

export function open({ root, put }) {
  const known = new Map();
  const players = new Map();
  const line = h("div", { class: "chart curves", data: { chart: "curves" } });
  const runsRow = h("div", { class: "chips run-chips", role: "group", aria: { label: t("training.runs") } });
  const picks = h("div", { class: "slot" });
  const smooth = h("input", { type: "range", min: 0, max: SMOOTHEST, step: 0.01, data: { focus: "smooth" },
                              oninput: () => put({ smooth: Number(smooth.value) || undefined }, { replace: true }) });
  const smoothField = h("label", { class: "field" }, h("span", {}), smooth);
  const figure = picture("curves", "", line);
  const now = h("div");
  const said = h("div", { class: "said" });
  root.append(runsRow, h("div", { class: "controls" }, picks, smoothField), figure, picture("now", t("training.now"), now), said);
  let timer = null;
  let listed = [];

  async function changed({ state, ask }) {
    clearTimeout(timer);
    const before = chosenRuns(state, listed);
    const drawn = before.length > 0 && before.every((name) => known.get(name)?.state);
    if (drawn) await render(state, before); // at once, with what is known
    const told = await ask("/explore/runs");
    const same = JSON.stringify(told) === JSON.stringify(listed);
    listed = told;
    const chosen = chosenRuns(state, listed);
    chosen.forEach((name) => known.has(name) || known.set(name, followed(name)));
    const news = await Promise.all(chosen.map((name) => known.get(name).read(ask)));
    if (!drawn || !same || news.some(Boolean)) await render(state, chosen);
    const again = (wait) => {
      timer = setTimeout(() => listen(state, chosen, ask).then(again, () => {}), wait);
    };
    again(pause(chosen));
  }

  /** Ask for what is new and draw it; gives how long to wait. Ends with an error where the page has gone on. */
  async function listen(state, chosen, ask) {
    if (document.visibilityState !== "visible") return SOON;
    const news = await Promise.all(chosen.map((name) => known.get(name).read(ask)));
    if (news.some(Boolean)) await render(state, chosen);
    return pause(chosen);
  }

  function pause(chosen) {
    return chosen.some((name) => known.get(name).state === "running") ? SOON : LATER;
  }

  async function render(state, chosen) {
    if (!chosen.length) return;
    const runs = chosen.map((name) => ({ run: known.get(name), colour: hue(listed.findIndex((one) => one.name === name)) }));
    const metrics = metricsOf(runs.map(({ run }) => run));
    const metric = metrics.includes(state.metric) ? state.metric : metrics[0];
    const across = ACROSS.includes(state.across) ? state.across : "step";
    const weight = Math.max(0, Math.min(SMOOTHEST, Number(state.smooth) || 0));
    smooth.value = weight;
    smoothField.firstChild.textContent = t("training.smooth", { weight: plain(weight, 2) });
    smooth.setAttribute("aria-valuetext", plain(weight, 2));
    const told = listed.map((one) => ({ ...one, state: known.get(one.name)?.state ?? one.state }));
    refill(runsRow, [told, chosen, hue(0)], () => told.map((one, i) => chip(one, i, chosen, put)));
    if (!metric) {
      figure.querySelector("h2").textContent = t("training.nothing");
      return;
    }
    const scale = state.scale === "log" ? "log" : "linear";
    refill(picks, [metrics, metric, across, scale], () => [
      chooser(t("training.metric"), metrics.map((name) => [name, spoken(name)]), metric, (name) => put({ metric: name })),
      chooser(t("training.across"), ACROSS.map((name) => [name, t(`training.${name}`)]), across,
        (name) => put({ across: name === "step" ? undefined : name })),
      h("div", { class: "field" }, h("span", {}, t("training.scale")),
        segments(t("training.scale"), [["linear", t("training.linear")], ["log", t("training.log")]],
          scale, (value) => put({ scale: value === "log" ? value : undefined })))]);
    figure.querySelector("h2").textContent = spoken(metric);
    now.replaceChildren(table(runs, metric));
    samplesOf(runs);
    await chart(line, traces(runs, metric, across, weight),
      { x: t(`training.${across}`), y: spoken(metric), log: scale === "log", format: SHARES.test(metric) ? ".0%" : undefined },
      { height: 400, showlegend: true, legend: { orientation: "h", y: -0.25, yanchor: "top" }, uirevision: `${metric} ${across} ${scale}` });
  }

  function samplesOf(runs) {
    const shown = runs.filter(({ run }) => run.samples.length);
    shown.forEach(({ run }) => {
      const before = players.get(run.name);
      if (before?.samples === run.samples.length) return;
      before?.player.stop();
      const one = samplesPlayer(run.samples, before?.player);
      players.set(run.name, { player: one, samples: run.samples.length,
                              figure: picture("samples", t("training.samples", { run: run.name }), one) });
    });
    const figures = shown.map(({ run }) => players.get(run.name).figure);
    if (figures.some((one, i) => said.children[i] !== one) || figures.length !== said.children.length) said.replaceChildren(...figures);
  }

  return { changed, close: () => {
    clearTimeout(timer);
    players.forEach(({ player }) => player.stop());
  } };
}

/** The runs of the address, or the first few, those that still train before the others. */
function chosenRuns(state, listed) {
  const names = listed.map(({ name }) => name);
  const asked = (state.runs ?? "").split("\n").filter((name) => names.includes(name));
  if (asked.length) return asked;
  const running = listed.filter((one) => one.state === "running").map(({ name }) => name);
  const first = [...running, ...names.filter((name) => !running.includes(name))].slice(0, AT_FIRST);
  return names.filter((name) => first.includes(name));
}

/** Make the elements of a place anew if what they say has changed: a live page must not take away what is being used. */
function refill(place, says, make) {
  const next = JSON.stringify(says);
  if (place.dataset.says === next) return;
  place.dataset.says = next;
  const used = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  place.replaceChildren(...make());
  if (used) place.querySelector(`[data-focus="${CSS.escape(used)}"]`)?.focus();
}

function chip({ name, state }, index, chosen, put) {
  const on = chosen.includes(name);
  const others = on ? chosen.filter((one) => one !== name) : [...chosen, name];
  return h("button", { type: "button", class: "chip run", data: { run: name, state, focus: `run-${name}` },
                       aria: { pressed: String(on) }, onclick: () => others.length && put({ runs: others.join("\n") }) },
    h("span", { class: "dot", style: { background: on ? hue(index) : "transparent", borderColor: hue(index) } }), name,
    h("span", { class: "state" }, t(`training.${state}`)));
}

function traces(runs, metric, across, weight) {
  return runs.flatMap(({ run, colour }) => {
    const train = curve(run, "train", metric, across);
    const held = curve(run, "heldout", metric, across);
    const soft = { x: train.x, y: smoothed(train.y, weight) };
    return [
      weight > 0 && train.x.length && { ...thinned(train), mode: "lines", line: { color: colour, width: 1 }, opacity: 0.28,
                                        hoverinfo: "skip", showlegend: false, name: run.name },
      train.x.length && { ...thinned(soft), mode: train.x.length > 1 ? "lines" : "markers", line: { color: colour, width: 2 },
                          marker: { color: colour }, name: run.name },
      held.x.length && { ...thinned(held), mode: "lines+markers", line: { color: colour, width: 2, dash: "dot" },
                         marker: { color: colour, size: 7, symbol: "diamond" }, name: `${run.name}, ${t("training.heldout")}` },
    ].filter(Boolean);
  });
}

/** Where each run stands. */
function table(runs, metric) {
  const heads = ["run", "state", "step", "time", "last", "lastHeldout", "bestHeldout"];
  return h("div", { class: "sideways" }, h("table", { class: "standing" },
    h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, t(`training.${name}`, { metric: spoken(metric) }))))),
    h("tbody", {}, runs.map(({ run, colour }) => {
      const [train, held] = ["train", "heldout"].map((kind) => curve(run, kind, metric, "step").y);
      const last = run.rows.at(-1) ?? {};
      return h("tr", { data: { run: run.name } },
        h("th", { scope: "row" }, h("span", { class: "dot", style: { background: colour, borderColor: colour } }), run.name),
        h("td", {}, t(`training.${run.state}`)), number(last.step?.toLocaleString("en")), number(time(last.elapsed)),
        number(written(metric, train.at(-1))), number(written(metric, held.at(-1))), number(written(metric, best(metric, held))));
    }))));
}

function number(words) {
  return h("td", { class: "number" }, words ?? "–");
}

function written(metric, value) {
  if (value === undefined) return undefined;
  if (SHARES.test(metric)) return `${(value * 100).toFixed(1)} %`;
  const size = Math.abs(value);
  return size > 0 && size < 0.001 ? value.toExponential(2) : size >= 1000 ? Math.round(value).toLocaleString("en") : plain(value);
}

/** Seconds as h:mm:ss. */
function time(seconds) {
  if (typeof seconds !== "number") return undefined;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return `${hours}:${String(minutes).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
}

/** mlm_accuracy -> mlm accuracy. */
function spoken(metric) {
  return metric.replaceAll("_", " ");
}
