/* What a machine did with one sequence: from the machine itself, or from a recording of one. */

import { sigmoid, softmax } from "./machine/algebra.js";
import { unpack } from "./page-data.js";
import { Table } from "./tasks/layout.js";

const USED_WEIGHT = 0.1; // a slot counts as used if a head was ever on it to this degree
const MARGIN_SLOTS = 2;

const tableOf = ({ data, shape }) => new Table(data, shape[0], shape[1]);

/** Rows of numbers, one per step, as a table. */
function stacked(rows) {
  const table = Table.blank(rows.length, rows[0].length);
  rows.forEach((row, t) => table.data.set(row, t * table.columns));
  return table;
}

/** Consecutive steps of one subtask in one phase: first step, step after the last, name. */
function stretchesOf(subtask, decoding, names) {
  const key = (t) => `${subtask[t]} ${t >= decoding}`;
  const starts = subtask.flatMap((_, t) => (t === 0 || key(t) !== key(t - 1) ? [t] : []));
  return starts
    .map((start, n) => [start, starts[n + 1] ?? subtask.length, names[subtask[start]]])
    .filter(([, , name]) => name !== undefined);
}

/** What follows from inputs, targets and outputs. */
class Execution {
  constructor(parts) {
    Object.assign(this, parts);
    this.steps = this.inputs.rows;
    this.slots = this.heads[0].address.columns;
    this.used = usedSlots(this.heads, this.slots);
    this.asked = this.counted.reduce((sum, each) => sum + each, 0) * (this.choice ? 1 : this.targets.columns);
    this.errors = 0;
    for (let t = 0; t < this.steps; t++) for (let o = 0; o < this.targets.columns; o++) this.errors += this.isWrong(t, o);
  }

  /** The most probable choice of a step. */
  chosen(table, t) {
    const row = table.row(t);
    let best = 0;
    for (let o = 1; o < row.length; o++) if (row[o] > row[best]) best = o;
    return best;
  }

  /** Whether a step's answer can be judged: it is scored, and its target is known. */
  judged(t) {
    return this.counted[t] > 0 && (!this.known || this.known[t] > 0);
  }

  isWrong(t, o) {
    if (!this.judged(t)) return false;
    if (!this.choice) return this.answers.at(t, o) > 0.5 !== this.targets.at(t, o) > 0.5;
    const chosen = this.chosen(this.answers, t);
    return o === chosen && chosen !== this.chosen(this.targets, t);
  }

  wrongAt(t) {
    let wrong = 0;
    for (let o = 0; o < this.targets.columns; o++) wrong += this.isWrong(t, o);
    return wrong;
  }

  wordAt(table, t) {
    return this.words.length ? (this.words[this.chosen(table, t)] ?? "") : "";
  }

  /** Whether answers alternate with input, a word or a bit at a time. */
  get alternates() {
    return this.counted.lastIndexOf(1) > this.decoding && this.counted.indexOf(0, this.decoding) >= 0;
  }

  phase(t) {
    return (this.alternates ? this.counted[t] > 0 : t >= this.decoding) ? "answering" : "reading the input";
  }
}

/** The stretch of the tape to show: its first slot, which may be negative as the tape is a ring, and their number. */
function usedSlots(heads, slots) {
  const most = new Float32Array(slots);
  for (const { address } of heads) {
    for (let t = 0; t < address.rows; t++) for (let n = 0; n < slots; n++) most[n] = Math.max(most[n], address.at(t, n));
  }
  const used = [...most.keys()].filter((n) => most[n] > USED_WEIGHT);
  if (!used.length) return [0, slots];
  const gaps = used.map((n, k) => (k + 1 < used.length ? used[k + 1] : used[0] + slots) - n);
  const widest = gaps.indexOf(Math.max(...gaps));
  const [first, count] = [used[(widest + 1) % used.length], slots - gaps[widest] + 1];
  return count + 2 * MARGIN_SLOTS < slots ? [first - MARGIN_SLOTS, count + 2 * MARGIN_SLOTS] : [0, slots];
}

/** What is the same for all sequences of a task. */
const meaning = (example) => ({ choice: example.choice, words: example.words, picture: example.picture, subtasks: example.subtasks });

