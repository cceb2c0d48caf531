/* All tasks that a page can lay out anew, by the names of their classes in Python. */

import { BIT_TASKS } from "./bits.js";
import { drawingSet, pictureTask } from "./drawings.js";
import { Refusal, assemble, many, require } from "./layout.js";
import { storyTask } from "./stories.js";

/** The nearest integer, half to even, as Python rounds. */
function halfEven(value) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

/** The channel of each of the subtasks in the order step. */
function orderChannels({ subtasks }) {
  const inputs = Math.max(...subtasks.map((part) => taskKind(part).channels(part)));
  return subtasks.map((_, n) => halfEven((n * (inputs - 1)) / (subtasks.length - 1)));
}

/** A subtask's steps as a sample of their own. */
function alone(sample, index) {
  const own = many(sample.subtask.length, (t) => t).filter((t) => sample.subtask[t] === index);
  const shown = own.filter((t) => t < sample.decoding).map((t) => [...sample.inputs.row(t)]);
  const asked = own.filter((t) => t >= sample.decoding).map((t) => [...sample.targets.row(t)]);
  return assemble([{ shown, asked, index: 0 }], sample.inputs.columns, sample.targets.columns);
}

const sequencing = {
  about: (task) => `The input holds ${task.subtasks.length} tasks one after the other; the machine then has to answer them all, in the same order.`,
  read(task, sample) {
    const last = task.subtasks.length - 1;
    const turns = orderChannels(task).map((channel) => Math.round(last - last * sample.inputs.at(0, channel)));
    const parts = task.subtasks.map((part, n) => taskKind(part).read(part, alone(sample, n)));
    return { order: many(last + 1, (turn) => turns.indexOf(turn)), parts };
  },
  lay(task, { order, parts }, inputs, outputs) {
    const last = order.length - 1;
    const step = new Array(inputs).fill(0);
    orderChannels(task).forEach((channel, n) => (step[channel] = (last - order.indexOf(n)) / last));
    const laid = order.map((n) => ({ ...taskKind(task.subtasks[n]).phases(task.subtasks[n], parts[n]), index: n }));
    return assemble(laid, inputs, outputs, step);
  },
  check(task, { order, parts }) {
    const count = task.subtasks.length;
    require(Array.isArray(order) && order.length === count && many(count, (n) => n).every((n) => order.includes(n)), "every task once");
    require(Array.isArray(parts) && parts.length === count, "an input for every task");
    task.subtasks.forEach((part, n) => taskKind(part).check(part, parts[n]));
  },
  sizes: () => [],
  draw: (task, spec) => ({
    order: Math.random() < 0.5 ? [...spec.order].reverse() : spec.order,
    parts: task.subtasks.map((part, n) => taskKind(part).draw(part, spec.parts[n])),
  }),
};

const TASK_KINDS = { ...BIT_TASKS, Babi: storyTask, Omniglot: pictureTask, Sequencing: sequencing };

const taskKind = (task) => (task && Object.hasOwn(TASK_KINDS, task.kind) ? TASK_KINDS[task.kind] : null);

/** Whether a page knows how to lay out a task and all it is made of. */
export const knownTask = (task) => Boolean(taskKind(task)) && (task.subtasks ?? []).every(knownTask);

/** The task of a sample, with the sizes of its machine: reads specs from samples, and lays specs out as samples. */
export class Laying {
  constructor(task, inputs, outputs, words, sample) {
    this.task = task;
    this.inputs = inputs;
    this.outputs = outputs;
    this.words = words;
    this.kind = taskKind(task);
    this.set = task.kind === "Omniglot" ? drawingSet(sample) : [];
  }

  get about() {
    const { about } = this.kind;
    return typeof about === "function" ? about(this.task) : about;
  }

  /** The laying of one of its subtasks. */
  of(part) {
    return new Laying(part, this.inputs, this.outputs, this.words, null);
  }

  /** The names of its subtasks. */
  get names() {
    return this.task.subtasks.map(({ kind }) => kind.replace(/(?<=[a-z])(?=[A-Z])/g, "-").toLowerCase());
  }

  read(sample) {
    return this.kind.read(this.task, sample, this.words, this.set);
  }

  lay(spec) {
    const { kind, task, inputs, outputs, words, set } = this;
    if (kind.lay) return kind.lay(task, spec, inputs, outputs, words, set);
    return assemble([{ ...kind.phases(task, spec), index: 0 }], inputs, outputs);
  }

  /** The same spec, or a Refusal that says what is wrong with it. */
  check(spec) {
    try {
      this.kind.check(this.task, spec, this.words, this.set);
    } catch (error) {
      throw error instanceof Refusal ? error : new Refusal("an input for this task");
    }
    return spec;
  }
}
