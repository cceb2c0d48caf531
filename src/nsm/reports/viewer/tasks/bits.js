/* Tasks on bits: what the user can change of a sequence (`spec`), and the rows of numbers it stands for.

   Each task has  read(task, sample) → spec,  phases(task, spec) → { shown, asked },  check(task, spec), which refuses
   invalid specs,  sizes(task, spec) → what can be made longer or shorter,  resize(task, spec, name, count),
   draw(task, spec) → another of the same sizes,  and  channels(task), how many inputs it takes by itself. */

import { Table, bitsOf, isBits, many, randomBits, require, signal, textOf, wholeNumber } from "./layout.js";

const MOST_STEPS = 400;

/** A list of the wanted length: shortened, or extended by drawing more. */
const fitted = (list, count, make) => [...list.slice(0, count), ...many(Math.max(0, count - list.length), make)];

function checkVectors(vectors, width) {
  require(Array.isArray(vectors) && wholeNumber(vectors.length, 1, MOST_STEPS), `between 1 and ${MOST_STEPS} vectors`);
  require(vectors.every((vector) => isBits(vector, width)), `vectors of ${width} bits`);
}

const vectorsBetween = (inputs, first, end, width) => many(end - first, (n) => textOf(inputs.row(first + n), width));

const copy = {
  channels: ({ width }) => width + 2,
  about: "The input is a list of random bit vectors, one per step; the machine then has to repeat them in order, from memory.",
  read: (task, sample) => ({ vectors: vectorsBetween(sample.inputs, 1, sample.decoding - 1, task.width) }),
  phases(task, { vectors }) {
    const rows = vectors.map(bitsOf);
    return { shown: [signal(task.width), ...rows, signal(task.width + 1)], asked: rows };
  },
  check: (task, { vectors }) => checkVectors(vectors, task.width),
  sizes: (task, { vectors }) => [{ name: "vectors", count: vectors.length, low: 1, high: 150 }],
  resize: (task, spec, name, count) => ({ vectors: fitted(spec.vectors, count, () => randomBits(task.width)) }),
  draw: (task, spec) => ({ vectors: spec.vectors.map(() => randomBits(task.width)) }),
};

/** Mean and standard deviation of the uniform distribution on a range, which normalise a count. */
function countScale({ normalise: [low, high], count_mean: mean }) {
  const values = high - low + 1;
  return [mean === "centre" ? (low + high) / 2 : (high - low) / 2, values > 1 ? Math.sqrt((values ** 2 - 1) / 12) : 1];
}

const repeatCopy = {
  channels: ({ width }) => width + 2,
  about: "The input is a list of bit vectors and a number; the machine has to repeat the list that many times.",
  read(task, sample) {
    const [mean, deviation] = countScale(task);
    const repeats = Math.round(sample.inputs.at(sample.decoding - 1, task.width + 1) * deviation + mean);
    return { vectors: vectorsBetween(sample.inputs, 1, sample.decoding - 1, task.width), repeats };
  },
  phases(task, { vectors, repeats }) {
    const rows = vectors.map(bitsOf);
    const [mean, deviation] = countScale(task);
    const shown = [signal(task.width), ...rows, signal(task.width + 1, (repeats - mean) / deviation)];
    return { shown, asked: [...many(repeats, () => rows).flat(), ...(task.end_marker ? [signal(task.width)] : [])] };
  },
  check(task, { vectors, repeats }) {
    checkVectors(vectors, task.width);
    require(wholeNumber(repeats, 1, 50) && vectors.length * repeats <= MOST_STEPS, `at most ${MOST_STEPS} vectors of output`);
  },
  sizes: (task, { vectors, repeats }) => [
    { name: "vectors", count: vectors.length, low: 1, high: Math.min(40, Math.floor(MOST_STEPS / repeats)) },
    { name: "times", count: repeats, low: 1, high: Math.min(30, Math.floor(MOST_STEPS / vectors.length)) },
  ],
  resize: (task, spec, name, count) =>
    name === "times" ? { ...spec, repeats: count } : { ...spec, vectors: fitted(spec.vectors, count, () => randomBits(task.width)) },
  draw: (task, spec) => ({ ...spec, vectors: spec.vectors.map(() => randomBits(task.width)) }),
};

const recall = {
  channels: ({ width }) => width + 2,
  about: "The input is a list of items, then one of them again; the machine has to output the item that followed it.",
  read(task, sample) {
    const { width, item_length: size } = task;
    const count = (sample.decoding - 2 - size) / (1 + size);
    const items = many(count, (k) => vectorsBetween(sample.inputs, k * (1 + size) + 1, (k + 1) * (1 + size), width));
    const after = vectorsBetween(sample.targets, sample.decoding, sample.decoding + size, width).join();
    const query = vectorsBetween(sample.inputs, sample.decoding - 1 - size, sample.decoding - 1, width).join();
    const found = items.findIndex((item, k) => item.join() === query && items[k + 1]?.join() === after);
    return { items, query: found };
  },
  phases({ width }, { items, query }) {
    const bound = signal(width + 1);
    const listed = items.flatMap((item) => [signal(width), ...item.map(bitsOf)]);
    return { shown: [...listed, bound, ...items[query].map(bitsOf), bound], asked: items[query + 1].map(bitsOf) };
  },
  check({ width, item_length: size }, { items, query }) {
    require(Array.isArray(items) && wholeNumber(items.length, 2, 40), "between 2 and 40 items");
    require(items.every((item) => Array.isArray(item) && item.length === size && item.every((vector) => isBits(vector, width))), `items of ${size} vectors`);
    require(wholeNumber(query, 0, items.length - 2), "a query other than the last item");
  },
  sizes: (task, { items }) => [{ name: "items", count: items.length, low: 2, high: 30 }],
  resize: (task, spec, name, count) => ({
    items: fitted(spec.items, count, () => many(task.item_length, () => randomBits(task.width))),
    query: Math.min(spec.query, count - 2),
  }),
  draw: (task, spec) => ({
    items: spec.items.map((item) => item.map(() => randomBits(task.width))),
    query: Math.floor(Math.random() * (spec.items.length - 1)),
  }),
};

