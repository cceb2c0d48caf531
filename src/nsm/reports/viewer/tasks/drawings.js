/* Few-shot classification: drawings in turn, each to be labelled; its label is given with the next (nsm/tasks/omniglot.py).

   A drawing is a number in the page's own set, or 100 letters of hexadecimal digits: 400 points, ink or none. */

import { Table, many, require, wholeNumber } from "./layout.js";

const MOST_DRAWINGS = 100;
const side = 20;

/** The points of a drawing, 0 to 1; `set` are those of the page. */
export function pointsOf(drawing, set) {
  if (typeof drawing === "number") return set[drawing].points;
  return Float32Array.from({ length: side * side }, (_, n) => (parseInt(drawing[n >> 2], 16) >> (3 - (n & 3))) & 1);
}

/** Points that the user drew, as 100 hexadecimal digits. */
export const digitsOf = (points) =>
  many((side * side) / 4, (n) => points.slice(4 * n, 4 * n + 4).reduce((sum, ink) => 2 * sum + (ink > 0.5 ? 1 : 0), 0).toString(16)).join("");

const shownAt = (sample, t) => sample.inputs.row(t).slice(0, side * side);

/** The different drawings of a sample, each with its label there, for the user to choose from. */
export function drawingSet(sample) {
  const set = new Map();
  for (let t = 0; t < sample.inputs.rows; t++) {
    const points = shownAt(sample, t);
    const key = points.join();
    if (!set.has(key)) set.set(key, { key, points, name: sample.targets.row(t).indexOf(1) });
  }
  return [...set.values()];
}

export const letter = (name) => String.fromCharCode(65 + name);

export const pictureTask = {
  about: "The input is a series of drawings of characters that the machine has never seen. It has to label each one, and is given the correct label after every answer.",
  read(task, sample, words, set) {
    const numbers = new Map(set.map(({ key }, index) => [key, index]));
    return { drawings: many(sample.inputs.rows, (t) => [numbers.get(shownAt(sample, t).join()), sample.targets.row(t).indexOf(1)]) };
  },
  lay(task, { drawings }, inputs, outputs, words, set) {
    const steps = drawings.length;
    const sample = { inputs: Table.blank(steps, inputs), targets: Table.blank(steps, outputs), counted: new Uint8Array(steps).fill(1), subtask: [], decoding: 0 };
    const seen = new Map();
    drawings.forEach(([drawing, name], t) => {
      sample.inputs.data.set(pointsOf(drawing, set), t * inputs);
      if (t) sample.inputs.data[t * inputs + side * side + drawings[t - 1][1]] = 1;
      sample.targets.data[t * outputs + name] = 1;
      sample.subtask.push(seen.get(name) ?? 0);
      seen.set(name, (seen.get(name) ?? 0) + 1);
    });
    return sample;
  },
  check(task, { drawings }, words, set) {
    require(Array.isArray(drawings) && wholeNumber(drawings.length, 1, MOST_DRAWINGS), `between 1 and ${MOST_DRAWINGS} drawings`);
    const known = (drawing) => wholeNumber(drawing, 0, set.length - 1) || (typeof drawing === "string" && /^[0-9a-f]{100}$/.test(drawing));
    require(drawings.every((item) => Array.isArray(item) && known(item[0]) && wholeNumber(item[1], 0, task.classes - 1)), "drawings with labels");
  },
  sizes: (task, { drawings }) => [{ name: "drawings", count: drawings.length, low: 1, high: 100 }],
  resize: (task, { drawings }, name, count, set) => ({
    drawings: [...drawings.slice(0, count), ...many(Math.max(0, count - drawings.length), () => anyDrawing(set))],
  }),
  draw: (task, { drawings }, set) => ({ drawings: drawings.map(() => anyDrawing(set)) }),
};

function anyDrawing(set) {
  const index = Math.floor(Math.random() * set.length);
  return [index, set[index].name];
}
