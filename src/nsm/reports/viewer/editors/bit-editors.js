/* Editors of tasks on bits. Each fills a place and says which of its columns stands for which step.

   `edit(spec)` passes on the edited spec; what a stroke of the pointer changes is changed in place. */

import { element } from "../page-data.js";
import { bitGrid, prioritySlider, stepper } from "./widgets.js";

const flipped = (bits, row) => bits.slice(0, row) + (bits[row] === "1" ? "0" : "1") + bits.slice(row + 1);

/** An editor of a list of vectors. `first`: the step the first of them is shown at. */
function vectorEditor(place, { vectors, ...rest }, edit, first) {
  const now = [...vectors];
  const { grid, columns } = bitGrid(now, (column) => `vector ${column + 1}`, (column, row) => {
    now[column] = flipped(now[column], row);
    edit({ ...rest, vectors: [...now] });
    return now[column];
  });
  place.append(element("div", { class: "scroll" }, grid));
  return columns.map((column, n) => ({ column, step: first + n }));
}

function recallEditor(place, task, spec, edit, first) {
  const now = { items: spec.items.map((item) => [...item]), query: spec.query };
  const marks = [];
  const buttons = [];
  const shown = () => buttons.forEach((button, n) => button.setAttribute("aria-pressed", n === now.query));
  const list = element("div", { class: "items" });
  now.items.forEach((item, n) => {
    const { grid, columns } = bitGrid(item, (column) => `item ${n + 1}, vector ${column + 1}`, (column, row) => {
      now.items[n][column] = flipped(now.items[n][column], row);
      edit({ items: now.items.map((each) => [...each]), query: now.query });
      return now.items[n][column];
    });
    columns.forEach((column, k) => marks.push({ column, step: first + n * (1 + task.item_length) + 1 + k }));
    const last = n === now.items.length - 1;
    const choose = () => {
      now.query = n;
      shown();
      edit({ items: now.items.map((each) => [...each]), query: n });
    };
    const words = last ? "No item follows the last one" : `Ask for the item after item ${n + 1}`;
    const button = element("button", { type: "button", class: "ask", disabled: last, title: words, "aria-label": words, onclick: choose }, "ask");
    buttons.push(button);
    list.append(element("div", { class: "item" }, grid, button));
  });
  shown();
  place.append(element("div", { class: "scroll" }, list));
  return marks;
}

function sortEditor(place, task, spec, edit, first) {
  const now = { ...spec, items: spec.items.map((item) => [...item]) };
  const hand = () => edit({ ...now, items: now.items.map((item) => [...item]) });
  const { grid, columns } = bitGrid(now.items.map(([vector]) => vector), (column) => `vector ${column + 1}`, (column, row) => {
    now.items[column][0] = flipped(now.items[column][0], row);
    hand();
    return now.items[column][0];
  });
  columns.forEach((column, n) => {
    column.append(prioritySlider(now.items[n][1], `priority of vector ${n + 1}`, (value) => {
      now.items[n][1] = value;
      hand();
    }));
  });
  place.append(element("div", { class: "scroll" }, grid), element("p", { class: "quiet" }, "Drag a priority up or down."));
  return columns.map((column, n) => ({ column, step: first + n }));
}

function sourceEditor(place, spec, edit) {
  let now = spec.bits;
  const { grid, columns } = bitGrid([...now], (column) => `bit ${column + 1} of the source`, (column) => {
    now = flipped(now, column);
    edit({ bits: now });
    return now[column];
  });
  place.append(element("div", { class: "scroll" }, grid));
  return columns.map((column, n) => ({ column, step: 2 * n }));
}

/** The first step of a subtask's input. */
function firstSteps(laying, spec) {
  const sample = laying.lay(spec);
  return laying.task.subtasks.map((_, n) => sample.subtask.indexOf(n));
}

function sequencingEditor(place, laying, spec, edit) {
  const { task } = laying;
  const firsts = firstSteps(laying, spec);
  const now = { order: [...spec.order], parts: [...spec.parts] };
  const marks = [];
  const list = element("div", { class: "subtasks" });
  place.append(list);
  spec.order.forEach((index, turn) => {
    const part = task.subtasks[index];
    const change = (own) => {
      now.parts[index] = own;
      edit({ order: now.order, parts: [...now.parts] });
    };
    const earlier = () => {
      const order = [...now.order];
      [order[turn - 1], order[turn]] = [order[turn], order[turn - 1]];
      edit({ order, parts: [...now.parts] }, true);
    };
    const up = turn ? [element("button", { type: "button", class: "small", onclick: earlier }, "move earlier")] : [];
    const tools = sizeTools(laying.of(part), spec.parts[index], (own) => edit({ order: now.order, parts: now.parts.map((each, n) => (n === index ? own : each)) }, true));
    const own = element("div", { class: "subtask" }, element("p", { class: "subtask-head" }, element("b", {}, laying.names[index]), ...up, ...tools));
    list.append(own);
    marks.push(...buildBitEditor(own, laying.of(part), spec.parts[index], change, firsts[index]));
  });
  return marks;
}

/** What makes a spec longer or shorter. */
export function sizeTools(laying, spec, edit) {
  return laying.kind.sizes(laying.task, spec).map((size) => stepper(size, (count) => edit(laying.kind.resize(laying.task, spec, size.name, count, laying.set))));
}

/** Build the editor of a spec; returns [{ column, step }]. */
export function buildBitEditor(place, laying, spec, edit, first = 0) {
  switch (laying.task.kind) {
    case "Copy":
    case "RepeatCopy":
      return vectorEditor(place, spec, edit, first + 1);
    case "AssociativeRecall":
      return recallEditor(place, laying.task, spec, edit, first);
    case "PrioritySort":
      return sortEditor(place, laying.task, spec, edit, first);
    case "NGrams":
      return sourceEditor(place, spec, edit);
    default:
      return sequencingEditor(place, laying, spec, edit);
  }
}
