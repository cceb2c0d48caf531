/* Laying a sequence out in time, as nsm/tasks/layout.py does: all that is shown, then all that is asked for.

   A sample is { inputs, targets: Table, counted: (T,) 0 or 1, decoding, subtask: (T,) }. */

/** Numbers in rows: `at(row, column)`. */
export class Table {
  constructor(data, rows, columns) {
    Object.assign(this, { data, rows, columns });
  }

  static blank(rows, columns) {
    return new Table(new Float32Array(rows * columns), rows, columns);
  }

  at(row, column) {
    return this.data[row * this.columns + column];
  }

  row(row) {
    return this.data.subarray(row * this.columns, (row + 1) * this.columns);
  }
}

/** Why an input is invalid, shown beside the editor. */
export class Refusal extends Error {}

export function require(holds, words) {
  if (!holds) throw new Refusal(words);
}

export const wholeNumber = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;

/** "0110" as numbers. */
export const bitsOf = (text) => Array.from(text, Number);

/** `count` of the numbers of a row from `first` on as text; a bit is 1 or 0. */
export const textOf = (row, count, first = 0) => Array.from(row.slice(first, first + count), (value) => (value > 0.5 ? "1" : "0")).join("");

export const isBits = (text, width) => typeof text === "string" && text.length === width && /^[01]*$/.test(text);

/** A step with one number on one channel. */
export const signal = (channel, value = 1) => {
  const row = new Array(channel + 1).fill(0);
  row[channel] = value;
  return row;
};

/** A sample of parts { shown, asked: rows of numbers, index } in their turn, after an order step if there is one. */
export function assemble(parts, inputs, outputs, order = null) {
  const shown = [...(order ? [{ row: order, index: -1 }] : []), ...parts.flatMap((part) => part.shown.map((row) => ({ row, index: part.index })))];
  const asked = parts.flatMap((part) => part.asked.map((row) => ({ row, index: part.index })));
  const steps = shown.length + asked.length;
  const sample = {
    inputs: Table.blank(steps, inputs),
    targets: Table.blank(steps, outputs),
    counted: new Uint8Array(steps).fill(1, shown.length),
    subtask: [...shown, ...asked].map(({ index }) => index),
    decoding: shown.length,
  };
  shown.forEach(({ row }, t) => sample.inputs.data.set(row, t * inputs));
  asked.forEach(({ row }, t) => sample.targets.data.set(row, (shown.length + t) * outputs));
  return sample;
}

// --- chance ----------------------------------------------------------------------------------------------------------

export const randomBits = (width) => Array.from({ length: width }, () => (Math.random() < 0.5 ? "1" : "0")).join("");

export const many = (count, make) => Array.from({ length: count }, (_, index) => make(index));