/** A priority in [−1, 1) as float32 has it. */
const priority = (value) => Math.min(Math.fround(value), 1 - 2 ** -24);

const sort = {
  channels: ({ width }) => width + 1,
  about: "The input is a list of bit vectors, each with a priority; the machine has to output them sorted, highest priority first.",
  read: (task, sample) => ({
    items: many(sample.decoding, (t) => [textOf(sample.inputs.row(t), task.width), sample.inputs.at(t, task.width)]),
    asked: sample.counted.length - sample.decoding,
  }),
  phases(task, { items, asked }) {
    const shown = items.map(([vector, value]) => [...bitsOf(vector), priority(value)]);
    const ranked = [...shown].sort((one, other) => other[task.width] - one[task.width]); // stable: of equals the earlier
    return { shown, asked: ranked.slice(0, asked).map((row) => row.slice(0, task.width)) };
  },
  check({ width }, { items, asked }) {
    require(Array.isArray(items) && wholeNumber(items.length, 1, 60), "between 1 and 60 vectors");
    require(items.every((item) => Array.isArray(item) && isBits(item[0], width)), `vectors of ${width} bits`);
    require(items.every((item) => typeof item[1] === "number" && item[1] >= -1 && item[1] <= 1), "priorities from −1 to 1");
    require(wholeNumber(asked, 1, items.length), `between 1 and ${items.length} vectors of output`);
  },
  sizes: (task, { items, asked }) => [
    { name: "vectors", count: items.length, low: 1, high: 40 },
    { name: "output vectors", count: asked, low: 1, high: items.length },
  ],
  resize: (task, spec, name, count) =>
    name === "output vectors"
      ? { ...spec, asked: count }
      : { items: fitted(spec.items, count, () => [randomBits(task.width), priority(2 * Math.random() - 1)]), asked: spec.asked === spec.items.length ? count : Math.min(spec.asked, count) },
  draw: (task, spec) => ({ ...spec, items: spec.items.map(() => [randomBits(task.width), priority(2 * Math.random() - 1)]) }),
};

const MOST_BITS = 201;

/** Bits of a random source whose next bit depends on the order − 1 before it. */
function sourceBits(order, length) {
  const chances = many(1 << (order - 1), () => Math.sin(0.5 * Math.PI * Math.random()) ** 2);
  const bits = [];
  while (bits.length < length) {
    const context = bits.slice(-(order - 1)).reduce((sum, bit) => 2 * sum + bit, 0);
    bits.push(Math.random() < (bits.length < order - 1 ? 0.5 : chances[context]) ? 1 : 0);
  }
  return bits.join("");
}

const ngrams = {
  about: "The input is a random binary sequence, bit by bit; before each bit the machine has to predict how likely a 1 is.",
  read: (task, sample) => ({
    bits: many(sample.inputs.rows / 2, (n) => textOf(sample.inputs.row(2 * n), 1)).join("") + textOf(sample.targets.row(sample.targets.rows - 1), 1),
  }),
  lay(task, { bits }, inputs, outputs) {
    const steps = 2 * (bits.length - 1);
    const first = 2 * task.order - 3;
    const sample = { inputs: Table.blank(steps, inputs), targets: Table.blank(steps, outputs), counted: new Uint8Array(steps), subtask: new Array(steps).fill(0), decoding: first };
    for (let n = 0; n < bits.length - 1; n++) sample.inputs.data[2 * n * inputs] = Number(bits[n]);
    for (let n = task.order - 1; n < bits.length; n++) {
      sample.counted[2 * n - 1] = 1;
      sample.targets.data[(2 * n - 1) * outputs] = Number(bits[n]);
    }
    return sample;
  },
  check: (task, { bits }) => require(typeof bits === "string" && wholeNumber(bits.length, task.order, MOST_BITS) && isBits(bits, bits.length), `between ${task.order} and ${MOST_BITS} bits`),
  sizes: (task, { bits }) => [{ name: "bits", count: bits.length, low: task.order, high: MOST_BITS }],
  resize: (task, { bits }, name, count) => ({ bits: count <= bits.length ? bits.slice(0, count) : bits + randomBits(count - bits.length) }),
  draw: (task, { bits }) => ({ bits: sourceBits(task.order, bits.length) }),
};

export const BIT_TASKS = { Copy: copy, RepeatCopy: repeatCopy, AssociativeRecall: recall, PrioritySort: sort, NGrams: ngrams };
