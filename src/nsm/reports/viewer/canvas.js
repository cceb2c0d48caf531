/* Drawing on canvases. Static pictures are drawn once, one pixel per number, and then stretched. */

import { channelsOf, colours } from "./colours.js";

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** A canvas with one pixel per number; `shade(column, row)` is its position on the ramp, 0 to 1, or null for blank. */
export function picture(columns, rows, table, shade) {
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const blank = channelsOf(colours["cell-none"]);
  for (let y = 0, i = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++, i += 4) {
      const share = shade(x, y);
      const from = share === null ? blank : table;
      const at = share === null ? 0 : 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
      image.data[i] = from[at];
      image.data[i + 1] = from[at + 1];
      image.data[i + 2] = from[at + 2];
      image.data[i + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Fit a canvas to its place on the screen, `height` high; returns a context that counts in CSS pixels. */
export function fit(canvas, height, width = canvas.clientWidth) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  const size = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  const context = canvas.getContext("2d");
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  context.setTransform(canvas.width / Math.max(1, width), 0, 0, canvas.height / height, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Stretch a picture; where several numbers share a pixel they are blended, else each stays a sharp cell. */
export function stretch(context, image, x, y, width, height) {
  context.imageSmoothingEnabled = image.width > width * (window.devicePixelRatio || 1);
  context.drawImage(image, x, y, width, height);
}

/** A wrong bit: red, and crossed for those who don't see red. */
export function cross(context, x, y, w, h) {
  context.fillStyle = colours.wrong;
  context.fillRect(x, y, w, h);
  if (Math.min(w, h) < 4) return;
  context.strokeStyle = colours["wrong-ink"];
  context.lineWidth = Math.max(1, Math.min(w, h) / 9);
  const pad = Math.min(w, h) * 0.25;
  context.beginPath();
  context.moveTo(x + pad, y + pad);
  context.lineTo(x + w - pad, y + h - pad);
  context.moveTo(x + w - pad, y + pad);
  context.lineTo(x + pad, y + h - pad);
  context.stroke();
}

/** Where in an element the pointer is, as shares of its width and height. */
export function within(place, event) {
  const box = place.getBoundingClientRect();
  const share = (value, low, size) => Math.min(0.999999, Math.max(0, (value - low) / size));
  return [share(event.clientX, box.left, box.width), share(event.clientY, box.top, box.height)];
}

/** A number as text. */
export const figure = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(4));
