// Cosine similarity that is safe at zero vectors: nsm/similarity.py.

const EPSILON = 1e-8;

/** √(Σx² + ε) over `size` numbers of an array from `start` on. */
export function normAt(x, start, size) {
  let sum = EPSILON;
  for (let i = start; i < start + size; i++) sum += x[i] * x[i];
  return Math.sqrt(sum);
}

/** D(key ⊙ mask, row ⊙ mask) for each row of a matrix. key, mask (K), matrix rows × K → (rows). */
export function maskedSimilarities(key, mask, matrix, rows) {
  return similarities(key.map((k, i) => k * mask[i]), matrix.map((x, at) => x * mask[at % mask.length]), rows);
}

/** D(key, row) = key·row / (|key| |row|) for each row of a matrix. key (K), matrix rows × K → (rows). */
export function similarities(key, matrix, rows) {
  const size = key.length, length = normAt(key, 0, size), out = new Float64Array(rows);
  for (let row = 0, at = 0; row < rows; row++, at += size) {
    let dot = 0;
    for (let i = 0; i < size; i++) dot += key[i] * matrix[at + i];
    out[row] = dot / (length * normAt(matrix, at, size));
  }
  return out;
}
