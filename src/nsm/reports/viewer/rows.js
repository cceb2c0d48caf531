/* The whole sequence: a row of cells over time for inputs, targets, outputs, head addresses and programs. */

import { FONT, cross, figure, fit, picture, stretch, within } from "./canvas.js";
import { colours, programColour, ramp } from "./colours.js";
import { choosers } from "./execution.js";
import { byId, element } from "./page-data.js";
import { shownSlots, state } from "./state.js";
import { shownHeads } from "./tape.js";

export let timeRows = [];

function bandRow(label, run, array, options = {}) {
  const [steps, columns] = [array.rows, array.columns];
  const least = array.data.reduce((low, value) => Math.min(low, value), 0);
  const table = least < 0 ? ramp("cell-negative", "cell-off", "cell-on") : ramp("cell-off", "cell-on");
  const low = least < 0 ? -1 : 0;
  const counts = (t) => !options.answers || run.counted[t] > 0;
  const image = picture(steps, columns, table, (t, c) => (counts(t) ? (array.at(t, c) - low) / (1 - low) : null));
  return {
    label,
    height: Math.min(110, Math.max(16, columns * 7)),
    draw({ context, width, height }) {
      stretch(context, image, 0, 0, width, height);
      if (!options.marks) return;
      const [w, h] = [width / steps, height / columns];
      for (let t = 0; t < steps; t++) {
        for (let o = 0; o < columns; o++) if (run.isWrong(t, o)) cross(context, t * w, o * h, Math.max(w, 1.5), h);
      }
    },
    tell(t, share) {
      const c = Math.min(columns - 1, Math.floor(share * columns));
      if (!counts(t)) return `step ${t + 1}: not scored`;
      const words = `step ${t + 1}, ${label} ${c + 1}: ${figure(array.at(t, c))}`;
      return options.marks && run.isWrong(t, c) ? `${words}, wrong: target ${figure(run.targets.at(t, c))}` : words;
    },
  };
}

/** Words over time, upright where there is room; of a choice without words, its number. */
function wordRow(label, run, word, options = {}) {
  const said = Array.from({ length: run.steps }, (_, t) => (options.answers && !run.counted[t] ? "" : word(t)));
  const longest = Math.max(...said.map((text) => text.length), 1);
  const upright = longest <= 2;
  return {
    label,
    height: upright ? 22 : Math.min(96, 16 + 7 * longest),
    draw({ context, width, height }) {
      context.fillStyle = colours["cell-off"];
      context.fillRect(0, 0, width, height);
      const cell = width / run.steps;
      const size = Math.min(12, cell * 1.15);
      context.textBaseline = "middle";
      said.forEach((text, t) => {
        if (!text) return;
        const wrong = options.marks && run.wrongAt(t) > 0;
        if (wrong || options.answers) {
          context.fillStyle = wrong ? colours.wrong : options.marks && run.judged(t) ? colours.right : colours["cell-none"];
          context.fillRect(t * cell, 0, Math.max(1.5, cell), height);
        }
        if (size < 6) return;
        context.fillStyle = wrong || (options.marks && run.judged(t)) ? colours["wrong-ink"] : colours.ink;
        context.font = `${size}px ${FONT}`;
        context.save();
        context.translate((t + 0.5) * cell, upright ? height / 2 : height - 5);
        if (!upright) context.rotate(-Math.PI / 2);
        context.textAlign = upright ? "center" : "left";
        context.fillText(text, 0, 0);
        context.restore();
      });
    },
    tell(t) {
      if (options.answers && !run.counted[t]) return `step ${t + 1}: not scored`;
      const more = options.marks ? ` (${(100 * run.answers.at(t, run.chosen(run.answers, t))).toFixed(1)} %)` : "";
      const wrong = options.marks && run.wrongAt(t) ? `, wrong: target ${nameAt(run, run.targets, t)}` : "";
      return `step ${t + 1}, ${label}: ${said[t]}${more}${wrong}`;
    },
  };
}

/** What a choice is called: a word, or a letter where choices have no names. */
export function nameAt(run, table, t) {
  return run.wordAt(table, t) || String.fromCharCode(65 + run.chosen(table, t));
}

/** Drawings over time. */
function drawingRow(run) {
  const side = run.picture;
  const images = Array.from({ length: run.steps }, (_, t) => picture(side, side, ramp("cell-off", "cell-on"), (x, y) => run.inputs.at(t, y * side + x)));
  return {
    label: "input",
    height: 26,
    draw({ context, width, height }) {
      context.fillStyle = colours["cell-off"];
      context.fillRect(0, 0, width, height);
      const cell = width / run.steps;
      const size = Math.min(cell - 1, height);
      context.imageSmoothingEnabled = true;
      images.forEach((image, t) => context.drawImage(image, (t + 0.5) * cell - size / 2, (height - size) / 2, size, size));
    },
    tell: (t) => `step ${t + 1}: drawing of ${nameAt(run, run.targets, t)}`,
  };
}

