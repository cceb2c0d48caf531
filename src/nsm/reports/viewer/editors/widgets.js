/* What editors are made of: grids of bits, numbers to step up and down, priorities to drag. */

import { element } from "../page-data.js";

/** Columns of bits; `toggle(column, row)` flips one and returns the text of its column. `shown` are bits as text. */
export function bitGrid(vectors, label, toggle) {
  const columns = vectors.map((bits, column) => {
    const cells = Array.from(bits, (bit, row) => {
      const cell = element("button", { type: "button", class: "bit", tabindex: column || row ? -1 : 0, "aria-pressed": bit === "1", "aria-label": `${label(column)}, bit ${row + 1}` });
      cell.dataset.at = `${column} ${row}`;
      return cell;
    });
    return element("div", { class: "column" }, ...cells);
  });
  const grid = element("div", { class: "grid" }, ...columns);
  const flip = (cell) => {
    const [column, row] = cell.dataset.at.split(" ").map(Number);
    cell.setAttribute("aria-pressed", toggle(column, row)[row] === "1");
  };
  let painting = null; // the value that a stroke of the mouse gives to bits
  let pressed = false; // whether a click is the end of such a stroke
  grid.addEventListener("pointerdown", (event) => {
    if (!event.target.dataset.at || event.pointerType === "touch") return;
    painting = event.target.getAttribute("aria-pressed") !== "true";
    pressed = true;
    flip(event.target);
    const stop = () => {
      painting = null;
      setTimeout(() => (pressed = false));
    };
    window.addEventListener("pointerup", stop, { once: true });
  });
  grid.addEventListener("pointerover", (event) => {
    if (painting === null || !event.target.dataset.at) return;
    if ((event.target.getAttribute("aria-pressed") === "true") !== painting) flip(event.target);
  });
  grid.addEventListener("click", (event) => {
    // A mouse flipped it when its button was pressed; a finger, a key or a screen reader flips it now.
    if (event.target.dataset.at && !pressed) flip(event.target);
  });
  grid.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (!(event.key in moves) || !event.target.dataset.at) return;
    const [column, row] = event.target.dataset.at.split(" ").map(Number);
    const next = columns[column + moves[event.key][0]]?.children[row + moves[event.key][1]];
    event.preventDefault();
    event.stopPropagation();
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return { grid, columns };
}

/** A number with a minus and a plus. */
export function stepper({ name, count, low, high }, change) {
  const button = (sign, by) => element("button", { type: "button", "aria-label": `${by < 0 ? "fewer" : "more"}: ${name}`, disabled: count + by < low || count + by > high, onclick: () => change(count + by) }, sign);
  const field = element("input", { type: "number", min: low, max: high, value: count, "aria-label": name });
  field.addEventListener("change", () => change(Math.max(low, Math.min(high, Math.round(Number(field.value)) || low))));
  return element("span", { class: "stepper" }, element("span", { class: "soft" }, name), button("−", -1), field, button("+", 1));
}

const PRIORITY_HEIGHT = 56;

/** A priority as a bar above or below a line, to drag or to move with the arrow keys. */
export function prioritySlider(value, label, change) {
  const fill = element("i", {});
  const bar = element("div", { class: "priority", role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": -1, "aria-valuemax": 1 }, fill);
  const show = (now) => {
    bar.setAttribute("aria-valuenow", now.toFixed(2));
    bar.title = `priority ${now.toFixed(2)}`;
    fill.style.top = `${((1 - Math.max(0, now)) / 2) * 100}%`;
    fill.style.height = `${(Math.abs(now) / 2) * 100}%`;
    fill.className = now < 0 ? "below" : "";
  };
  let now = value;
  const set = (wanted) => {
    now = Math.round(Math.max(-1, Math.min(0.999, wanted)) * 1000) / 1000;
    show(now);
    change(now);
  };
  const from = (event) => {
    const box = bar.getBoundingClientRect();
    set(1 - (2 * (event.clientY - box.top)) / box.height);
  };
  bar.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    bar.setPointerCapture(event.pointerId);
    bar.focus();
    from(event);
  });
  bar.addEventListener("pointermove", (event) => bar.hasPointerCapture(event.pointerId) && from(event));
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 0.05, ArrowDown: -0.05, PageUp: 0.25, PageDown: -0.25 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    set(now + by);
  });
  bar.style.height = `${PRIORITY_HEIGHT}px`;
  show(value);
  return bar;
}
