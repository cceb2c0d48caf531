/* Choose the drawings of an episode, or draw one. */

import { picture } from "../canvas.js";
import { ramp } from "../colours.js";
import { element } from "../page-data.js";
import { digitsOf, letter, pointsOf } from "../tasks/drawings.js";

const FINE = 105; // points of the pad's side, as Omniglot's own
const COARSE = 20;

function thumbnail(points, name) {
  const canvas = picture(COARSE, COARSE, ramp("cell-off", "cell-on"), (x, y) => points[y * COARSE + x]);
  canvas.className = "thumbnail";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", name);
  return canvas;
}

/** The shares of ink of 20 × 20 pixels of a pad. */
function shrunk(pad) {
  const { data } = pad.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, FINE, FINE);
  const cell = FINE / COARSE;
  return Float32Array.from({ length: COARSE * COARSE }, (_, n) => {
    const [left, top] = [Math.floor((n % COARSE) * cell), Math.floor(Math.floor(n / COARSE) * cell)];
    let ink = 0;
    for (let y = top; y < top + cell; y++) for (let x = left; x < left + cell; x++) ink += data[4 * (Math.floor(y) * FINE + Math.floor(x)) + 3] > 60;
    return ink / cell ** 2 > 0.28 ? 1 : 0;
  });
}

/** A pad to draw on with the pointer; `done(points)` gets the drawing. */
function drawingPad(done) {
  const pad = element("canvas", { width: FINE, height: FINE, class: "pad", "aria-label": "Draw a character here", role: "img" });
  const context = pad.getContext("2d", { willReadFrequently: true });
  Object.assign(context, { lineWidth: 5, lineCap: "round", lineJoin: "round", strokeStyle: "#808080" });
  const point = (event) => {
    const box = pad.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * FINE, ((event.clientY - box.top) / box.height) * FINE];
  };
  let drawn = false;
  pad.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    pad.setPointerCapture(event.pointerId);
    context.beginPath();
    context.moveTo(...point(event));
  });
  pad.addEventListener("pointermove", (event) => {
    if (!pad.hasPointerCapture(event.pointerId)) return;
    context.lineTo(...point(event));
    context.stroke();
    drawn = true;
  });
  const clear = () => {
    context.clearRect(0, 0, FINE, FINE);
    drawn = false;
  };
  const use = () => {
    if (drawn) done(shrunk(pad));
    clear();
  };
  return element("div", { class: "pad-place" }, pad, element("div", {}, element("button", { type: "button", class: "small", onclick: use }, "add it"), element("button", { type: "button", class: "small", onclick: clear }, "clear")));
}

let chosenPlace = -1; // the place in the strip to change, −1: after the last
let drawnName = 0;

/** Build the editor; returns [{ column, step }]. */
export function buildDrawingEditor(place, laying, spec, edit) {
  const { drawings } = spec;
  if (chosenPlace >= drawings.length) chosenPlace = -1;
  const put = (drawing, name) => {
    const next = drawings.map((each, n) => (n === chosenPlace ? [drawing, name] : each));
    edit({ drawings: chosenPlace < 0 ? [...next, [drawing, name]] : next }, true);
  };
  const strip = element("div", { class: "strip" });
  const marks = drawings.map(([drawing, name], n) => {
    const choose = () => {
      chosenPlace = chosenPlace === n ? -1 : n;
      edit(spec, true);
    };
    const column = element("button", { type: "button", class: "drawing column", "aria-pressed": n === chosenPlace, "aria-label": `drawing ${n + 1}, labelled ${letter(name)}: change it`, onclick: choose }, thumbnail(pointsOf(drawing, laying.set), ""), element("span", {}, letter(name)));
    strip.append(column);
    return { column, step: n };
  });
  const palette = element("div", { class: "palette" });
  for (let name = 0; name < laying.task.classes; name++) {
    const own = laying.set.flatMap((each, index) => (each.name === name ? [index] : []));
    const choices = own.slice(0, 6).map((index) => element("button", { type: "button", class: "drawing", "aria-label": `a drawing of ${letter(name)}`, onclick: () => put(index, name) }, thumbnail(laying.set[index].points, "")));
    palette.append(element("div", { class: "palette-row" }, element("b", {}, letter(name)), ...choices));
  }
  const names = element("select", { "aria-label": "Label of the drawing" }, ...Array.from({ length: laying.task.classes }, (_, name) => new Option(`labelled ${letter(name)}`, name, false, name === drawnName)));
  names.addEventListener("change", () => (drawnName = Number(names.value)));
  const where = chosenPlace < 0 ? "it is added at the end" : `it replaces drawing ${chosenPlace + 1}`;
  const remove = () => {
    const at = chosenPlace;
    chosenPlace = -1;
    edit({ drawings: drawings.filter((_, n) => n !== at) }, true);
  };
  const removal = chosenPlace >= 0 && drawings.length > 1 ? [element("button", { type: "button", class: "small", onclick: remove }, "remove")] : [];
  place.append(
    element("div", { class: "scroll" }, strip),
    element("p", { class: "quiet" }, `Choose or draw a character; ${where}. `, ...removal),
    element("div", { class: "choose-drawing" }, palette, element("div", { class: "draw-one" }, drawingPad((points) => put(digitsOf(points), drawnName)), names)),
  );
  return marks;
}
