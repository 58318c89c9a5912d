/* Arrays of numbers as the API sends them, and numbers as people read them. */

const KINDS = { float32: Float32Array, uint8: Uint8Array };

/** {shape, dtype, data in base64} -> {shape, values}, a typed array in row-major order. */
export function decoded({ shape, dtype, data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { shape, values: new KINDS[dtype](bytes.buffer) };
}

/** Row `index` of an array's last axis, without copying. */
export function row({ shape, values }, index) {
  const width = shape.at(-1);
  return values.subarray(index * width, (index + 1) * width);
}

/** The largest absolute value. */
export function extent(values) {
  let largest = 0;
  for (const value of values) {
    const size = Math.abs(value);
    if (size > largest) largest = size;
  }
  return largest;
}

/** The absolute value that only one in two hundred exceeds: where colours end when a few values stand out. */
export function spread(values) {
  const sizes = Float32Array.from(values, Math.abs).sort();
  return sizes[Math.floor((sizes.length - 1) * 0.995)] || extent(values);
}

/** A value of the address as an index below `count`, or null if it is none. */
export function index(value, count) {
  const number = Number(value);
  const there = value !== undefined && value !== "" && Number.isInteger(number) && number >= 0 && number < count;
  return there ? number : null;
}

/** Options [index, words] for so many things, which people count from 1. */
export function numbered(count) {
  return Array.from({ length: count }, (_, i) => [i, String(i + 1)]);
}

/** 0.1234 -> "12.3 %". */
export function percent(value) {
  const hundred = value * 100;
  if (hundred > 0 && hundred < 0.05) return "< 0.1 %";
  return `${hundred.toFixed(1)} %`;
}

/** A number with a few digits after the point, and a true minus sign. */
export function plain(value, digits = 3) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const written = value.toFixed(digits);
  return Number(written) === 0 ? written.replace("-", "") : written.replace("-", "−");
}
