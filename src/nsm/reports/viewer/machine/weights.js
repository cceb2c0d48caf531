// Builds the machine in a page, which weights.py packs.

import { Machine } from "./machine.js";

/** Base64 as bytes. In a loop: a function called for every byte takes several times as long. */
export function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The machine of {config, tensors: [[name, shape]], data}; data is compressed, byte planes of float32 in base64. */
export async function unpackMachine(packed) {
  const stream = new Blob([bytesOf(packed.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const numbers = new Float32Array(planes.length / 4), raw = new Uint8Array(numbers.buffer);
  for (let i = 0; i < numbers.length; i++) {
    for (let plane = 0; plane < 4; plane++) raw[4 * i + plane] = planes[plane * numbers.length + i];
  }
  let at = 0;
  const tensors = packed.tensors.map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    return [name, { shape, data: numbers.subarray(at, (at += size)) }];
  });
  return new Machine(packed.config, Object.fromEntries(tensors));
}
