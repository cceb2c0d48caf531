// State networks, h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1}), Eq. 1: nsm/controllers.py and nsm/state_programs.py. Each takes
// an input and its state, and gives its output c_t and the next state.

import { cut, joined, layerNorm, linear, plus, sigmoid, zeros } from "./algebra.js";
import { Querying, blended } from "./programs.js";

class StateNetwork {
  /** `tensor` finds a tensor of the network by its name. */
  constructor(config, tensor) {
    this.size = config.size;
    this.input = [tensor("weight_ih"), tensor("bias_ih")];
    this.recurrent = [tensor("weight_hh"), tensor("bias_hh")];
    this.tensor = tensor;
  }

  /** The state before the first step: learned, or zero. */
  initialState() {
    const start = (name) => [name, Float64Array.from(this.tensor(`initial.${name}`)?.data ?? zeros(this.size))];
    return Object.fromEntries(this.constructor.state.map(start));
  }

  /** One step: c_t, the next state, and no weights of programs. */
  step(x, state, noise) {
    const theirs = state.hidden && linear(state.hidden, ...this.recurrent);
    return [...this.advance(linear(x, ...this.input), theirs, state, noise), null];
  }
}

/** i, f, g, o = gates; c = f c + i g (+ noise); h = o tanh(c). */
class LSTM extends StateNetwork {
  static state = ["hidden", "cell"];

  constructor(config, tensor) {
    super(config, tensor);
    const norm = (name) => [tensor(`${name}.weight`), tensor(`${name}.bias`)];
    this.gateNorms = config.layer_norm ? [0, 1, 2, 3].map((gate) => norm(`gate_norms.${gate}`)) : null;
    this.cellNorm = config.layer_norm ? norm("cell_norm") : null;
  }

  advance(ours, theirs, state, noise) {
    let gates = cut(plus(ours, theirs), [this.size, this.size, this.size, this.size]);
    if (this.gateNorms) gates = gates.map((gate, g) => layerNorm(gate, ...this.gateNorms[g]));
    const [i, f, g, o] = gates;
    let cell = state.cell.map((c, n) => sigmoid(f[n]) * c + sigmoid(i[n]) * Math.tanh(g[n]));
    if (noise) cell = plus(cell, noise);
    const shown = this.cellNorm ? layerNorm(cell, ...this.cellNorm) : cell;
    const hidden = shown.map((c, n) => sigmoid(o[n]) * Math.tanh(c));
    return [hidden, { hidden, cell }];
  }
}

/** r, z = σ(…); n = tanh(W x + r (U h)); h = (1 − z) n + z h. */
class GRU extends StateNetwork {
  static state = ["hidden"];

  advance(ours, theirs, state) {
    const sizes = [this.size, this.size, this.size];
    const [rx, zx, nx] = cut(ours, sizes);
    const [rh, zh, nh] = cut(theirs, sizes);
    const hidden = state.hidden.map((h, n) => {
      const z = sigmoid(zx[n] + zh[n]);
      const candidate = Math.tanh(nx[n] + sigmoid(rx[n] + rh[n]) * nh[n]);
      return (1 - z) * candidate + z * h;
    });
    return [hidden, { hidden }];
  }
}

/** h = tanh(W x + U h). */
class RNN extends StateNetwork {
  static state = ["hidden"];

  advance(ours, theirs) {
    const hidden = plus(ours, theirs).map(Math.tanh);
    return [hidden, { hidden }];
  }
}

/** c = tanh(W x): no state network, a one-state machine. */
class FeedForward extends StateNetwork {
  static state = [];

  advance(ours, theirs, state) {
    return [ours.map(Math.tanh), state];
  }
}

const NETWORKS = { lstm: LSTM, gru: GRU, rnn: RNN, "feed-forward": FeedForward };

/** Program p of weights (P, rows, inputs) or biases (P, rows). */
function networkProgram(p, { data, shape: [, ...shape] }) {
  const size = shape.reduce((a, b) => a * b, 1);
  return { data: data.subarray(p * size, (p + 1) * size), shape };
}

/** A state network that reads its weights from a program memory at every step; both products are mixed afterwards. */
class StoredStateNetwork extends Querying {
  constructor(config, programs, tensor) {
    super(programs, tensor);
    this.network = new NETWORKS[config.kind](config, (name) => tensor(`memory.network.${name}`));
    const { input, recurrent } = this.network;
    const one = (p) => (parts) => parts.map((part) => part && networkProgram(p, part));
    this.programs = Array.from({ length: programs.count }, (_, p) => [input, recurrent].map(one(p)));
  }

  initialState() {
    return this.network.initialState();
  }

  /** One step: c_t, the next state, and the weights (P) of the programs that made them. */
  step(x, state, noise, choice, allowed) {
    const { hidden } = state;
    const weights = this.attend(hidden ? joined(x, hidden) : x, choice, allowed);
    const ours = blended(this.programs.map(([input]) => linear(x, ...input)), weights);
    const theirs = hidden && blended(this.programs.map(([, recurrent]) => linear(hidden, ...recurrent)), weights);
    return [...this.network.advance(ours, theirs, state, noise), weights];
  }
}

/** The network that a configuration describes, with `programs` if its weights are stored. */
export const stateNetwork = (config, programs, tensor) => {
  return programs ? new StoredStateNetwork(config, programs, tensor) : new NETWORKS[config.kind](config, tensor);
};
