// Cosine similarity that is safe at zero vectors: nsm/similarity.py.

import { dot } from "./algebra.js";

const EPSILON = 1e-8;

/** √(Σx² + ε) over `size` numbers of an array from `start` on. */
export function normAt(x, start, size) {
  let sum = EPSILON;
  for (let i = start; i < start + size; i++) sum += x[i] * x[i];
  return Math.sqrt(sum);
}

/** D(key, row) = key·row / (|key| |row|) for each row of a matrix. key (K), matrix rows × K → (rows). */
export function similarities(key, matrix, rows) {
  const size = key.length, length = normAt(key, 0, size);
  return Float64Array.from({ length: rows }, (_, i) => {
    return dot(key, matrix, i * size) / (length * normAt(matrix, i * size, size));
  });
}
