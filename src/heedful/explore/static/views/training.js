/* Training: curves of one or several runs, live while they train, and what they said of some examples over time. */

import { chart } from "heedful/charts.js";
import { curve, followed, metricsOf, smoothed, thinned } from "heedful/curves.js";
import { chooser, h, segments } from "heedful/elements.js";
import { plain } from "heedful/numbers.js";
import { hue } from "heedful/palette.js";
import { picture } from "heedful/picture.js";
import { samplesPlayer } from "heedful/samples.js";
import { dot, isShare, spoken, standing } from "heedful/standing.js";
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

export function open({ root, put }) {
  const known = new Map();
  const players = new Map();
  const runsRow = h("div", { class: "chips", role: "group", aria: { label: t("training.runs") } });
  const picks = h("div", { class: "slot" });
  const smooth = h("input", { type: "range", min: 0, max: SMOOTHEST, step: 0.01, data: { focus: "smooth" } });
  const smoothField = h("label", { class: "field" }, h("span", {}), smooth);
  const line = h("div", { class: "chart curves", data: { chart: "curves" } });
  const figure = picture("curves", "", line);
  const now = h("div");
  const said = h("div", { class: "said" });
  smooth.addEventListener("input", () => put({ smooth: Number(smooth.value) || undefined }, { replace: true }));
  root.append(runsRow, h("div", { class: "controls" }, picks, smoothField), figure,
    picture("now", t("training.now"), now), said);
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
    const missed = (error) => {
      if (error.status > 0) again(LATER); // else the server is gone, or the page has gone on: both ask anew
    };
    const again = (wait) => {
      clearTimeout(timer);
      timer = setTimeout(() => listen(state, chosen, ask).then(again, missed), wait);
    };
    again(pause(chosen));
  }

  /** Ask for what is new and draw it; gives how long to wait. */
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
    const place = (name) => listed.findIndex((one) => one.name === name);
    const runs = chosen.map((name) => ({ run: known.get(name), colour: hue(place(name)) }));
    const metrics = metricsOf(runs.map(({ run }) => run));
    const metric = metrics.includes(state.metric) ? state.metric : metrics[0];
    const across = ACROSS.includes(state.across) ? state.across : "step";
    const scale = state.scale === "log" ? "log" : "linear";
    const weight = Math.max(0, Math.min(SMOOTHEST, Number(state.smooth) || 0));
    const told = listed.map((one) => ({ ...one, state: known.get(one.name)?.state ?? one.state }));
    refill(runsRow, [told, chosen, hue(0)], () => told.map((one, i) => chip(one, hue(i), chosen, put)));
    smooth.value = weight;
    smooth.setAttribute("aria-valuetext", plain(weight, 2));
    smoothField.firstChild.textContent = t("training.smooth", { weight: plain(weight, 2) });
    figure.querySelector("h2").textContent = metric ? spoken(metric) : t("training.nothing");
    if (!metric) return;
    refill(picks, [metrics, metric, across, scale], () => controls({ metrics, metric, across, scale, put }));
    now.replaceChildren(standing(runs, metric));
    showSamples(runs);
    const axes = { x: t(`training.${across}`), y: spoken(metric) };
    const numbers = { log: scale === "log", format: isShare(metric) && ".0%" };
    await chart(line, traces(runs, metric, across, weight), { ...axes, ...numbers }, {
      height: 400,
      showlegend: true,
      legend: { orientation: "h", y: -0.25, yanchor: "top" },
      uirevision: `${metric} ${across} ${scale}`, // until one of them changes, who has looked closer stays there
    });
  }

  /** The samples of each run; a player is made anew only when its run has said more. */
  function showSamples(runs) {
    const speaking = runs.map(({ run }) => run).filter((run) => run.samples.length);
    for (const run of speaking) {
      const before = players.get(run.name);
      if (before?.heard === run.heard) continue;
      before?.player.stop();
      const player = samplesPlayer(run.samples, before?.player);
      const shown = picture("samples", t("training.samples", { run: run.name }), player);
      players.set(run.name, { player, heard: run.heard, shown });
    }
    const figures = speaking.map((run) => players.get(run.name).shown);
    const same = figures.length === said.children.length && figures.every((one, i) => one === said.children[i]);
    if (!same) said.replaceChildren(...figures);
  }

  function close() {
    clearTimeout(timer);
    players.forEach(({ player }) => player.stop());
  }

  return { changed, close };
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

/** Make the elements of a place anew if what they say has changed: a live page must not take away what is in use. */
function refill(place, says, make) {
  const next = JSON.stringify(says);
  if (place.dataset.says === next) return;
  place.dataset.says = next;
  const used = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  place.replaceChildren(...make());
  if (used) place.querySelector(`[data-focus="${CSS.escape(used)}"]`)?.focus();
}

function controls({ metrics, metric, across, scale, put }) {
  const scales = [["linear", t("training.linear")], ["log", t("training.log")]];
  return [
    chooser(t("training.metric"), metrics.map((name) => [name, spoken(name)]), metric,
      (name) => put({ metric: name })),
    chooser(t("training.across"), ACROSS.map((name) => [name, t(`training.${name}`)]), across,
      (name) => put({ across: name === "step" ? undefined : name })),
    h("div", { class: "field" }, h("span", {}, t("training.scale")),
      segments(t("training.scale"), scales, scale, (name) => put({ scale: name === "log" ? name : undefined }))),
  ];
}

/** A run that can be shown or not; one always is. */
function chip({ name, state }, colour, chosen, put) {
  const on = chosen.includes(name);
  const next = on ? chosen.filter((one) => one !== name) : [...chosen, name];
  return h("button", {
    type: "button",
    class: "chip run",
    data: { run: name, state, focus: `run-${name}` },
    aria: { pressed: String(on) },
    onclick: () => next.length && put({ runs: next.join("\n") }),
  }, dot(colour, on), name, h("span", { class: "state" }, t(`training.${state}`)));
}

/** Of each run what was measured while it trained, smoothed and behind that as it was, and on held-out data. */
function traces(runs, metric, across, weight) {
  return runs.flatMap(({ run, colour }) => {
    const train = curve(run, "train", metric, across);
    const held = curve(run, "heldout", metric, across);
    const soft = { x: train.x, y: smoothed(train.y, weight) };
    const ink = { color: colour, width: 2 };
    const faint = { line: { ...ink, width: 1 }, opacity: 0.28, hoverinfo: "skip", showlegend: false };
    const marked = { line: { ...ink, dash: "dot" }, marker: { color: colour, size: 7, symbol: "diamond" } };
    return [
      weight > 0 && train.x.length > 0 && { ...thinned(train), name: run.name, mode: "lines", ...faint },
      train.x.length > 0 && { ...thinned(soft), name: run.name, mode: train.x.length > 1 ? "lines" : "markers",
                              line: ink, marker: { color: colour } },
      held.x.length > 0 && { ...thinned(held), name: `${run.name}, ${t("training.heldout")}`, mode: "lines+markers",
                             ...marked },
    ].filter(Boolean);
  });
}
