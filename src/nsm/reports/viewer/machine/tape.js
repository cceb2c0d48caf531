// What the data memories share: nsm/memories/memory.py. A tape of N slots of width M is one Float64Array, slot by slot.
//
// A memory has `heads`, the control heads in their order, {kind, size}; `readSize`; `initialState(slots)`; and
// `step(interfaces, state, place)`, which gives {read, state, addresses: {read, write}}, an address (N) for each head.
// `place(kind, head, address)` may move a head before it reads or writes; see interventions.js.

import { softmax, zeros } from "./algebra.js";
import { maskedSimilarities, similarities } from "./similarity.js";
import { Mersenne } from "./mersenne.js";

const CONSTANT = Math.fround(1e-6);
const RESOLUTION = 2 ** -10;
const LONGER = 0x6c6f6e676572;

export class Tape {
  constructor(config, tensor) {
    this.config = config;
    this.width = config.width;
    this.initial = tensor("initial_memory").data;
  }

  /** The tape before the first step. A shorter one takes the first slots, a longer one continues the same way. */
  blank(slots) {
    const memory = zeros(slots * this.width).fill(CONSTANT);
    if (this.config.initial_memory === "random" && slots > this.config.slots) {
      const bound = 1 / Math.sqrt(this.config.slots + this.width), random = new Mersenne(LONGER);
      for (let i = this.initial.length; i < memory.length; i++) memory[i] = random.uniform(-bound, bound);
    }
    memory.set(this.initial.subarray(0, memory.length));
    return memory;
  }
}

/** An address before the first step: all on the first slot, nowhere, or everywhere. */
export function firstAddress(kind, slots) {
  const address = zeros(slots);
  if (kind === "one-hot") address[0] = 1;
  return kind === "uniform" ? address.fill(1 / slots) : address;
}

/** Rounded to an integer, half to even. */
function rounded(x) {
  const up = Math.round(x);
  return up - x === 0.5 && up % 2 !== 0 ? up - 1 : up;
}

/** φ, the slots from least to most used; what rounds to the same multiple of the resolution is ordered by position. */
export function leastUsedFirst(usage) {
  const steps = usage.map((u) => rounded(u / RESOLUTION));
  return Array.from(usage.keys()).sort((a, b) => steps[a] - steps[b] || a - b);
}

/** softmax over slots of β cos(k, M(i)), through a mask if there is one. key, mask (M), memory (N·M) → (N). */
export function contentAddress(key, memory, strength, mask = null) {
  const slots = memory.length / key.length;
  const found = mask ? maskedSimilarities(key, mask, memory, slots) : similarities(key, memory, slots);
  return softmax(found.map((d) => strength * d));
}

/** Σ_i w(i) M(i): what a head reads. → (M) */
export function lookedUp(address, memory, width) {
  const read = zeros(width);
  for (let i = 0, at = 0; i < address.length; i++, at += width) {
    for (let m = 0; m < width; m++) read[m] += address[i] * memory[at + m];
  }
  return read;
}

/** M(i) [1 − w(i) e] + w(i) v. memory (N·M), address (N), erase and add (M) → (N·M). */
export function written(memory, address, erase, add) {
  const out = zeros(memory.length), width = add.length;
  for (let i = 0, at = 0; i < address.length; i++, at += width) {
    for (let m = 0; m < width; m++) out[at + m] = memory[at + m] * (1 - address[i] * erase[m]) + address[i] * add[m];
  }
  return out;
}
