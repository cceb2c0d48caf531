// Neural stored-program memory, Eqs. 3–5: nsm/programs.py.

import { linear, oneHot, plus, softmax, softplus, zeros } from "./algebra.js";
import { similarities } from "./similarity.js";

// --- attention: from a query and a strength to a weight per program --------------------------------------------------

/** β D(k, k_i), Eqs. 3–4. query (K), keys (P, K) → (P). */
const keyValueLogits = (query, strength, keys, count) => similarities(query, keys, count).map((d) => strength * d);
const directLogits = (query, strength) => query.map((k) => strength * k);
const uniformLogits = (query, strength, keys, count) => zeros(count);

/** Only the program with the largest logit; Gumbel noise is added in training only. */
function greedy(logits, noise) {
  const noisy = noise ? logits.map((logit, p) => logit + noise[p]) : logits;
  return oneHot(noisy.indexOf(noisy.reduce((a, b) => Math.max(a, b))), noisy.length);
}

/** softmax((w + noise) / temperature) of w = softmax(logits), as the published code has it. */
function noisyMix(logits, noise, temperature) {
  const scores = softmax(logits).map((w, p) => (w + (noise ? noise[p] : 0)) / temperature);
  return softmax(scores.map((score, p) => (logits[p] === -Infinity ? -Infinity : score)));
}

const ATTENTION = {
  "key-value": { logits: keyValueLogits, weights: softmax },
  direct: { logits: directLogits, weights: softmax },
  uniform: { logits: uniformLogits, weights: softmax },
  gumbel: { logits: keyValueLogits, weights: greedy },
  "gumbel-probabilities": { logits: keyValueLogits, weights: noisyMix },
};

/** Program p of weights (P, n, L) and biases (P, L), as those of a linear layer: (L, n), (L). */
function program(p, { data, shape: [, size, length] }, bias) {
  const turned = new Float32Array(size * length);
  for (let i = 0, at = p * size * length; i < size; i++) {
    for (let o = 0; o < length; o++, at++) turned[o * size + i] = data[at];
  }
  return [{ data: turned, shape: [length, size] }, { data: bias.data.subarray(p * length, (p + 1) * length) }];
}

/** Σ_i w(i) y(i): the mixed outputs of the programs. `made` (P) vectors, weights (P). */
export const blended = (made, weights) => made.map((each, p) => each.map((v) => weights[p] * v)).reduce(plus);

// --- the layer -------------------------------------------------------------------------------------------------------

/** What chooses among programs: keys, and a query network. */
export class Querying {
  /** `config` is that of the programs, `tensor` finds a tensor by its name. */
  constructor(config, tensor) {
    this.config = config;
    this.attention = ATTENTION[config.attention];
    const bounded = config.bounded_keys ? Math.tanh : (k) => k;
    this.keys = Float64Array.from(tensor("memory.key")?.data ?? [], bounded);
    this.bounded = (query) => query.map(bounded);
    this.query = [tensor("query.weight"), tensor("query.bias")];
    this.strength = [tensor("strength.weight"), tensor("strength.bias")];
  }

  /** ξ^p = [k^p, β^p]; uniform attention has no query. */
  ask(c) {
    if (!this.query[0]) return [zeros(0), 0];
    return [linear(c, ...this.query), softplus(linear(c, ...this.strength)[0])];
  }

  /** Eqs. 3–4: how much of each program to take. Programs that are not among the `allowed` get nothing. → (P) */
  attend(c, noise, allowed) {
    const [query, strength] = this.ask(c);
    const scale = this.config.strength_scale;
    const logits = this.attention.logits(this.bounded(query), scale * strength, this.keys, this.config.count);
    return this.attention.weights(allowed ? logits.map((logit, p) => (allowed[p] ? logit : -Infinity)) : logits, noise, this.config.temperature);
  }
}

export class StoredProgramLinear extends Querying {
  constructor(config, tensor) {
    super(config, tensor);
    this.programs = Array.from({ length: config.count }, (_, p) => program(p, tensor("memory.weight"), tensor("memory.bias")));
  }

  /** Σ_i w(i) ([c, 1]·v_i): the mixed outputs of the programs for c. → (L) */
  execute(c, weights) {
    return blended(this.programs.map((parts) => linear(c, ...parts)), weights);
  }

  /** Attend, then execute: ξ (L), and the weights (P) of the programs that made it. */
  interface(c, noise, allowed) {
    const weights = this.attend(c, noise, allowed);
    return [this.execute(c, weights), weights];
  }
}

/** A network whose weights are not stored: an interface network, ξ = c W, or an output layer. */
export class StaticLinear {
  constructor(tensor) {
    this.parts = [tensor("weight"), tensor("bias")];
  }

  interface(c) {
    return [linear(c, ...this.parts), null];
  }
}
