/* Translation: the beam as a tree that grows step by step, what it found, and where in the source that came from. */

import { answered, canonical, exported } from "heedful/api.js";
import { beamTree, wayTo } from "heedful/beamtree.js";
import { composer } from "heedful/composer.js";
import { chooser, h } from "heedful/elements.js";
import { numberField } from "heedful/fields.js";
import { matrix } from "heedful/matrix.js";
import { NUMBER } from "heedful/looking.js";
import { decoded, index, percent, plain } from "heedful/numbers.js";
import { picture } from "heedful/picture.js";
import { player } from "heedful/player.js";
import { isDark } from "heedful/theme.js";
import { shownText } from "heedful/tokens.js";
import { t } from "heedful/words.js";

export const what = {
  paper: "Vaswani et al. 2017, section 6.1 (beam search); Wu et al. 2016, section 7 (penalties); " +
    "Bahdanau et al. 2014, section 3.1, and Luong et al. 2015, section 3.1 (scores and alignment)",
  files: ["src/heedful/decode/beams.py", "src/heedful/explore/beams.py", "src/heedful/nn/scores.py"],
};

const BEAMS = [1, 2, 3, 4, 5, 6, 8, 12, 16];
const PENALTY = { low: 0, high: 5, step: 0.1 };
const FORMULAS = {
  dot: "qᵀk",
  scaled: "qᵀk / √d",
  general: "qᵀWk",
  concat: "vᵀ tanh(W[q; k])",
  location: "Wq",
};
/** What belongs to one search alone, and goes when another is asked for. */
const ANEW = { step: undefined, node: undefined, best: undefined };

export function open({ root, model, put }) {
  const form = composer(({ text, pair }) => put({ text, prefix: pair, ...ANEW }),
    { pairLabel: t("translation.prefix"), pairAdd: t("translation.addPrefix") });
  const controls = h("div", { class: "controls" });
  const beam = h("div", { class: "search" });
  const rest = h("div", { class: "found-and-aligned" });
  root.append(form, controls, ...(model.score ? [scored(model.score)] : []), beam, rest);
  let shown = null;

  /** The search that a question asks for as {key, answer, tree, playing}: made anew only where it is another one. */
  async function searched(question, ask) {
    const key = canonical(question);
    const answer = await ask("/explore/translate", question);
    if (shown?.key === key) return shown;
    shown?.playing.stop();
    const tree = beamTree({ nodes: answer.tree, label: t("translation.tree"), pick: (id) => picked(id) });
    const next = { key, answer, tree, marked: {} };
    const frames = Array.from({ length: tree.steps + 1 }, (_, step) => () => {
      tree.draw({ ...next.marked, step });
      return tree.element;
    });
    next.playing = player(frames, t("translation.step"),
      { moved: (at) => put({ step: at === tree.steps ? undefined : at }, { replace: true }) });
    return next;
  }

  function step() {
    const at = shown.playing.at();
    return at === shown.tree.steps ? undefined : at;
  }

  function picked(id) {
    const node = id === null ? null : shown.answer.tree[id];
    put({ node: id ?? undefined, step: step(), ...(node?.state === "finished" && { best: node.rank || undefined }) });
  }

  async function changed({ state, ask }) {
    const text = state.text ?? NUMBER;
    const beams = BEAMS.includes(Number(state.beams)) ? Number(state.beams) : 4;
    const penalty = state.penalty === undefined || Number.isNaN(Number(state.penalty)) ? 1 : Number(state.penalty);
    form.show(text, state.prefix);
    const length_penalty = penalty === 1 ? undefined : penalty; // what an exported page was asked
    const question = { model: model.name, text, prefix: state.prefix, beams, length_penalty };
    const widths = BEAMS.filter((count) => answered("/explore/translate", { ...question, beams: count }));
    controls.replaceChildren(
      chooser(t("translation.beams"), widths.map((count) => [count, String(count)]), beams,
        (count) => put({ beams: Number(count), ...ANEW })),
      exported ? "" : numberField({ label: t("translation.penalty"), name: "penalty", value: penalty, ...PENALTY,
                                    pick: (value) => put({ penalty: value, ...ANEW }) }));
    const found = await searched(question, ask);
    const { answer, tree, playing } = found;
    const best = index(state.best, answer.translations.length) ?? 0;
    const chosen = index(state.node, answer.tree.length);
    found.marked = { best, chosen };
    playing.show(index(state.step, tree.steps + 1) ?? tree.steps);
    if (shown !== found) {
      shown = found;
      const title = t("translation.beam", { beams });
      beam.replaceChildren(picture("beam", title, legend(), playing, h("div", { class: "slot" })));
      if (chosen !== null) tree.reveal(chosen);
    }
    beam.querySelector(".slot").replaceChildren(told(answer.tree, chosen, state.prefix, put));
    const says = `${found.key} ${best} ${isDark()}`;
    if (rest.dataset.says === says) return; // only the step is another
    rest.dataset.says = says;
    const align = h("div", { class: "aligned" });
    const pick = (rank) => put({ best: rank || undefined, node: undefined, step: step() });
    rest.replaceChildren(picture("translations", t("translation.found"), list(answer.translations, best, pick)), align);
    align.append(alignment(answer, best, align.clientWidth));
  }

  return { changed, close: () => shown?.playing.stop() };
}

