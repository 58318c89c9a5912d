/* Anything on the page as a file: PNG for slides, SVG for papers.

What is seen is drawn again as plain SVG: boxes, lines of text, canvases as images, drawings as they are. No foreign
objects, so that the file opens in every program and may be turned into a PNG. Knows nothing of what it draws. */

import { s } from "heedful/elements.js";
import { colour } from "heedful/theme.js";

const MARGIN = 16;
const SHARPNESS = 2;
const FONT = ["font-family", "font-size", "font-weight", "font-style"];
const SPEAKING = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity",
  "text-anchor", "dominant-baseline", "visibility", ...FONT,
];
const SKIPPED = "button:not([data-saved]), input, select, textarea, .unsaved, .modebar-container";

/** Save an element as `name`.svg. */
export function saveSvg(element, name) {
  hand(new Blob([drawing(element).text], { type: "image/svg+xml" }), `${name}.svg`);
}

/** Save an element as `name`.png, at twice the size of the screen. */
export async function savePng(element, name) {
  const { text, width, height } = drawing(element);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  const scale = Math.min(SHARPNESS, 16384 / Math.max(width, height)); // what browsers allow a canvas
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => hand(blob, `${name}.png`));
}

/** An element as the text of an SVG file, with its size: whole, however far the reader has scrolled in it. */
export function drawing(element) {
  const scrolled = [...element.querySelectorAll("*")].filter((one) => one.scrollLeft || one.scrollTop);
  const places = scrolled.map((one) => [one.scrollLeft, one.scrollTop]);
  scrolled.forEach((one) => one.scrollTo(0, 0));
  try {
    return drawn(element);
  } finally {
    scrolled.forEach((one, i) => one.scrollTo(...places[i]));
  }
}

function drawn(element) {
  const frame = element.getBoundingClientRect();
  const origin = { x: frame.left - MARGIN, y: frame.top - MARGIN, right: frame.right, bottom: frame.bottom };
  const root = s("svg", { xmlns: "http://www.w3.org/2000/svg" });
  draw(element, root, origin);
  const width = Math.ceil(origin.right - origin.x + MARGIN);
  const height = Math.ceil(origin.bottom - origin.y + MARGIN);
  root.setAttribute("width", width);
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.prepend(s("rect", { width, height, fill: colour("surface") }));
  return { text: new XMLSerializer().serializeToString(root), width, height };
}

function draw(element, out, origin) {
  if (element.matches(SKIPPED)) return;
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden") return;
  const inner = Number(style.opacity) < 1 ? out.appendChild(s("g", { opacity: style.opacity })) : out;
  if (box.width && box.height) {
    origin.right = Math.max(origin.right, box.right);
    origin.bottom = Math.max(origin.bottom, box.bottom);
    drawBox(style, box, inner, origin);
  }
  if (element instanceof HTMLCanvasElement) drawImage(element.toDataURL(), box, style, inner, origin);
  else if (element instanceof HTMLImageElement) drawImage(element.src, box, style, inner, origin);
  else if (element instanceof SVGSVGElement) inner.append(copied(element, box, origin));
  else {
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) drawText(child, style, inner, origin);
      else if (child.nodeType === Node.ELEMENT_NODE) draw(child, inner, origin);
    }
  }
}

function drawBox(style, box, out, origin) {
  const place = { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height };
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2);
  if (!clear(style.backgroundColor)) out.append(s("rect", { ...place, rx: radius, fill: style.backgroundColor }));
  const sides = [["Top", 0, 0, 1, 0], ["Right", 1, 0, 1, 1], ["Bottom", 0, 1, 1, 1], ["Left", 0, 0, 0, 1]];
  const wide = (side) => parseFloat(style[`border${side}Width`]) > 0;
  const seen = sides.filter(([side]) => wide(side) && !clear(style[`border${side}Color`]));
  const ink = ([side]) => ({ stroke: style[`border${side}Color`], "stroke-width": style[`border${side}Width`] });
  if (seen.length === 4) out.append(s("rect", { ...place, rx: radius, fill: "none", ...ink(sides[0]) }));
  else {
    for (const side of seen) {
      const [x1, x2] = [side[1], side[3]].map((part) => place.x + part * box.width);
      const [y1, y2] = [side[2], side[4]].map((part) => place.y + part * box.height);
      out.append(s("line", { x1, y1, x2, y2, ...ink(side) }));
    }
  }
}

function drawImage(href, box, style, out, origin) {
  const place = { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height };
  const drawn = { href, preserveAspectRatio: "none", style: { imageRendering: style.imageRendering } };
  out.append(s("image", { ...place, ...drawn }));
}

/** The lines of a text, each where it stands: words that share a height are a line. */
function drawText(node, style, out, origin) {
  const range = document.createRange();
  const font = Object.fromEntries(FONT.map((name) => [name, style.getPropertyValue(name)]));
  let line = null;
  const write = () => {
    if (line) {
      const place = { x: line.x - origin.x, y: line.y - origin.y, "dominant-baseline": "central" };
      out.append(s("text", { ...place, ...font, fill: style.color, "xml:space": "preserve" }, line.text));
    }
  };
  for (const { 0: word, index } of node.textContent.matchAll(/\S+\s*/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.trimEnd().length);
    const box = range.getClientRects()[0];
    if (!box) continue;
    const middle = box.top + box.height / 2;
    if (line && Math.abs(line.y - middle) < 2) line.text += word;
    else {
      write();
      line = { x: box.left, y: middle, text: word };
    }
  }
  write();
}

/** A drawing with its styles written into it, because the style sheet stays behind. */
function copied(drawing, box, origin) {
  const copy = drawing.cloneNode(true);
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of SPEAKING) node.setAttribute(name, style.getPropertyValue(name));
    node.removeAttribute("class");
    node.removeAttribute("style");
    node.removeAttribute("tabindex");
  });
  copy.setAttribute("x", box.left - origin.x);
  copy.setAttribute("y", box.top - origin.y);
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  return copy;
}

function clear(paint) {
  return paint === "transparent" || /^rgba\(.*,\s*0\)$|\/\s*0\)$/.test(paint);
}

function hand(blob, name) {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
