// The arithmetic all parts share. Vectors are Float64Arrays. Weights are {data, shape} and stay the Float32Arrays they
// were trained as, in torch's memory layout: the last dimension is contiguous.

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));
export const softplus = (x) => (x > 20 ? x : Math.log1p(Math.exp(x)));
export const zeros = (size) => new Float64Array(size);

/** x W + bias, weight (out, in) as in nn.Linear; without a bias where there is none. x (in) → (out). */
export function linear(x, weight, bias) {
  const { data } = weight, size = x.length, out = zeros(weight.shape[0]);
  for (let o = 0, at = 0; o < out.length; o++, at += size) {
    // Four sums, because an addition would wait for the one before it.
    let s0 = bias ? bias.data[o] : 0, s1 = 0, s2 = 0, s3 = 0, i = 0;
    for (; i + 3 < size; i += 4) {
      s0 += x[i] * data[at + i];
      s1 += x[i + 1] * data[at + i + 1];
      s2 += x[i + 2] * data[at + i + 2];
      s3 += x[i + 3] * data[at + i + 3];
    }
    for (; i < size; i++) s0 += x[i] * data[at + i];
    out[o] = s0 + s1 + (s2 + s3);
  }
  return out;
}

/** e^x / Σ e^x; −∞ gives 0. */
export function softmax(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = logits.map((logit) => Math.exp(logit - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

/** nn.LayerNorm: mean 0 and variance 1 over x, then weight and bias. */
export function layerNorm(x, weight, bias) {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const variance = x.reduce((sum, v) => sum + (v - mean) * (v - mean), 0) / x.length;
  const scale = 1 / Math.sqrt(variance + 1e-5);
  return x.map((v, i) => (v - mean) * scale * weight.data[i] + bias.data[i]);
}

/** Vectors one after the other. */
export function joined(...parts) {
  const out = zeros(parts.reduce((size, part) => size + part.length, 0));
  parts.reduce((at, part) => (out.set(part, at), at + part.length), 0);
  return out;
}

/** A vector cut into parts of the given sizes, which share its numbers. */
export function cut(x, sizes) {
  let at = 0;
  return sizes.map((size) => x.subarray(at, (at += size)));
}

/** a + b, element by element. */
export const plus = (a, b) => a.map((v, i) => v + b[i]);

/** A vector of `size` numbers with a 1 at one place. */
export function oneHot(place, size) {
  const out = zeros(size);
  out[place] = 1;
  return out;
}