/** A sample as Python laid it out. */
export async function unpackSample(example) {
  const [inputs, targets, counted] = await Promise.all([unpack(example.inputs), unpack(example.targets), unpack(example.counted)]);
  return { inputs: tableOf(inputs), targets: tableOf(targets), counted: Uint8Array.from(counted.data), subtask: example.subtask, decoding: example.decoding };
}

/** A recorded execution of a machine that is not in the page. */
export async function fromRecording(example) {
  const sample = await unpackSample(example);
  const { recording } = example;
  const heads = await Promise.all(recording.heads.map(async (head) => ({ ...head, address: tableOf(await unpack(head.address)) })));
  const mixes = await Promise.all(recording.mixes.map(async (mix) => tableOf(await unpack(mix))));
  const memory = recording.memory && (await unpack(recording.memory));
  const { parts } = recording;
  const answers = tableOf(await unpack(recording.answers));
  const stretches = stretchesOf(sample.subtask, sample.decoding, example.subtasks);
  return new Execution({ ...meaning(example), ...sample, heads, parts, mixes, answers, stretches, memory: memory && contentsOf(memory.data, memory.shape[2]) });
}

/** What a machine does with a sample under `interventions`. */
export function fromMachine(machine, sample, example, slots, interventions = []) {
  const inputs = Array.from({ length: sample.inputs.rows }, (_, t) => sample.inputs.row(t));
  const { outputs, heads: found, parts: chosen, memory } = machine.run(inputs, { slots, interventions });
  const answers = stacked(outputs.map((row) => (example.choice ? softmax([...row]) : row.map(sigmoid))));
  const mixes = [];
  const heads = found.map(({ name, kind, addresses, programs }) => ({ name, kind, address: stacked(addresses), mix: programs && shared(mixes, stacked(programs)) }));
  const parts = chosen.map(({ name, programs }) => ({ name, mix: mixes.push(stacked(programs)) - 1 }));
  const width = memory[0].length / heads[0].address.columns;
  const contents = new Float32Array(memory.length * memory[0].length);
  memory.forEach((numbers, t) => contents.set(numbers, t * numbers.length));
  const stretches = stretchesOf(sample.subtask, sample.decoding, example.subtasks);
  return new Execution({ ...meaning(example), ...sample, heads, parts, mixes, answers, stretches, memory: contentsOf(contents, width) });
}

/** The number of a mix of programs among those known; heads that share their programs, as those of a DNC do, share it. */
function shared(mixes, mix) {
  const index = mixes.findIndex((other) => other.data.every((value, i) => value === mix.data[i]));
  return index >= 0 ? index : mixes.push(mix) - 1;
}

function contentsOf(data, width) {
  let limit = 0;
  for (const value of data) limit = Math.max(limit, Math.abs(value));
  return { data, width, limit: limit || 1 };
}

/** What runs programs, if any are stored: the heads, then state network and output layer if they store some. */
export const choosers = (run) => [...run.heads, ...run.parts];

// --- heads -----------------------------------------------------------------------------------------------------------

/** The slot a head is most on at a step, and how much. */
export function strongest({ address }, t) {
  let slot = 0;
  for (let n = 1; n < address.columns; n++) if (address.at(t, n) > address.at(t, slot)) slot = n;
  return { slot, weight: address.at(t, slot) };
}

/** How active a head is: how concentrated times how often it moves, between the given steps. */
function activity(head, first, end) {
  let moved = 0, weight = 0;
  for (let t = first; t < end; t++) {
    const now = strongest(head, t);
    weight += now.weight;
    if (t > first) moved += now.weight * (now.slot !== strongest(head, t - 1).slot);
  }
  return (weight + 4 * moved) / Math.max(1, end - first);
}

/** The most active read head and write head, as indices: read heads while answering, write heads before. */
export function workingHeads(run) {
  const { heads, decoding, steps } = run;
  const split = decoding > 0 && decoding < steps;
  const busiest = (kind, first, end) => {
    const scored = heads.flatMap((head, index) => (head.kind === kind ? [[activity(head, first, end), index]] : []));
    return scored.sort(([one, a], [other, b]) => other - one || a - b).slice(0, 1).map(([, index]) => index);
  };
  return [...busiest("read", split ? decoding : 0, steps), ...busiest("write", 0, split ? decoding : steps)];
}
