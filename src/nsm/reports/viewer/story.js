/* The narration, in three fixed places: the step and phase, what the heads do, and the answer. */

import { byId, element } from "./page-data.js";
import { nameAt } from "./rows.js";
import { state } from "./state.js";
import { frontHeads, whereabouts } from "./tape.js";

const said = (text, name) => element(name && name !== "quiet" ? "b" : "span", { class: name ?? "" }, text);

function phaseParts(run, step) {
  const within = run.stretches.find(([start, end]) => start <= step && step < end);
  if (!run.asked) return [said("The machine is running.")];
  if (run.picture) return [said("It is shown a drawing and outputs its label.")];
  const word = run.words.length ? [said(run.counted[step] ? "; it has to output a word." : `; the word is “${run.wordAt(run.inputs, step)}”.`)] : [said(".")];
  return [said("It is "), said(run.phase(step), "phase"), said(within ? ` (${within[2]})` : ""), ...word];
}

/** "1 (0.93)", the program that runs most, and its weight. */
function topProgram(run, mix, step) {
  const shares = [...run.mixes[mix].row(step)];
  const best = shares.indexOf(Math.max(...shares));
  return `${best + 1} (${shares[best].toFixed(2)})`;
}

/** "Reads slot 12 with program 1 (0.93)." */
export function headParts(run, head, step) {
  const parts = [said(head.kind === "read" ? "Reads " : "Writes "), said(whereabouts(head, step), head.kind)];
  if (head.mix !== null) parts.push(said(` with program ${topProgram(run, head.mix, step)}`));
  return [...parts, said(".")];
}

/** "State with program 2 (0.93), output with 1 (0.88)." */
function partWords(run, step) {
  const words = run.parts.map(({ name, mix }, n) => `${name} with ${n ? "" : "program "}${topProgram(run, mix, step)}`).join(", ");
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

function answerParts(run, step, it = "It") {
  if (!(run.counted[step] > 0)) return [said(run.asked ? "No output is scored at this step." : "This input has no target.", "quiet")];
  const wrong = run.wrongAt(step);
  if (run.choice) {
    const share = Math.round(100 * run.answers.at(step, run.chosen(run.answers, step)));
    const start = [said(`${it} answers `), said(nameAt(run, run.answers, step), "answer"), said(` (${share} %)`)];
    if (!run.judged(step)) return [...start, said(".")];
    const verdict = wrong ? `wrong, the target is ${nameAt(run, run.targets, step)}` : "correct";
    return [...start, said(": "), said(verdict, wrong ? "wrong" : "right"), said(".")];
  }
  const bits = Array.from(run.answers.row(step), (share) => (share > 0.5 ? "1" : "0")).join("");
  const start = bits.length <= 16 ? `${it} answers ${bits}: ` : `${it} is `;
  return [said(start), said(wrong ? `${wrong} ${wrong === 1 ? "bit" : "bits"} wrong` : "correct", wrong ? "wrong" : "right"), said(".")];
}

export function tellStory() {
  const { run, other, step } = state;
  byId("story").setAttribute("aria-live", state.playing ? "off" : "polite");
  byId("story-step").textContent = `Step ${step + 1} of ${run.steps}`;
  byId("story-phase").replaceChildren(...phaseParts(run, step));
  const lines = frontHeads(run).map((head) => element("span", { class: "line" }, ...headParts(run, head, step)));
  if (run.parts.length) lines.push(element("span", { class: "line" }, partWords(run, step)));
  byId("story-heads").replaceChildren(...lines);
  const compared = other && run.counted[step] > 0 ? [element("span", { class: "line quiet" }, `${state.otherName}: `, ...answerParts(other, step, "it"))] : [];
  byId("story-answer").replaceChildren(element("span", { class: "line" }, ...answerParts(run, step)), ...compared);
}

/** A step in words, for screen readers. */
export const stepWords = () => `step ${state.step + 1} of ${state.run.steps}, ${state.run.phase(state.step)}`;

const count = (number) => number.toLocaleString("en");

/** "Copy, length 30: 2 of 240 bits wrong" */
export function verdict(run) {
  const unit = run.choice ? "answers" : "bits";
  if (!run.asked) return "no target";
  if (run.asked === 1) return `${unit.slice(0, -1)} ${run.errors ? "wrong" : "correct"}`;
  return run.errors ? `${count(run.errors)} of ${count(run.asked)} ${unit} wrong` : `all ${count(run.asked)} ${unit} correct`;
}
