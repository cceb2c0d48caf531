// Least Recently Used Access: nsm/memories/lrua.py.

import { joined, sigmoid, zeros } from "./algebra.js";
import { Tape, contentAddress, leastUsedFirst, lookedUp } from "./tape.js";

export class LRUAMemory extends Tape {
  constructor(config, tensor) {
    super(config, tensor);
    const heads = (count, kind, size) => Array.from({ length: count }, () => ({ kind, size }));
    this.heads = [
      ...heads(config.read_heads, "read", config.width),
      ...heads(config.write_heads, "write", config.width + 1),
    ];
    this.readSize = config.read_heads * config.width;
    this.leastUsed = config.least_used ?? config.read_heads;
  }

  initialState(slots) {
    const read = Array.from({ length: this.config.read_heads }, () => zeros(slots));
    return { memory: this.blank(slots), usage: zeros(slots), read };
  }

  step(interfaces, state, place) {
    const { width } = this, readHeads = this.config.read_heads;
    const order = leastUsedFirst(state.usage).slice(0, this.leastUsed), least = new Set(order);
    const before = state.usage.map((_, i) => state.read.reduce((sum, w) => sum + w[i], 0) / readHeads);

    const write = [];
    const memory = state.memory.slice();
    memory.fill(0, order[0] * width, (order[0] + 1) * width);
    interfaces.slice(readHeads).forEach((interface_, head) => {
      const gate = sigmoid(interface_[width]);
      const w = place("write", head, before.map((r, i) => gate * r + (1 - gate) * (least.has(i) ? 1 : 0)));
      write.push(w);
      w.forEach((share, i) => {
        for (let m = 0; m < width; m++) memory[i * width + m] += share * interface_[m];
      });
    });

    const seen = this.config.order === "write-first" ? memory : state.memory;
    const keys = interfaces.slice(0, readHeads);
    const read = keys.map((key, head) => place("read", head, contentAddress(key, seen, this.config.strength)));
    const total = (addresses, i) => addresses.reduce((sum, w) => sum + w[i], 0);
    const usage = state.usage.map((u, i) => this.config.decay * u + total(read, i) + total(write, i));
    return {
      read: joined(...read.map((w) => lookedUp(w, seen, width))),
      state: { memory, usage, read },
      addresses: { read, write },
    };
  }
}
