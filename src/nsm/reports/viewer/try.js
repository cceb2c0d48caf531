/* Try it: the editor of the input, and the machine's output. */

import { buildAnswer, follow, markAnswer } from "./editors/answer.js";
import { buildBitEditor, sizeTools } from "./editors/bit-editors.js";
import { buildDrawingEditor } from "./editors/drawing-editor.js";
import { buildStoryEditor } from "./editors/story-editor.js";
import { stepper } from "./editors/widgets.js";
import { DOCUMENT, byId, element } from "./page-data.js";
import { actions, state } from "./state.js";

let editorMarks = [];
let marked = null; // the column of this step

const EDITORS = { Omniglot: buildDrawingEditor, Babi: buildStoryEditor };
const MOST_SLOTS = 512;

/** Rebuild all of it: for another sequence, or if more than a bit has changed. */
export function buildTry() {
  const { laying, spec } = state;
  byId("try").hidden = !laying && !state.run.asked;
  const editor = byId("editor");
  const focused = document.activeElement?.closest?.("#try") ? document.activeElement.getAttribute("aria-label") : null;
  editor.replaceChildren();
  byId("try-tools").replaceChildren(...tools());
  byId("try-title").textContent = laying ? "Try it" : "Task";
  byId("try-shown").parentElement.hidden = !laying;
  if (laying) {
    const edit = (made, again = false) => actions.edit(made, again);
    const shown = spec ?? state.original;
    editorMarks = (EDITORS[laying.task.kind] ?? buildBitEditor)(editor, laying, shown, edit, 0);
  } else editorMarks = [];
  if (focused) [...byId("try").querySelectorAll("[aria-label]")].find((each) => each.getAttribute("aria-label") === focused && !each.disabled)?.focus();
}

function tools() {
  const { laying, spec } = state;
  const made = [];
  if (laying) {
    const shown = spec ?? state.original;
    made.push(...sizeTools(laying, shown, (each) => actions.edit(each, true)));
    if (laying.kind.draw) made.push(element("button", { type: "button", id: "draw-anew", onclick: () => actions.edit(laying.kind.draw(laying.task, shown, laying.set), true) }, "New random input"));
    made.push(element("button", { type: "button", id: "as-it-was", disabled: !spec, onclick: () => actions.edit(null, true) }, "Reset"));
  }
  if (DOCUMENT.machines.length) made.push(stepper({ name: "tape slots", count: state.run.slots, low: 1, high: MOST_SLOTS }, (count) => actions.tape(count)));
  return made;
}

/** The machine's output. */
export function showAnswer() {
  buildAnswer();
  const again = byId("as-it-was");
  if (again) again.disabled = !state.spec;
}

export function refuse(words) {
  byId("refusal").textContent = words;
}

/** Mark the current step in input and output. */
export function markTry() {
  const now = editorMarks.find(({ step }) => step === state.step)?.column;
  if (now) follow(now.closest(".scroll"), now.offsetLeft, now.offsetWidth);
  markAnswer();
  if (now !== marked) {
    marked?.classList.remove("now");
    now?.classList.add("now");
    marked = now;
  }
}
