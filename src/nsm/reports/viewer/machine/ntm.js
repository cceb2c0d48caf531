// The Neural Turing Machine's memory, Appendix F: nsm/memories/ntm.py.

import { cut, joined, sigmoid, softmax, softplus, zeros } from "./algebra.js";
import { Tape, contentAddress, firstAddress, lookedUp, written } from "./tape.js";

const TINY = 1e-16;

export class NTMMemory extends Tape {
  constructor(config, tensor) {
    super(config, tensor);
    const shifts = 2 * config.shift_range + 1, size = config.width + 3 + shifts;
    this.parts = [config.width, 1, 1, shifts, 1];
    this.addressSize = size;
    const kinds = { read: { kind: "read", size }, write: { kind: "write", size: size + 2 * config.width } };
    const [first, second] = config.order === "read-first" ? ["read", "write"] : ["write", "read"];
    this.heads = [];
    // Pair by pair: with several pairs, the second read head already sees what the first write head wrote.
    for (let pair = 0; pair < Math.max(config.read_heads, config.write_heads); pair++) {
      for (const kind of [first, second]) if (pair < config[`${kind}_heads`]) this.heads.push(kinds[kind]);
    }
    this.readSize = config.read_heads * config.width;
  }

  initialState(slots) {
    const start = (heads) => Array.from({ length: heads }, () => firstAddress(this.config.initial_address, slots));
    return { memory: this.blank(slots), read: start(this.config.read_heads), write: start(this.config.write_heads) };
  }

  step(interfaces, state, place) {
    let { memory } = state;
    const addresses = { read: [], write: [] }, reads = [];
    this.heads.forEach(({ kind }, n) => {
      const head = addresses[kind].length;
      const computed = this.address(interfaces[n].subarray(0, this.addressSize), memory, state[kind][head]);
      const w = place(kind, head, computed);
      addresses[kind].push(w);
      if (kind === "read") {
        reads.push(lookedUp(w, memory, this.width));
      } else {
        const [erase, add] = cut(interfaces[n].subarray(this.addressSize), [this.width, this.width]);
        memory = written(memory, w, erase.map(sigmoid), add);
      }
    });
    return { read: joined(...reads), state: { memory, ...addresses }, addresses };
  }

  /** Where a head goes. interface (M + 6), memory (N·M), previous address (N) → (N). */
  address(interface_, memory, previous) {
    const [key, strength, gate, shifts, gamma] = cut(interface_, this.parts);
    const content = contentAddress(key, memory, softplus(strength[0]));
    const g = sigmoid(gate[0]);
    const w = content.map((share, i) => g * share + (1 - g) * previous[i]);
    return sharpened(shifted(w, softmax(shifts)), 1 + softplus(gamma[0]));
  }
}

/** Circular convolution: shifts[j] moves the address by j − range. */
function shifted(w, shifts) {
  const slots = w.length, reach = (shifts.length - 1) / 2, out = zeros(slots);
  shifts.forEach((share, j) => {
    for (let i = 0; i < slots; i++) out[(((i + j - reach) % slots) + slots) % slots] += share * w[i];
  });
  return out;
}

/** w^γ / Σ w^γ, as a softmax of γ log w: the powers themselves underflow. */
const sharpened = (w, gamma) => softmax(w.map((share) => gamma * Math.log(share + TINY)));
