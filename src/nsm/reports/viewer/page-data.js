/* What the page was made with: one JSON document, with packed arrays in it. */

import { bytesOf } from "./machine/weights.js";

export const byId = (id) => document.getElementById(id);

export const DOCUMENT = JSON.parse(byId("data").textContent);
const NUMBER_KINDS = { u1: Uint8Array, u2: Uint16Array, f4: Float32Array, i1: Int8Array };

/** An array of the page: its numbers, and its shape. */
export async function unpack(packed) {
  const stream = new Blob([bytesOf(packed.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = new NUMBER_KINDS[packed.type](await new Response(stream).arrayBuffer());
  if (packed.differences) {
    const stride = raw.length / packed.shape[0];
    for (let i = stride; i < raw.length; i++) raw[i] += raw[i - stride]; // modulo 256 or 65,536, as it was packed
  }
  const data = raw instanceof Float32Array ? raw : Float32Array.from(raw, (number) => packed.low + packed.unit * number);
  return { data, shape: packed.shape };
}

/** An element with attributes, listeners (`onclick`, …) and children; text is text, never markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (key.startsWith("aria-")) made.setAttribute(key, String(value));
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