function scored(score) {
  return h("p", { class: "kind" }, t(`translation.${score}`), " ", h("code", {}, `score(q, k) = ${FORMULAS[score]}`));
}

function legend() {
  return h("p", { class: "legend" }, ["alive", "finished", "best", "pruned"].map((state) =>
    h("span", { class: state }, h("span", { class: "swatch" }), t(`translation.${state}`))));
}

/** What the chosen box stands for, and (but in an exported page) the way to make all translations begin with it. */
function told(nodes, chosen, prefix, put) {
  const ways = exported ? "translation.see" : "translation.pick";
  if (!chosen) return h("p", { class: "note unsaved hypothesis-told" }, t(ways));
  const node = nodes[chosen];
  const text = written(nodes, node);
  const token = node.token.replaceAll("▁", "_");
  const numbers = [
    t("translation.token", { token, probability: percent(node.probability) }),
    t("translation.sum", { sum: plain(node.log_prob) }),
    node.state === "finished" && t("translation.score", { score: plain(node.score), rank: node.rank + 1 }),
  ];
  return h("div", { class: "hypothesis-told" },
    h("p", { class: "written" }, text || t("translation.nothing")),
    h("p", { class: "note" }, numbers.filter(Boolean).join(" · ")),
    !exported && text && text !== prefix && h("button", { type: "button", data: { focus: "force" },
      onclick: () => put({ prefix: text, ...ANEW }) }, t("translation.force")));
}

/** The text of a hypothesis: its pieces without the start and the end. */
function written(nodes, node) {
  const way = [...wayTo(nodes, node)].reverse().slice(1).map((id) => nodes[id]);
  const pieces = way.filter((one) => one.state !== "finished" && !/^<.*>$/.test(one.token)).map((one) => one.token);
  const spaced = nodes.some((one) => one.token.startsWith("▁"))
    ? pieces.join("").replaceAll("▁", " ")
    : pieces.map((piece) => (piece.startsWith("##") ? piece.slice(2) : ` ${piece}`)).join("");
  return spaced.trim();
}

/** The translations, best first; a click shows how one came about. */
function list(translations, best, pick) {
  if (!translations.length) return h("p", { class: "note" }, t("translation.none"));
  return h("ol", { class: "found" }, translations.map(({ text, score }, rank) =>
    h("li", {}, h("button", {
      type: "button",
      data: { saved: "", rank, focus: `found-${rank}` },
      aria: { pressed: String(rank === best) },
      onclick: () => pick(rank),
    },
    h("span", { class: "rank" }, `${rank + 1}.`),
    h("span", { class: "words" }, text || t("translation.nothing")),
    h("span", { class: "bar-number" }, plain(score))))));
}

function alignment({ source, translations }, best, room) {
  if (!translations.length) return "";
  const { tokens } = translations[best];
  const weights = decoded(translations[best].alignment);
  const [rows, columns] = weights.shape;
  const rowNames = tokens.slice(0, rows).map((token) => token.replaceAll("▁", "_"));
  const columnNames = source.slice(0, columns).map(shownText);
  const label = t("translation.alignment");
  const describe = (row, column, value) =>
    t("attention.cell", { from: rowNames[row], to: columnNames[column], weight: percent(value) });
  return picture("alignment", label, matrix({
    values: weights.values, rows, columns, rowNames, columnNames, highest: 1, label, describe,
    width: Math.max(240, room - 44),
  }));
}
