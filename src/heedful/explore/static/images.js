/* Pictures of the reader's: chosen, dropped or pasted, and made small enough for a link to hold them. */

const SMALL_BYTES = 6_000;
const QUALITY = 0.85;
const KINDS = ["image/png", "image/jpeg"];

/** A file as base64: as it is where it is small, otherwise with its shorter side brought to `side` pixels.

Gives {data, width, height}; throws where the browser can't read it. */
export async function packed(file, side) {
  const bitmap = await createImageBitmap(file);
  const size = { width: bitmap.width, height: bitmap.height };
  if (file.size <= SMALL_BYTES && KINDS.includes(file.type)) return { data: await base64(file), ...size };
  const scale = Math.min(1, side / Math.min(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const kind = Math.max(canvas.width, canvas.height) <= 64 ? "image/png" : "image/jpeg";
  return { data: canvasData(canvas, kind), width: canvas.width, height: canvas.height };
}

/** What is on a canvas as base64 of a file. */
export function canvasData(canvas, kind = "image/png") {
  return canvas.toDataURL(kind, QUALITY).split(",")[1];
}

/** Base64 as an address holds it, and back. */
export function forAddress(data) {
  return data.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export function fromAddress(text) {
  const data = text.replaceAll("-", "+").replaceAll("_", "/");
  return data + "=".repeat((4 - (data.length % 4)) % 4);
}

/** Hear of pictures that are dropped on the page or pasted into it; gives a function that ends it.

`element` has the class "dropping" while one is held over the page. */
export function receive(element, take) {
  const first = (list) => [...(list ?? [])].find((file) => file.type.startsWith("image/"));
  const heard = {
    dragover(event) {
      event.preventDefault();
      element.classList.add("dropping");
    },
    dragleave() {
      element.classList.remove("dropping");
    },
    drop(event) {
      event.preventDefault();
      element.classList.remove("dropping");
      take(first(event.dataTransfer?.files));
    },
    paste(event) {
      const file = first(event.clipboardData?.files);
      if (file) take(file);
    },
  };
  for (const [kind, hear] of Object.entries(heard)) document.addEventListener(kind, hear);
  return () => {
    for (const [kind, hear] of Object.entries(heard)) document.removeEventListener(kind, hear);
  };
}

async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
