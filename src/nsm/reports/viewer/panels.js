/* Beside the tape: which programs run at this step, and what comes in and goes out. */

import { FONT, cross, fit } from "./canvas.js";
import { colours, mixed, programColour } from "./colours.js";
import { byId, element } from "./page-data.js";
import { nameAt } from "./rows.js";
import { actions, state } from "./state.js";
import { shownHeads } from "./tape.js";

let programBars = [];

/** A bar per program of every head that is shown, and of state network and output layer; made once, updated at every
 *  step. */
export function buildMix() {
  const place = byId("mix");
  place.replaceChildren();
  programBars = [];
  const runs = state.other ? [[state.run, ""], [state.other, ` · ${state.otherName}`]] : [[state.run, ""]];
  for (const [run, suffix] of runs) {
    const told = new Map();
    for (const head of [...shownHeads(run), ...run.parts]) {
      if (head.mix === null) continue;
      if (told.has(head.mix)) {
        told.get(head.mix).textContent += `, ${head.name}`;
        continue;
      }
      const title = element("div", { class: `mix-head ${head.kind ?? ""}` }, `${head.name}${suffix}`);
      told.set(head.mix, title);
      place.append(title);
      for (let p = 0; p < run.mixes[head.mix].columns; p++) place.append(programBar(run, head, p, suffix));
    }
  }
  if (programBars.length === 0) {
    const words = state.run.mixes.length ? "Choose a head below." : "This machine stores no programs: its heads use the same weights at every step.";
    place.append(element("p", { class: "quiet" }, words));
  }
}

function programBar(run, head, p, suffix) {
  const fill = element("div", { class: "fill" });
  const value = element("span", { class: "value" });
  value.dataset.mix = `${head.name}/${p + 1}${suffix}`;
  programBars.push({ mix: run.mixes[head.mix], p, fill, value });
  const force = () => actions.force(head.name, p);
  const inside = [element("span", { class: "label" }, `program ${p + 1}`), element("span", { class: "track" }, fill), value];
  if (!state.canReach || run !== state.run) return element("div", { class: "bar" }, ...inside);
  const words = `Force program ${p + 1} on ${head.name} from this step on`;
  return element("button", { class: "bar", type: "button", title: words, "aria-label": words, onclick: force }, ...inside);
}

export function drawMix() {
  for (const { mix, p, fill, value } of programBars) {
    const share = mix.at(state.step, p);
    fill.style.transform = `scaleX(${share})`;
    fill.style.background = programColour(p);
    value.textContent = share.toFixed(3);
  }
}

const POINT = 5;

/** Input, target and output of this step as rows of cells; words and pictures as themselves. */
export function drawVectors() {
  const canvas = byId("vectors");
  const bands = bandsAt(state.run, state.step);
  const surface = fit(canvas, bands.reduce((sum, band) => sum + band.height, 0));
  let y = 0;
  for (const band of bands) {
    surface.context.font = `12px ${FONT}`;
    surface.context.textBaseline = "top";
    surface.context.textAlign = "left";
    surface.context.fillStyle = colours.soft;
    surface.context.fillText(band.title, 0, y);
    band.draw(surface.context, y + 16, surface.width);
    y += band.height;
  }
}

function bandsAt(run, step) {
  const counted = run.counted[step] > 0;
  const target = run.asked ? [bandOf("target", run, run.targets, counted)] : []; // the user's own input has no target
  const output = run.choice && run.asked ? choicesBand("output", run, counted) : bandOf("output", run, run.answers, counted || !run.asked);
  const others = state.other ? [run.choice && run.asked ? choicesBand(`output · ${state.otherName}`, state.other, counted) : bandOf(`output · ${state.otherName}`, state.other, state.other.answers, counted || !run.asked)] : [];
  return [...inputBands(run, step), ...target, output, ...others];
}

function inputBands(run, step) {
  const side = run.picture;
  if (!side) return [bandOf("input", run, run.inputs, true)];
  const told = run.inputs.columns - side * side;
  return [{
    title: run.choice ? "input, with the label of the previous one" : "input",
    height: 16 + side * POINT + (told ? 38 : 12),
    draw(context, y, width) {
      for (let c = 0; c < side * side; c++) {
        context.fillStyle = mixed(run.inputs.at(step, c));
        context.fillRect((c % side) * POINT, y + Math.floor(c / side) * POINT, POINT, POINT);
      }
      cells(context, y + side * POINT + 6, Math.min(26, width / told), told, (c) => run.inputs.at(step, side * side + c));
    },
  }];
}

