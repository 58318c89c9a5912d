/* Digits that the page draws by itself, light on dark as handwritten ones are kept: something to look at before one
has a picture at hand. */

const SIDE = 64;
const PEN = 7;

/** Strokes of each digit on a square of side 1: lines through points, and arcs [x, y, radius across, radius down,
from, to], in turns. */
const STROKES = {
  0: [{ arc: [0.5, 0.5, 0.21, 0.33, 0, 1] }],
  1: [{ line: [[0.37, 0.3], [0.53, 0.16], [0.53, 0.84]] }],
  2: [{ arc: [0.5, 0.35, 0.2, 0.18, 0.52, 1.12] }, { line: [[0.645, 0.475], [0.3, 0.82], [0.72, 0.82]] }],
  3: [{ arc: [0.47, 0.33, 0.2, 0.16, 0.55, 1.25] }, { arc: [0.47, 0.66, 0.22, 0.18, 0.75, 1.45] }],
  4: [{ line: [[0.58, 0.84], [0.58, 0.16], [0.27, 0.62], [0.76, 0.62]] }],
  5: [{ line: [[0.7, 0.18], [0.36, 0.18], [0.34, 0.46]] }, { arc: [0.47, 0.62, 0.22, 0.2, 0.63, 1.42] }],
  6: [{ line: [[0.62, 0.16], [0.44, 0.33], [0.33, 0.55]] }, { arc: [0.5, 0.65, 0.18, 0.18, 0, 1] }],
  7: [{ line: [[0.28, 0.18], [0.72, 0.18], [0.44, 0.84]] }],
  8: [{ arc: [0.5, 0.33, 0.17, 0.16, 0, 1] }, { arc: [0.5, 0.66, 0.2, 0.18, 0, 1] }],
  9: [{ arc: [0.5, 0.35, 0.18, 0.18, 0, 1] }, { line: [[0.67, 0.42], [0.62, 0.65], [0.5, 0.84]] }],
};

export const DIGITS = Object.keys(STROKES);

/** A canvas with a digit on it. */
export function digit(name) {
  const canvas = document.createElement("canvas");
  canvas.width = SIDE;
  canvas.height = SIDE;
  const pen = canvas.getContext("2d");
  pen.fillRect(0, 0, SIDE, SIDE);
  pen.strokeStyle = "white";
  pen.lineWidth = PEN;
  pen.lineCap = "round";
  pen.lineJoin = "round";
  for (const { line, arc } of STROKES[name]) {
    pen.beginPath();
    if (arc) {
      const [x, y, wide, high, from, to] = arc;
      pen.ellipse(x * SIDE, y * SIDE, wide * SIDE, high * SIDE, 0, from * 2 * Math.PI, to * 2 * Math.PI);
    } else line.forEach(([x, y]) => pen.lineTo(x * SIDE, y * SIDE));
    pen.stroke();
  }
  return canvas;
}