function addressRow(head, run, label) {
  const { count, slot } = shownSlots();
  const table = ramp(`${head.kind}-low`, `${head.kind}-mid`, `${head.kind}-high`);
  const image = picture(run.steps, count, table, (t, place) => head.address.at(t, slot(place)));
  return {
    label,
    kind: head.kind,
    height: Math.min(130, Math.max(48, count * 4)),
    draw: ({ context, width, height }) => stretch(context, image, 0, 0, width, height),
    tell(t, share) {
      const n = slot(Math.min(count - 1, Math.floor(share * count)));
      return `step ${t + 1}, slot ${n}: ${head.name} ${figure(head.address.at(t, n))}`;
    },
  };
}

function programRow(head, run, label) {
  const mix = run.mixes[head.mix];
  const [steps, programs] = [mix.rows, mix.columns];
  return {
    label,
    kind: head.kind,
    height: 36,
    draw({ context, width, height }) {
      const below = new Float64Array(steps);
      for (let p = 0; p < programs; p++) {
        context.fillStyle = programColour(p);
        context.beginPath();
        for (let t = 0; t < steps; t++) {
          const [left, right] = [(t / steps) * width, ((t + 1) / steps) * width];
          const share = mix.at(t, p);
          context.rect(left, height * (1 - below[t] - share), right - left + 0.3, height * share);
          below[t] += share;
        }
        context.fill();
      }
    },
    tell(t) {
      const parts = Array.from({ length: programs }, (_, p) => `program ${p + 1}: ${figure(mix.at(t, p))}`);
      return `step ${t + 1}, ${head.name}\n${parts.join("\n")}`;
    },
  };
}

/** When the machine reads its input and when it answers: a band of names above everything else. */
function phaseRow(run) {
  const named = run.stretches.length > 0;
  const stretches = (named ? run.stretches : [[0, run.decoding, ""], [run.decoding, run.steps, ""]]).filter(([start, end]) => end > start);
  const words = ([start, , name]) => (name ? `${name}, ${run.phase(start)}` : run.phase(start));
  return {
    label: "phase",
    height: 20,
    draw({ context, width, height }) {
      context.font = `12px ${FONT}`;
      context.textBaseline = "middle";
      context.textAlign = "center";
      for (const each of stretches) {
        const [left, right] = each.slice(0, 2).map((t) => (t / run.steps) * width);
        context.fillStyle = colours["cell-none"];
        context.fillRect(left + 0.5, 0, Math.max(1, right - left - 1), height);
        context.fillStyle = colours.ink;
        const initials = each[2].split("-").map((word) => word[0]).join("").toUpperCase();
        const fitting = [words(each), each[2] || run.phase(each[0]), initials];
        const chosen = fitting.find((text) => context.measureText(text).width < right - left - 6);
        if (chosen) context.fillText(chosen, (left + right) / 2, height / 2 + 1);
      }
    },
    tell(t) {
      const inside = stretches.find(([start, end]) => start <= t && t < end);
      return `step ${t + 1}: ${inside ? words(inside) : "order of the tasks"}`;
    },
  };
}

/** Where another run of the same sequence differs: outputs above, addresses below. */
function changeRow(run, other) {
  const share = (t) => answersChanged(run, other, t);
  const pairs = run.heads.map((head) => [head, other.heads.find(({ name }) => name === head.name)]).filter(([, twin]) => twin);
  const moved = (t) => Math.max(0, ...pairs.map(([head, twin]) => distance(head, twin, t)));
  return {
    label: "changed",
    height: 24,
    draw({ context, width, height }) {
      context.fillStyle = colours["cell-none"];
      context.fillRect(0, 0, width, height);
      const cell = width / run.steps;
      for (let t = 0; t < run.steps; t++) {
        context.fillStyle = colours.wrong;
        if (share(t)) context.fillRect(t * cell, 0, Math.max(1.5, cell), height / 2);
        context.fillStyle = colours.changed;
        context.globalAlpha = Math.min(1, moved(t));
        context.fillRect(t * cell, height / 2, Math.max(1.5, cell), height / 2);
        context.globalAlpha = 1;
      }
    },
    tell: (t) => `step ${t + 1}: ${share(t)} outputs changed, ${figure(moved(t))} of a head's weight moved`,
  };
}

/** How many of the scored outputs differ. */
export function answersChanged(run, other, t) {
  if (!run.counted[t]) return 0;
  if (run.choice) return Number(run.chosen(run.answers, t) !== other.chosen(other.answers, t));
  let changed = 0;
  for (let o = 0; o < run.answers.columns; o++) changed += run.answers.at(t, o) > 0.5 !== other.answers.at(t, o) > 0.5;
  return changed;
}

/** The share of a head's weight that is on other slots, 0 to 1. */
export function distance(head, twin, t) {
  let sum = 0;
  for (let n = 0; n < head.address.columns; n++) sum += Math.abs(head.address.at(t, n) - twin.address.at(t, n));
  return sum / 2;
}

