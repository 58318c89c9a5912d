/* Points on a plane with their names beside them, of which none lies over another. Knows nothing of what they are. */

import { s, walkable } from "heedful/elements.js";

const MARGIN = 28;
const GAP = 5;
const TEXT = { large: 14, small: 12 };
const RADIUS = { large: 10, small: 4 };

/** An SVG of points {x, y, label, large, mark, group, colour, words}.

mark     what stands in a large point; words: what is said of it
group    which points belong together: `element.only(group)` lets the others fade, null brings them back */
export function labelledPoints({ points, width, height, label }) {
  const at = scaled(points, width, height);
  const names = placedNames(points, at, width, height);
  const frame = { width, height, viewBox: `0 0 ${width} ${height}` };
  const svg = s("svg", { class: "points", ...frame, role: "group", aria: { label } });
  const order = points.map((_, i) => i).sort((a, b) => points[a].large - points[b].large); // large ones above
  for (const i of order) {
    const { x, y, label: name, large, mark, group, colour: fill, words } = points[i];
    const kind = large ? "large" : "small";
    svg.append(s("g", {
      class: `point ${kind}`,
      role: "img",
      tabindex: "-1",
      data: { group, label: name, x, y },
      aria: { label: words },
    },
    s("title", {}, words),
    s("circle", { cx: at[i].x, cy: at[i].y, r: RADIUS[kind], fill }),
    mark && s("text", { class: "mark-in", ...at[i] }, mark),
    names[i] && s("text", { class: "name", ...names[i], fill, "font-size": TEXT[kind] }, name)));
  }
  walkable(svg, ".point")();
  svg.only = (group) => svg.querySelectorAll(".point").forEach((point) => {
    point.classList.toggle("faded", group !== null && point.dataset.group !== String(group));
  });
  return svg;
}

/** Where points stand: one scale for both directions, in the middle. */
function scaled(points, width, height) {
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const [left, right] = range(points.map(({ x }) => x));
  const [low, high] = range(points.map(({ y }) => y));
  const side = 1.6 * MARGIN; // names need room
  const scale = Math.min((width - 2 * side) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
  return points.map(({ x, y }) => ({ x: width / 2 + (x - (left + right) / 2) * scale,
                                     y: height / 2 - (y - (low + high) / 2) * scale }));
}

/** Where names stand that find room: right of their points, left, above or below. Null for the others. */
function placedNames(points, at, width, height) {
  const pen = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  const taken = points.map((point, i) => around(at[i], point.large ? RADIUS.large : RADIUS.small));
  const names = points.map(() => null);
  const order = points.map((_, i) => i).sort((a, b) => points[b].large - points[a].large);
  for (const i of order) {
    const kind = points[i].large ? "large" : "small";
    const size = TEXT[kind];
    const away = RADIUS[kind] + GAP;
    pen.font = `${size}px ${family}`;
    const wide = pen.measureText(points[i].label).width;
    const { x, y } = at[i];
    const tall = away + size / 2;
    const tries = [[x + away, y], [x - away - wide, y], [x - wide / 2, y - tall], [x - wide / 2, y + tall]];
    for (const [left, middle] of tries) {
      const box = { left, right: left + wide, top: middle - size * 0.6, bottom: middle + size * 0.6 };
      if (box.left < 0 || box.right > width || box.top < 0 || box.bottom > height) continue;
      if (taken.some((other, j) => j !== i && meets(box, other))) continue;
      taken.push(box);
      names[i] = { x: left, y: middle };
      break;
    }
  }
  return names;
}

function around({ x, y }, radius) {
  return { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius };
}

function meets(one, other) {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}
