/* A beam search as a tree: a column for each step, a box for each continuation that was weighed, best ones first.

Children stand in their parents' order, so that no two branches cross. Knows nodes and what became of them; nothing of
models. */

import { s } from "heedful/elements.js";
import { percent, plain } from "heedful/numbers.js";
import { t } from "heedful/words.js";

const COLUMN = 118;
const ROW = 42;
const BOX = { width: 82, height: 34 };
const MARGIN = 8;
const NAME = 9;

/** The tree as {element, steps, draw({step, best, chosen}), reveal(id)}.

nodes          as the API gives them: a node comes after its parent
pick(id)       what a click on a box does; pick(null) lets go
draw           shows the search after `step` steps, the way to the translation of rank `best`, and the box `chosen`;
               the newest column comes into sight when `step` becomes another */
export function beamTree({ nodes, pick, label }) {
  const places = placed(nodes);
  const rows = Math.max(...places.map(({ row }) => row)) + 1;
  const height = rows * ROW + 2 * MARGIN;
  const x = (node) => MARGIN + node.step * COLUMN;
  const y = (node) => MARGIN + (places[node.id].row + 0.5) * ROW;
  const svg = s("svg", { class: "beam-tree", height, role: "group", aria: { label } });
  const edges = nodes.map((node) => (node.parent === null ? null : branch(node)));
  const boxes = nodes.map((node) => box(node));
  svg.append(...edges.filter(Boolean), ...boxes);
  const element = document.createElement("div");
  element.className = "sideways scroll";
  element.append(svg);
  const drawn = nodes.map(() => null);
  let now = { step: 0 };

  function branch(node) {
    const parent = nodes[node.parent];
    const [x1, y1, x2, y2] = [x(parent) + BOX.width, y(parent), x(node), y(node)];
    const middle = (x1 + x2) / 2;
    const d = `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
    return s("path", { class: "branch", d, "stroke-width": (0.75 + 3.25 * node.probability).toFixed(2) });
  }

  function box(node) {
    const [left, top] = [x(node), y(node) - BOX.height / 2];
    const middle = left + BOX.width / 2;
    const token = short(node.token.replaceAll("▁", "_"));
    return s("g", {
      class: "hypothesis",
      role: "button",
      tabindex: "-1",
      data: { id: node.id, focus: `node-${node.id}` },
      onclick: () => pick(node.id),
      onkeydown: (event) => onKey(event, node),
    },
    s("title", {}),
    s("rect", { x: left, y: top, ...BOX, rx: 7 }),
    s("text", { x: middle, y: node.parent === null ? y(node) : top + 12, class: "token" }, token),
    node.parent !== null && s("text", { x: middle, y: top + 26, class: "number" }, told(node)));
  }

  /** What became of each node by a step: it ended, it leads on, or it was dropped. */
  function fates(step) {
    const found = new Array(nodes.length).fill("pruned");
    for (const node of nodes.toReversed()) {
      if (node.step > step) continue;
      if (node.state === "finished") found[node.id] = "finished";
      else if (node.step === step && (node.kept || node.parent === null)) found[node.id] = "alive";
      if (found[node.id] !== "pruned" && node.parent !== null) found[node.parent] = "alive";
    }
    return found;
  }

  function draw({ step, best = null, chosen = null }) {
    const moved = now.best !== undefined && step !== now.step;
    now = { step, best, chosen };
    const state = fates(step);
    const way = wayTo(nodes, nodes.find((node) => node.rank === best));
    const width = MARGIN * 2 + step * COLUMN + BOX.width;
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    for (const node of nodes) {
      const fate = node.step > step ? "unborn" : state[node.id];
      const classes = way.has(node.id) ? `${fate} best` : fate;
      const looks = `${classes} ${node.id === chosen} ${node.id === (chosen ?? 0)}`;
      if (looks === drawn[node.id]) continue; // of thousands only a few change from step to step
      drawn[node.id] = looks;
      const words = `${node.token}: ${told(node)}, ${t(`translation.${state[node.id]}`)}`;
      const own = boxes[node.id];
      edges[node.id]?.setAttribute("class", `branch ${classes}`);
      own.setAttribute("class", `hypothesis ${classes}`);
      own.dataset.state = fate;
      own.setAttribute("aria-pressed", String(node.id === chosen));
      own.setAttribute("aria-label", words);
      own.setAttribute("tabindex", node.id === (chosen ?? 0) ? "0" : "-1");
      own.querySelector("title").textContent = words;
    }
    if (moved) requestAnimationFrame(() => element.scrollTo({ left: width - element.clientWidth }));
  }

  function onKey(event, node) {
    const column = nodes.filter((one) => one.step === node.step);
    column.sort((a, b) => places[a.id].row - places[b.id].row);
    const at = column.indexOf(node);
    const children = nodes.filter((one) => one.parent === node.id && one.step <= now.step);
    const next = {
      ArrowUp: column[at - 1],
      ArrowDown: column[at + 1],
      ArrowLeft: nodes[node.parent],
      ArrowRight: children.find((one) => boxes[one.id].matches(".best")) ?? children[0],
    }[event.key];
    if (next) boxes[next.id].focus();
    else if (event.key === "Enter" || event.key === " ") pick(node.id);
    else if (event.key === "Escape") pick(null);
    else return;
    event.preventDefault();
  }

  /** Bring a box into sight. */
  function reveal(id) {
    element.scrollTo({ left: x(nodes[id]) - (element.clientWidth - BOX.width) / 2 });
  }

  return { element, draw, reveal, steps: Math.max(...nodes.map((node) => node.step)) };
}

/** The nodes from the root to a node, by id. */
export function wayTo(nodes, node) {
  const way = new Set();
  for (let one = node; one; one = nodes[one.parent]) way.add(one.id);
  return way;
}

/** Rows of all nodes, by id: in each column in their parents' order, then the most probable first; in the middle. */
function placed(nodes) {
  const places = nodes.map(() => ({ row: 0 }));
  const steps = Math.max(...nodes.map((node) => node.step));
  const columns = Array.from({ length: steps + 1 }, (_, step) => nodes.filter((node) => node.step === step));
  const most = Math.max(...columns.map((column) => column.length));
  for (const column of columns) {
    const above = (node) => places[node.parent]?.row ?? 0;
    column.sort((a, b) => above(a) - above(b) || b.log_prob - a.log_prob);
    column.forEach((node, at) => {
      places[node.id].row = (most - column.length) / 2 + at;
    });
  }
  return places;
}

/** The number in a box: how probable the token was, or the score of what has ended. */
function told(node) {
  return node.state === "finished" ? `${node.rank + 1}.  ${plain(node.score)}` : percent(node.probability);
}

function short(text) {
  return text.length > NAME ? `${text.slice(0, NAME - 1)}…` : text;
}
