// The Differentiable Neural Computer's memory: allocation, free gates, temporal links: nsm/memories/dnc.py.

import { cut, joined, sigmoid, softmax, softplus, zeros } from "./algebra.js";
import { Tape, contentAddress, leastUsedFirst, lookedUp, written } from "./tape.js";

const USAGE_EPSILON = 1e-6;

export class DNCMemory extends Tape {
  constructor(config, tensor) {
    super(config, tensor);
    const r = config.read_heads, m = config.width;
    this.readParts = [r * m, r, r, config.links ? 3 * r : 0, config.masked ? r * m : 0];
    this.writeParts = [m, 1, m, m, 1, 1, config.masked ? m : 0];
    const size = (parts) => parts.reduce((a, b) => a + b);
    this.heads = [{ kind: "read", size: size(this.readParts) }, { kind: "write", size: size(this.writeParts) }];
    this.readSize = r * m;
  }

  initialState(slots) {
    const linked = this.config.links ? slots : 0;
    return {
      memory: this.blank(slots),
      usage: zeros(slots),
      read: Array.from({ length: this.config.read_heads }, () => zeros(slots)),
      write: [zeros(slots)],
      precedence: zeros(linked),
      links: zeros(linked * linked),
    };
  }

  step([reading, writing], state, place) {
    const [keys, strengths, free, modes, masks] = cut(reading, this.readParts);
    const [writeKey, writeStrength, erase, add, allocationGate, writeGate, mask] = cut(writing, this.writeParts);

    const kept = retention(free.map(sigmoid), state.read);
    const usage = updatedUsage(state.usage, state.write[0], kept);
    const content = this.#content(writeKey, mask, state.memory, writeStrength[0]);
    const ga = sigmoid(allocationGate[0]), gw = sigmoid(writeGate[0]), allocated = allocation(usage);
    const write = place("write", 0, content.map((c, i) => gw * (ga * allocated[i] + (1 - ga) * c)));
    const before = this.config.erase_freed
      ? state.memory.map((x, at) => x * kept[Math.floor(at / this.width)])
      : state.memory;
    const memory = written(before, write, erase.map(sigmoid), add);

    let { precedence, links } = state;
    if (this.config.links) {
      links = updatedLinks(links, precedence, write);
      const all = write.reduce((a, b) => a + b, 0);
      precedence = precedence.map((p, i) => (1 - all) * p + write[i]);
    }
    const read = state.read.map((previous, head) => {
      const [key, mask] = [keys, masks].map((all) => all.subarray(head * this.width, (head + 1) * this.width));
      const found = this.#content(key, mask, memory, strengths[head]);
      const followed = this.config.links
        ? followedLinks(found, links, previous, softmax(modes.subarray(3 * head, 3 * head + 3)))
        : found;
      return place("read", head, followed);
    });
    return {
      read: joined(...read.map((w) => lookedUp(w, memory, this.width))),
      state: { memory, usage, read, write: [write], precedence, links },
      addresses: { read, write: [write] },
    };
  }

  #content(key, mask, memory, strength) {
    return contentAddress(key, memory, 1 + softplus(strength), this.config.masked ? mask.map(sigmoid) : null);
  }
}

/** ψ = Π_r (1 − f_r w_r): what is left of a slot after reads have freed it. */
function retention(free, read) {
  return read[0].map((_, i) => read.reduce((product, w, r) => product * (1 - free[r] * w[i]), 1));
}

/** u = (u + w_w − u w_w) ψ: written slots are used, freed ones are not. */
function updatedUsage(usage, write, kept) {
  return usage.map((u, i) => (u + write[i] - u * write[i]) * kept[i]);
}

/** a[φ_j] = (1 − u[φ_j]) Π_{i<j} u[φ_i] with φ the slots from least to most used. */
function allocation(usage) {
  const out = zeros(usage.length);
  let usedBefore = 1;
  for (const slot of leastUsedFirst(usage)) {
    const u = USAGE_EPSILON + (1 - USAGE_EPSILON) * usage[slot];
    out[slot] = (1 - u) * usedBefore;
    usedBefore *= u;
  }
  return out;
}

/** L[i,j] = (1 − w[i] − w[j]) L[i,j] + w[i] p[j], no slot follows itself. links (N·N). */
function updatedLinks(links, precedence, write) {
  const slots = write.length;
  return links.map((link, at) => {
    const i = Math.floor(at / slots), j = at % slots;
    return i === j ? 0 : (1 - write[i] - write[j]) * link + write[i] * precedence[j];
  });
}

/** π₁ Lᵀ w_r + π₂ content + π₃ L w_r of a read head. */
function followedLinks(content, links, previous, [backward, byContent, forward]) {
  const slots = content.length, out = content.map((share) => byContent * share);
  for (let i = 0; i < slots; i++) {
    for (let j = 0; j < slots; j++) {
      const link = links[i * slots + j];
      out[j] += backward * previous[i] * link;
      out[i] += forward * previous[j] * link;
    }
  }
  return out;
}
