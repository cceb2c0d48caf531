// State networks, h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1}), Eq. 1: nsm/controllers.py. Each takes an input and its state,
// and gives its output c_t and the next state.

import { cut, layerNorm, linear, plus, sigmoid, zeros } from "./algebra.js";

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

  step(x, state, noise) {
    let gates = plus(linear(x, ...this.input), linear(state.hidden, ...this.recurrent));
    gates = cut(gates, [this.size, this.size, this.size, this.size]);
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

  step(x, state) {
    const sizes = [this.size, this.size, this.size];
    const [rx, zx, nx] = cut(linear(x, ...this.input), sizes);
    const [rh, zh, nh] = cut(linear(state.hidden, ...this.recurrent), sizes);
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

  step(x, state) {
    const hidden = plus(linear(x, ...this.input), linear(state.hidden, ...this.recurrent)).map(Math.tanh);
    return [hidden, { hidden }];
  }
}

/** c = tanh(W x): no state network, a one-state machine. */
class FeedForward extends StateNetwork {
  static state = [];

  step(x, state) {
    return [linear(x, ...this.input).map(Math.tanh), state];
  }
}

const NETWORKS = { lstm: LSTM, gru: GRU, rnn: RNN, "feed-forward": FeedForward };

/** The network that a configuration describes. */
export const stateNetwork = (config, tensor) => new NETWORKS[config.kind](config, tensor);