/** A row of cells; of words the word. */
function bandOf(name, run, table, shown) {
  const { step } = state;
  const marked = table === run.answers;
  if (run.words.length || (run.choice && run.asked)) {
    const known = shown && (marked || table === run.inputs || run.judged(step));
    const word = known ? nameAt(run, table, step) : "—";
    return { title: name, height: 46, draw: (context, y) => spoken(context, word, y) };
  }
  return {
    title: shown ? name : `${name}: not scored`,
    height: 46,
    draw(context, y, width) {
      const cell = Math.min(26, width / table.columns);
      cells(context, y, cell, table.columns, (c) => (shown ? table.at(step, c) : null));
      for (let c = 0; c < table.columns; c++) if (marked && run.isWrong(step, c)) cross(context, c * cell, y, cell - (cell > 6), 22);
    },
  };
}

/** A row of cells; `value(c)` is a number, or null for none. */
function cells(context, y, cell, count, value) {
  const pad = cell > 6 ? 1 : 0;
  for (let c = 0; c < count; c++) {
    const number = value(c);
    context.fillStyle = number === null ? colours["cell-none"] : mixed(number);
    context.fillRect(c * cell, y, cell - pad, 22);
    if (!pad) continue;
    context.strokeStyle = colours.grid;
    context.lineWidth = 1;
    context.strokeRect(c * cell + 0.5, y + 0.5, cell - pad - 1, 21);
  }
}

function spoken(context, word, y) {
  context.font = `600 16px ${FONT}`;
  context.fillStyle = colours.ink;
  context.fillText(word, 0, y);
}

/** The most probable choices, each with a bar. */
function choicesBand(name, run, shown) {
  const rows = Math.min(5, run.answers.columns);
  return {
    title: shown ? name : `${name}: not scored`,
    height: 16 + rows * 19 + 8,
    draw(context, y, width) {
      const shares = run.answers.row(state.step);
      const best = shown ? [...shares.keys()].sort((one, other) => shares[other] - shares[one] || one - other).slice(0, rows) : [];
      context.textBaseline = "middle";
      best.forEach((choice, n) => {
        const top = y + n * 19;
        const right = run.judged(state.step) && choice === run.chosen(run.targets, state.step);
        context.font = `${n ? "" : "600 "}13px ${FONT}`;
        context.fillStyle = colours["cell-none"];
        context.fillRect(92, top + 2, width - 152, 12);
        context.fillStyle = right ? colours.right : n === 0 && run.wrongAt(state.step) ? colours.wrong : colours.accent;
        context.fillRect(92, top + 2, (width - 152) * shares[choice], 12);
        context.fillStyle = colours.ink;
        context.fillText(run.words[choice] ?? String.fromCharCode(65 + choice), 0, top + 8);
        context.textAlign = "right";
        context.fillText(`${(100 * shares[choice]).toFixed(1)} %`, width, top + 8);
        context.textAlign = "left";
      });
    },
  };
}

/** What the colours mean. */
export function buildLegend() {
  const place = byId("legend");
  place.replaceChildren();
  const item = (text, colour, line) => {
    const mark = element("i", { class: line ? "line" : "" });
    mark.style.background = colour;
    place.append(element("span", {}, mark, text));
  };
  const { run } = state;
  if (!run.choice) item("1", colours["cell-on"]);
  item("wrong", colours.wrong);
  if (run.choice && run.asked) item("right", colours.right);
  if (run.decoding > 0 && run.asked && !run.alternates) item("answer begins", colours.decoding, true);
  item("read", colours.read);
  item("write", colours.write);
  if (state.other && state.interventions.length) item("head moved", colours.changed);
  const programs = Math.max(0, ...run.mixes.map((mix) => mix.columns));
  for (let p = 0; p < programs; p++) item(`program ${p + 1}`, programColour(p));
}