function shownRows(run) {
  if (run.picture) return [drawingRow(run)];
  if (run.words.length) return [wordRow("input", run, (t) => run.wordAt(run.inputs, t))];
  return [bandRow("input", run, run.inputs)];
}

function answerRow(label, run) {
  if (run.choice && run.asked) return wordRow(label, run, (t) => nameAt(run, run.answers, t), { answers: true, marks: true });
  return bandRow(label, run, run.answers, { answers: run.asked > 0, marks: true });
}

function targetRow(run) {
  const known = (t) => (run.judged(t) ? nameAt(run, run.targets, t) : "?");
  return run.choice ? wordRow("target", run, known, { answers: true }) : bandRow("target", run, run.targets, { answers: true });
}

/** Whether a head, or a part, visibly did the same in another run: the same addresses and the same programs. */
function same(head, run, other) {
  const twin = choosers(other).find(({ name }) => name === head.name);
  if (!twin) return false;
  for (let t = 0; t < run.steps; t++) {
    if (head.address && distance(head, twin, t) > 0.1) return false;
    const mixes = head.mix === null ? [] : [...run.mixes[head.mix].row(t)].map((share, p) => share - other.mixes[twin.mix].at(t, p));
    if (mixes.some((difference) => Math.abs(difference) > 0.1)) return false;
  }
  return true;
}

function headRows(run, suffix) {
  const told = new Set();
  const programs = (head) => {
    // Heads that share their programs, as those of a DNC do, have one row of them.
    if (head.mix === null || told.has(head.mix)) return [];
    told.add(head.mix);
    return [programRow(head, run, `${head.name}: programs${suffix}`)];
  };
  const heads = shownHeads(run).map((head) => ({ name: head.name, rows: [addressRow(head, run, `${head.name}: slots${suffix}`), ...programs(head)] }));
  return [...heads, ...run.parts.map((part) => ({ name: part.name, rows: programs(part) }))];
}

export function buildRows() {
  const { run, other, otherName } = state;
  const suffix = other ? ` · ${otherName}` : "";
  const own = headRows(run, "");
  // Heads that an intervention did not change are shown once.
  const unchanged = state.interventions.length ? choosers(run).filter((each) => same(each, run, other)).map(({ name }) => name) : [];
  const others = other ? headRows(other, suffix).filter(({ name }) => !unchanged.includes(name)) : [];
  const paired = own.flatMap(({ name, rows }, n) => {
    const at = others.findIndex((each) => each.name === name);
    const twin = at >= 0 ? others.splice(at, 1) : n === own.length - 1 ? others.splice(0) : [];
    return [...rows, ...twin.flatMap((each) => each.rows)];
  });
  timeRows = [
    ...(run.asked && run.decoding > 0 && !run.alternates ? [phaseRow(run)] : []),
    ...shownRows(run),
    ...(run.asked ? [targetRow(run)] : []),
    answerRow("output", run),
    ...(other ? [answerRow(`output${suffix}`, other)] : []),
    ...(other && state.interventions.length ? [changeRow(run, other)] : []),
    ...paired,
    ...others.flatMap((each) => each.rows),
  ];
  const place = byId("rows");
  place.querySelectorAll(".row").forEach((each) => each.remove());
  for (const row of timeRows) {
    row.canvas = element("canvas", { role: "img", "aria-label": `${row.label} over all ${run.steps} steps` });
    row.canvas.dataset.row = row.label;
    place.append(element("div", { class: "row" }, element("span", { class: row.kind ?? "" }, row.label), row.canvas));
  }
  drawRows();
}

export function drawRows() {
  for (const row of timeRows) {
    const surface = fit(row.canvas, row.height);
    drawRowOn(row, surface);
  }
}

export function drawRowOn(row, surface) {
  const { run } = state;
  const { context, width, height } = surface;
  row.draw(surface);
  const line = (t, colour, thick, dash) => {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo((t / run.steps) * width, 0);
    context.lineTo((t / run.steps) * width, height);
    context.stroke();
    context.setLineDash([]);
  };
  for (const [start] of run.stretches) if (start > 0 && start !== run.decoding) line(start, colours.soft, 1, [3, 3]);
  if (run.decoding > 0 && !run.alternates) line(run.decoding, colours.decoding, 2, []);
}

export function drawPlayhead() {
  const { canvas } = timeRows[0];
  byId("playhead").style.transform = `translateX(${((state.step + 0.5) / state.run.steps) * canvas.clientWidth}px)`;
}

/** What the row under the pointer tells, or nothing. */
export function tellRow(canvas, event) {
  const row = timeRows.find((each) => each.canvas === canvas);
  if (!row) return "";
  const [x, y] = within(canvas, event);
  return row.tell(Math.floor(x * state.run.steps), y);
}
