/* The machine's output: bits side by side, labels in turn, words within their story. */

import { cross, fit } from "../canvas.js";
import { colours, mixed } from "../colours.js";
import { byId, element } from "../page-data.js";
import { nameAt } from "../rows.js";
import { actions, state } from "../state.js";
import { verdict } from "../story.js";

const CELL = 14;
let answerSteps = []; // the step of each column or word
let answerMarks = []; // { column, step } as an editor has them
let answerPlaces = []; // where the columns of bits begin
let answerGrid = null;
let answerMark = null;

export function buildAnswer() {
  const { run, other } = state;
  const place = byId("answer");
  place.replaceChildren();
  answerMarks = [];
  answerGrid = null;
  answerSteps = Array.from(run.counted.keys()).filter((t) => run.counted[t]);
  const verdicts = [element("p", { class: "verdict" }, `${state.other ? `${state.runName}: ` : ""}${verdict(run)}`)];
  if (other) verdicts.push(element("p", { class: "verdict quiet" }, `${state.otherName}: ${verdict(other)}`));
  if (run.words.length) place.append(storyWords(run));
  else if (run.choice) place.append(nameStrip(run));
  else {
    answerGrid = element("canvas", { class: "answer-grid", role: "img", "aria-label": `The output: ${verdict(run)}` });
    answerMark = element("i", { class: "answer-mark" });
    place.append(element("div", { class: "scroll" }, answerGrid, answerMark));
    drawAnswer(run);
  }
  place.append(...verdicts);
}

/** The answer's bits, a column for each step that counts; answers to different tasks are set apart a little. */
function drawAnswer(run) {
  const size = run.targets.columns;
  let gaps = 0;
  const another = (t, n) => n > 0 && run.subtask[t] !== run.subtask[answerSteps[n - 1]];
  answerPlaces = answerSteps.map((t, n) => n * CELL + (another(t, n) ? (gaps += 10) : gaps));
  const width = answerSteps.length * CELL + gaps;
  answerGrid.style.width = `${width}px`;
  const { context } = fit(answerGrid, size * CELL, width);
  answerSteps.forEach((t, n) => {
    for (let o = 0; o < size; o++) {
      const [x, y] = [answerPlaces[n], o * CELL];
      context.fillStyle = mixed(run.answers.at(t, o));
      context.fillRect(x + 1, y + 1, CELL - 2, CELL - 2);
      context.strokeStyle = colours.grid;
      context.lineWidth = 1;
      context.strokeRect(x + 1.5, y + 1.5, CELL - 3, CELL - 3);
      if (run.isWrong(t, o)) cross(context, x + 1, y + 1, CELL - 2, CELL - 2);
    }
  });
}

/** Keep a place in sight of what scrolls sideways. */
export function follow(scroller, left, width) {
  if (!scroller || scroller.scrollWidth <= scroller.clientWidth) return;
  if (left < scroller.scrollLeft + width || left + 2 * width > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = left - scroller.clientWidth / 2;
}

/** The outputs in turn, and the targets where they differ. */
function nameStrip(run) {
  const strip = element("div", { class: "names" });
  for (const t of answerSteps) {
    const wrong = run.wrongAt(t) > 0;
    const words = `drawing ${t + 1}: output ${nameAt(run, run.answers, t)}${wrong ? `, target ${nameAt(run, run.targets, t)}` : ", correct"}`;
    const chip = element("button", { type: "button", class: `name ${wrong ? "wrong" : "right"}`, title: words, "aria-label": words, onclick: () => actions.go(t) }, nameAt(run, run.answers, t));
    answerMarks.push({ column: chip, step: t });
    strip.append(chip);
  }
  return strip;
}

/** The story as it is read, with the answers at their places. */
function storyWords(run) {
  const text = element("div", { class: "story-words" });
  let line = element("p", {});
  text.append(line);
  for (let t = 0; t < run.steps; t++) {
    const blank = run.counted[t] > 0;
    const word = blank ? nameAt(run, run.answers, t) : run.wordAt(run.inputs, t);
    const kind = !blank ? "word" : run.wrongAt(t) ? "word said wrong" : run.judged(t) ? "word said right" : "word said";
    const share = blank ? ` ${Math.round(100 * run.answers.at(t, run.chosen(run.answers, t)))} %` : "";
    const span = element("span", { class: kind, onclick: () => actions.go(t) }, word);
    if (blank) span.append(element("small", {}, share));
    if (blank && run.wrongAt(t)) span.append(element("small", {}, `, target ${nameAt(run, run.targets, t)}`));
    answerMarks.push({ column: span, step: t });
    line.append(...(/^[.?]$/.test(word) && !blank ? [span] : [" ", span]));
    const ends = (word === "." && !blank) || (blank && !(run.counted[t + 1] > 0));
    if (ends && t + 1 < run.steps) text.append((line = element("p", {})));
  }
  return text;
}

/** Mark the step in the answer. */
export function markAnswer() {
  if (answerGrid) {
    const now = answerSteps.indexOf(state.step);
    answerMark.style.transform = `translateX(${(answerPlaces[now] ?? 0) + 1}px)`;
    answerMark.style.visibility = now < 0 ? "hidden" : "visible";
    if (now >= 0) follow(answerGrid.parentElement, answerPlaces[now], CELL);
  }
  for (const { column, step } of answerMarks) column.classList.toggle("now", step === state.step);
}
