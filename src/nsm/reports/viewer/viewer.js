"use strict";
/* The execution viewer. All it shows is in the page's own data: executions with their traces, packed by pack.py.

   Static pictures (a heat map over all of time) are drawn once, on a canvas of one pixel a number, and stretched from
   there when the window changes; a step redraws only the tape, the bars and the bits of that step. */

const byId = (id) => document.getElementById(id);
const DOCUMENT = JSON.parse(byId("data").textContent);
const KINDS = { u1: Uint8Array, u2: Uint16Array, f4: Float32Array, i1: Int8Array };

// --- data ------------------------------------------------------------------------------------------------------------

/** An array of the page: `at(i)` is the i-th number in the order of `shape`. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = new KINDS[packed.type](await new Response(stream).arrayBuffer());
  if (packed.differences) {
    const stride = raw.length / packed.shape[0];
    for (let i = stride; i < raw.length; i++) raw[i] += raw[i - stride]; // modulo 256 or 65,536, as it was packed
  }
  const { low, unit } = packed;
  return { raw, shape: packed.shape, limit: packed.limit, at: (i) => low + unit * raw[i] };
}

/** Where each number a tape can hold lies on the ramp: by the square root, so that small ones are seen beside large. */
function shadesOf(memory) {
  const levels = 1 << (8 * memory.raw.BYTES_PER_ELEMENT);
  return Float32Array.from({ length: levels }, (_, i) => {
    const share = (2 * i) / (levels - 1) - 1;
    return 0.5 + 0.5 * Math.sign(share) * Math.sqrt(Math.abs(share));
  });
}

const loaded = new Map();

/** An execution with its arrays unpacked. */
async function load(index) {
  if (!loaded.has(index)) {
    const run = { ...DOCUMENT.executions[index] };
    for (const name of ["inputs", "targets", "answers", "counted", "wrong"]) run[name] = await unpack(run[name]);
    run.mixes = await Promise.all(run.mixes.map(unpack));
    run.heads = await Promise.all(run.heads.map(async (head) => ({ ...head, address: await unpack(head.address) })));
    run.memory = run.memory && (await unpack(run.memory));
    run.slots = run.heads[0].address.shape[1];
    run.shades = run.memory && shadesOf(run.memory);
    run.isWrong = (t, o) => run.wrong.raw[t * run.targets.shape[1] + o] > 0;
    run.hasWrong = (t) => Array.from({ length: run.targets.shape[1] }, (_, o) => run.isWrong(t, o)).some(Boolean);
    loaded.set(index, run);
  }
  return loaded.get(index);
}

const state = { sample: 0, step: 0, playing: false, heads: [], run: null, used: true };

/** The stretch of the tape that is shown. The tape is a ring: a stretch may go past the last slot to the first. */
function shownSlots() {
  const { slots, used } = state.run;
  const [first, count] = state.used ? used : [0, slots];
  return { count, slot: (place) => (first + place + slots) % slots };
}

// --- colours ---------------------------------------------------------------------------------------------------------

let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = new Proxy({}, { get: (known, name) => (known[name] ??= style.getPropertyValue(`--${name}`).trim()) });
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** 256 colours that pass evenly through those given. */
function ramp(...names) {
  const stops = names.map((name) => channels(colours[name]));
  const table = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const from = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) table[3 * i + c] = stops[from][c] + (place - from) * (stops[from + 1][c] - stops[from][c]);
  }
  return table;
}

const program = (index) => colours[`program-${(index % 6) + 1}`];

// --- pictures --------------------------------------------------------------------------------------------------------

/** A canvas of one pixel a number; `shade(column, row)` is where it lies on the ramp, 0 to 1, or null for blank. */
function picture(columns, rows, table, shade) {
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const blank = channels(colours["cell-none"]);
  for (let y = 0, i = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++, i += 4) {
      const share = shade(x, y);
      const from = share === null ? blank : table;
      const at = share === null ? 0 : 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
      image.data.set([from[at], from[at + 1], from[at + 2], 255], i);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Fit a canvas to its place on the screen, `height` high; returns a context that counts in CSS pixels. */
function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.setTransform(canvas.width / Math.max(1, width), 0, 0, canvas.height / height, 0, 0);
  return { context, width, height };
}

/** Stretch a picture; where several numbers share a point they are blended, else each stays a sharp cell. */
function stretch(context, image, x, y, width, height) {
  context.imageSmoothingEnabled = image.width > width * (window.devicePixelRatio || 1);
  context.drawImage(image, x, y, width, height);
}

// --- the whole sequence ----------------------------------------------------------------------------------------------

let rows = [];

function bandRow(label, array, options = {}) {
  const { run } = state;
  const [steps, channelsOf] = array.shape;
  let least = 0;
  for (let i = 0; i < array.raw.length; i++) least = Math.min(least, array.at(i));
  const table = least < 0 ? ramp("cell-negative", "cell-off", "cell-on") : ramp("cell-off", "cell-on");
  const low = least < 0 ? -1 : 0;
  const counts = (t) => !options.answers || run.counted.raw[t] > 0;
  const shade = (t, c) => (counts(t) ? (array.at(t * channelsOf + c) - low) / (1 - low) : null);
  const image = picture(steps, channelsOf, table, shade);
  return {
    label,
    height: Math.min(110, Math.max(16, channelsOf * 7)),
    draw({ context, width, height }) {
      stretch(context, image, 0, 0, width, height);
      if (!options.marks) return;
      const [w, h] = [width / steps, height / channelsOf];
      for (let t = 0; t < steps; t++) {
        for (let o = 0; o < channelsOf; o++) {
          if (run.isWrong(t, o)) cross(context, t * w, o * h, Math.max(w, 1.5), h);
        }
      }
    },
    tell(t, share) {
      const c = Math.min(channelsOf - 1, Math.floor(share * channelsOf));
      if (!counts(t)) return `step ${t + 1}: no answer is asked for`;
      const name = run.words[c] ?? `${label} ${c + 1}`;
      const words = `step ${t + 1}, ${name}: ${figure(array.at(t * channelsOf + c))}`;
      return options.marks && run.isWrong(t, c) ? `${words}, wrong: ${figure(run.targets.at(t * channelsOf + c))} was asked` : words;
    },
  };
}

/** A wrong bit: red, and crossed for those who don't see red. */
function cross(context, x, y, w, h) {
  context.fillStyle = colours.wrong;
  context.fillRect(x, y, w, h);
  if (Math.min(w, h) < 4) return;
  context.strokeStyle = colours["wrong-ink"];
  context.lineWidth = Math.max(1, Math.min(w, h) / 9);
  const pad = Math.min(w, h) * 0.25;
  context.beginPath();
  context.moveTo(x + pad, y + pad);
  context.lineTo(x + w - pad, y + h - pad);
  context.moveTo(x + w - pad, y + pad);
  context.lineTo(x + pad, y + h - pad);
  context.stroke();
}

function addressRow(head) {
  const [steps, slots] = head.address.shape;
  const { count, slot } = shownSlots();
  const table = ramp(`${head.kind}-low`, `${head.kind}-mid`, `${head.kind}-high`);
  const image = picture(steps, count, table, (t, place) => head.address.at(t * slots + slot(place)));
  return {
    label: `${head.name}: slots`,
    kind: head.kind,
    height: Math.min(130, Math.max(48, count * 4)),
    draw: ({ context, width, height }) => stretch(context, image, 0, 0, width, height),
    tell(t, share) {
      const n = slot(Math.min(count - 1, Math.floor(share * count)));
      return `step ${t + 1}, slot ${n}: ${head.name} ${figure(head.address.at(t * slots + n))}`;
    },
  };
}

function programRow(head) {
  const mix = state.run.mixes[head.mix];
  const [steps, programs] = mix.shape;
  return {
    label: `${head.name}: programs`,
    kind: head.kind,
    height: 40,
    draw({ context, width, height }) {
      const below = new Float64Array(steps);
      for (let p = 0; p < programs; p++) {
        context.fillStyle = program(p);
        context.beginPath();
        for (let t = 0; t < steps; t++) {
          const [left, right] = [(t / steps) * width, ((t + 1) / steps) * width];
          const share = mix.at(t * programs + p);
          context.rect(left, height * (1 - below[t] - share), right - left + 0.3, height * share);
          below[t] += share;
        }
        context.fill();
      }
    },
    tell(t) {
      const parts = Array.from({ length: programs }, (_, p) => `program ${p + 1}: ${figure(mix.at(t * programs + p))}`);
      return `step ${t + 1}, ${head.name}\n${parts.join("\n")}`;
    },
  };
}

/** When what is shown and asked for: a band of names above everything else. */
function phaseRow() {
  const { run } = state;
  const named = run.stretches.length > 0;
  const stretches = named ? run.stretches : [[0, run.decoding, ""], [run.decoding, run.steps, ""]];
  const phase = (start) => (start >= run.decoding ? "answers" : "listens");
  const words = ([start, , name]) => (name ? `${name}, ${phase(start)}` : phase(start));
  return {
    label: "phase",
    height: 20,
    draw({ context, width, height }) {
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "center";
      for (const stretchOf of stretches) {
        const [left, right] = stretchOf.slice(0, 2).map((t) => (t / run.steps) * width);
        context.fillStyle = colours["cell-none"];
        context.fillRect(left + 0.5, 0, Math.max(1, right - left - 1), height);
        context.fillStyle = colours.ink;
        const initials = stretchOf[2].split("-").map((word) => word[0]).join("").toUpperCase();
        const fitting = [words(stretchOf), stretchOf[2] || phase(stretchOf[0]), initials];
        const chosen = fitting.find((text) => context.measureText(text).width < right - left - 6);
        if (chosen) context.fillText(chosen, (left + right) / 2, height / 2 + 1);
      }
    },
    tell(t) {
      const inside = stretches.find(([start, end]) => start <= t && t < end);
      return `step ${t + 1}: ${inside ? words(inside) : "the order of the subtasks"}`;
    },
  };
}

function buildRows() {
  const { run } = state;
  const shown = run.heads.filter((_, index) => state.heads.includes(index));
  const told = new Set();
  const programs = (head) => {
    // Heads that share their programs, as those of a DNC do, have one row of them.
    if (head.mix === null || told.has(head.mix)) return [];
    told.add(head.mix);
    return [programRow(head)];
  };
  rows = [
    ...(run.asked ? [phaseRow()] : []),
    bandRow("input", run.inputs),
    ...(run.asked ? [bandRow("target", run.targets, { answers: true })] : []),
    bandRow("output", run.answers, { answers: run.asked > 0, marks: true }),
    ...shown.flatMap((head) => [addressRow(head), ...programs(head)]),
  ];
  const place = byId("rows");
  place.querySelectorAll(".row").forEach((element) => element.remove());
  for (const row of rows) {
    const element = document.createElement("div");
    element.className = "row";
    const label = document.createElement("span");
    label.textContent = row.label;
    if (row.kind) label.className = row.kind;
    row.canvas = document.createElement("canvas");
    row.canvas.setAttribute("role", "img");
    row.canvas.setAttribute("aria-label", `${row.label} over all ${run.steps} steps`);
    row.canvas.dataset.row = row.label;
    element.append(label, row.canvas);
    place.append(element);
  }
  drawRows();
}

function drawRows() {
  const { run } = state;
  for (const row of rows) {
    const surface = fit(row.canvas, row.height);
    row.draw(surface);
    const line = (t, colour, width, dash) => {
      const { context } = surface;
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo((t / run.steps) * surface.width, 0);
      context.lineTo((t / run.steps) * surface.width, surface.height);
      context.stroke();
      context.setLineDash([]);
    };
    for (const [start] of run.stretches) if (start > 0 && start !== run.decoding) line(start, colours.soft, 1, [3, 3]);
    line(run.decoding, colours.decoding, 2, []);
  }
}

// --- the machine at this step ----------------------------------------------------------------------------------------

const tape = { lane: 34, gap: 10, axis: 18 };

const selected = (kind) => state.run.heads.filter((head, index) => head.kind === kind && state.heads.includes(index));

/** From top to bottom: a lane per read head, the slots' contents, a lane per write head, slot numbers. */
function tapeLayout() {
  const reads = selected("read"), writes = selected("write");
  const width = state.run.memory ? state.run.memory.shape[2] : 0;
  const contents = width ? Math.min(240, Math.max(150, width * 11)) : 16;
  const top = reads.length * (tape.lane + tape.gap);
  return { reads, writes, width, top, contents, height: top + contents + writes.length * (tape.lane + tape.gap) + tape.axis };
}

let signed = null;

function drawTape() {
  const { run, step } = state;
  const plan = tapeLayout();
  const canvas = byId("tape");
  const { context, width } = fit(canvas, plan.height);
  const { count, slot } = shownSlots();
  const cell = width / count;
  if (plan.width) {
    const start = step * run.slots * plan.width;
    signed ??= ramp("minus", "zero", "plus");
    const shade = (place, m) => run.shades[run.memory.raw[start + slot(place) * plan.width + m]];
    stretch(context, picture(count, plan.width, signed, shade), 0, plan.top, width, plan.contents);
  }
  context.strokeStyle = colours.grid;
  context.lineWidth = 1;
  context.strokeRect(0.5, plan.top + 0.5, width - 1, plan.contents - 1);
  plan.reads.forEach((head, k) => drawHead(context, head, k * (tape.lane + tape.gap), cell, plan, true));
  const below = plan.top + plan.contents + tape.gap;
  plan.writes.forEach((head, k) => drawHead(context, head, below + k * (tape.lane + tape.gap), cell, plan, false));
  context.fillStyle = colours.soft;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "bottom";
  context.textAlign = "center";
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((n) => n * cell >= 34) ?? run.slots;
  for (let place = 0; place < count; place++) {
    const x = Math.max(8, (place + 0.5) * cell);
    if (slot(place) % every === 0 && x < width - 8) context.fillText(slot(place), x, plan.height);
  }
}

/** A head's weights as bars that grow towards the tape, and an arrow on the slot it is most on. */
function drawHead(context, head, y, cell, plan, above) {
  const start = state.step * state.run.slots;
  const { count, slot } = shownSlots();
  const width = cell * count;
  context.fillStyle = colours["cell-none"];
  context.fillRect(0, y, width, tape.lane);
  context.fillStyle = colours[head.kind];
  let most = 0;
  for (let place = 0; place < count; place++) {
    const size = head.address.at(start + slot(place)) * tape.lane;
    if (size > 0.2) context.fillRect(place * cell, above ? y + tape.lane - size : y, Math.max(1, cell - 0.5), size);
    if (head.address.raw[start + slot(place)] > head.address.raw[start + slot(most)]) most = place;
  }
  const weight = head.address.at(start + slot(most));
  const x = (most + 0.5) * cell;
  context.font = "600 11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = x > 90 ? "left" : "right";
  context.fillText(head.name, x > 90 ? 5 : width - 5, y + tape.lane / 2);
  if (weight < 0.05) return;
  const size = Math.max(5, Math.min(7, cell));
  const tip = above ? y + tape.lane + tape.gap : y - tape.gap;
  const back = above ? tip - tape.gap + 1 : tip + tape.gap - 1;
  context.globalAlpha = Math.max(0.35, weight);
  context.beginPath();
  context.moveTo(x, tip);
  context.lineTo(x - size, back);
  context.lineTo(x + size, back);
  context.closePath();
  context.fill();
  if (weight > 0.3) {
    context.strokeStyle = colours[head.kind];
    context.lineWidth = 2;
    context.strokeRect(most * cell, plan.top, Math.max(2, cell), plan.contents);
  }
  context.globalAlpha = 1;
}

/** The slot a head is most on at this step. */
function strongest(head) {
  const start = state.step * state.run.slots;
  let place = 0;
  for (let n = 1; n < state.run.slots; n++) if (head.address.raw[start + n] > head.address.raw[start + place]) place = n;
  return { place, weight: head.address.at(start + place) };
}

const PIXEL = 5;

/** Input, target and output of this step as rows of cells; an input that begins with a picture, that as one. */
function drawVectors() {
  const { run, step } = state;
  const canvas = byId("vectors");
  const counted = run.counted.raw[step] > 0;
  const target = run.asked ? [["target", run.targets, counted]] : []; // an input of somebody's own asks for nothing
  const bands = [["input", run.inputs, true], ...target, ["output", run.answers, counted || !run.asked]];
  const side = run.picture;
  const lower = side ? side * PIXEL + 8 : 0;
  const { context, width } = fit(canvas, bands.length * 46 + lower);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "top";
  bands.forEach(([name, array, shown], k) => {
    const size = array.shape[1];
    const word = shown ? wordAt(array, step) : "none asked for";
    context.fillStyle = colours.soft;
    context.fillText(word ? `${name}: ${word}` : name, 0, k * 46 + (k ? lower : 0));
    const first = k ? 0 : side * side;
    for (let c = 0; c < first; c++) {
      context.fillStyle = mixed(array.at(step * size + c));
      context.fillRect((c % side) * PIXEL, 16 + Math.floor(c / side) * PIXEL, PIXEL, PIXEL);
    }
    const cell = Math.min(26, width / (size - first));
    for (let c = first; c < size; c++) {
      const value = array.at(step * size + c);
      const [x, y] = [(c - first) * cell, k * 46 + 16 + lower];
      const pad = cell > 6 ? 1 : 0;
      context.fillStyle = !shown ? colours["cell-none"] : mixed(value);
      context.fillRect(x, y, cell - pad, 22);
      if (cell > 6) {
        context.strokeStyle = colours.grid;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, cell - pad - 1, 21);
      }
      if (name === "output" && run.isWrong(step, c)) cross(context, x, y, cell - pad, 22);
    }
  });
}

/** The colour of a bit's value: off at 0, on at 1, another one below 0. */
function mixed(value) {
  const [from, to] = [channels(colours["cell-off"]), channels(colours[value < 0 ? "cell-negative" : "cell-on"])];
  const share = Math.min(1, Math.abs(value));
  return `rgb(${from.map((c, i) => Math.round(c + share * (to[i] - c))).join(" ")})`;
}

let bars = [];

/** A bar per program of every head that is shown; made once, moved at every step. */
function buildMix() {
  const { run } = state;
  const place = byId("mix");
  place.replaceChildren();
  bars = [];
  const told = new Map();
  for (const head of run.heads.filter((_, index) => state.heads.includes(index))) {
    if (head.mix === null) continue;
    if (told.has(head.mix)) {
      told.get(head.mix).textContent += `, ${head.name}`;
      continue;
    }
    const title = document.createElement("div");
    title.className = `mix-head ${head.kind}`;
    title.textContent = head.name;
    told.set(head.mix, title);
    place.append(title);
    for (let p = 0; p < run.mixes[head.mix].shape[1]; p++) {
      const bar = document.createElement("div");
      bar.className = "bar";
      const [label, track, value] = ["label", "track", "value"].map((name) =>
        Object.assign(document.createElement("span"), { className: name }));
      const fill = Object.assign(document.createElement("div"), { className: "fill" });
      label.textContent = `program ${p + 1}`;
      value.dataset.mix = `${head.name}/${p + 1}`;
      track.append(fill);
      bar.append(label, track, value);
      place.append(bar);
      bars.push({ mix: run.mixes[head.mix], p, fill, value });
    }
  }
  if (bars.length === 0) place.textContent = run.mixes.length ? "Choose a head below." : "One program for all time: this machine stores none.";
}

function drawMix() {
  for (const { mix, p, fill, value } of bars) {
    const share = mix.at(state.step * mix.shape[1] + p);
    fill.style.transform = `scaleX(${share})`;
    fill.style.background = program(p);
    value.textContent = `${(100 * share).toFixed(1)} %`;
  }
}

// --- words -----------------------------------------------------------------------------------------------------------

/** The word of the largest number of a step, where numbers stand for words. */
function wordAt(array, step) {
  const { words } = state.run;
  if (!words.length) return "";
  const values = Array.from({ length: array.shape[1] }, (_, c) => array.at(step * array.shape[1] + c));
  return Math.max(...values) > 0 ? (words[values.indexOf(Math.max(...values))] ?? "") : "";
}

const figure = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(4));

function tellStory() {
  const { run, step } = state;
  const story = byId("story");
  story.setAttribute("aria-live", state.playing ? "off" : "polite");
  const say = (text, className) => {
    const part = document.createElement(className ? "b" : "span");
    if (className) part.className = className;
    part.textContent = text;
    story.append(part);
  };
  story.replaceChildren();
  const within = run.stretches.find(([start, end]) => start <= step && step < end);
  const phase = !run.asked ? "works" : step >= run.decoding ? "answers" : "listens";
  const heard = wordAt(run.inputs, step);
  say(`Step ${step + 1}: the machine ${phase}${within ? ` (${within[2]})` : ""}${heard ? `; the word is “${heard}”` : ""}. `);
  for (const kind of ["read", "write"]) {
    for (const head of selected(kind).slice(0, 1)) {
      const { place, weight } = strongest(head);
      say(kind === "read" ? "It reads " : ", and writes ");
      say(weight > 0.05 ? `slot ${place}` : "nowhere in particular", kind);
      if (weight > 0.05 && weight < 0.95) say(` to ${Math.round(100 * weight)} %`);
      if (head.mix !== null) {
        const mix = run.mixes[head.mix];
        const shares = Array.from({ length: mix.shape[1] }, (_, p) => mix.at(step * mix.shape[1] + p));
        const best = shares.indexOf(Math.max(...shares));
        say(` by program ${best + 1} (${Math.round(100 * shares[best])} %)`);
      }
    }
  }
  say(". ");
  if (run.counted.raw[step] > 0) {
    const size = run.targets.shape[1];
    const answers = Array.from({ length: size }, (_, o) => run.answers.at(step * size + o));
    const wrong = answers.filter((_, o) => run.isWrong(step, o)).length;
    const bits = answers.map((share) => (share > 0.5 ? "1" : "0")).join("");
    const choice = run.unit === "answers";
    const chosen = wordAt(run.answers, step) || answers.indexOf(Math.max(...answers)) + 1;
    say(choice ? `It chooses ${chosen}: ` : size <= 16 ? `It says ${bits}: ` : "Its answer is ");
    const right = wordAt(run.targets, step);
    const mistake = choice ? `wrong${right ? `, it should be ${right}` : ""}` : `${wrong} ${wrong === 1 ? "bit" : "bits"} wrong`;
    say(wrong ? mistake : "right", wrong ? "wrong" : "right");
    say(".");
  }
}

function legend() {
  const place = byId("legend");
  place.replaceChildren();
  const item = (text, colour, line) => {
    const part = document.createElement("span");
    const mark = document.createElement("i");
    if (line) mark.className = "line";
    mark.style.background = colour;
    part.append(mark, text);
    place.append(part);
  };
  item("1", colours["cell-on"]);
  item("wrong", colours.wrong);
  item("start of decoding", colours.decoding, true);
  item("read", colours.read);
  item("write", colours.write);
  const programs = Math.max(0, ...state.run.mixes.map((mix) => mix.shape[1]));
  for (let p = 0; p < programs; p++) item(`program ${p + 1}`, program(p));
}

// --- moving through time ---------------------------------------------------------------------------------------------

function drawNow() {
  const { run, step } = state;
  drawTape();
  drawMix();
  drawVectors();
  tellStory();
  byId("slider").value = step;
  byId("slider").setAttribute("aria-valuetext", `step ${step + 1} of ${run.steps}, ${step >= run.decoding ? "decoding" : "encoding"}`);
  byId("clock").textContent = `${step + 1} of ${run.steps}`;
  document.body.dataset.step = step;
  const canvas = rows[0].canvas;
  byId("playhead").style.transform = `translateX(${((step + 0.5) / run.steps) * canvas.clientWidth}px)`;
}

function go(step) {
  state.step = Math.max(0, Math.min(state.run.steps - 1, Math.round(step)));
  drawNow();
}

function play(on) {
  state.playing = on && state.run.steps > 1;
  if (state.playing && state.step === state.run.steps - 1) go(0);
  const button = byId("play");
  button.setAttribute("aria-label", state.playing ? "Pause" : "Play");
  document.body.dataset.playing = state.playing;
  if (!state.playing) return tellStory();
  let before = performance.now(), due = 0;
  const frame = (now) => {
    if (!state.playing) return;
    due += ((now - before) / 1000) * Number(byId("speed").value);
    before = now;
    if (due >= 1) {
      go(state.step + Math.floor(due));
      due %= 1;
    }
    if (state.step === state.run.steps - 1) play(false);
    else requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function nextWrong() {
  const { run } = state;
  for (let ahead = 1; ahead <= run.steps; ahead++) {
    const t = (state.step + ahead) % run.steps;
    if (run.hasWrong(t)) return go(t);
  }
}

// --- choosing --------------------------------------------------------------------------------------------------------

async function choose(sample) {
  if (state.playing) play(false);
  const count = DOCUMENT.executions.length;
  const index = ((sample % count) + count) % count;
  const run = await load(index);
  const same = state.run && state.run.heads.length === run.heads.length;
  Object.assign(state, { sample: index, run, step: Math.min(state.step, run.steps - 1) });
  if (!same) state.heads = ["read", "write"].map((kind) => run.heads.findIndex((head) => head.kind === kind)).filter((n) => n >= 0);
  byId("sample").value = index;
  byId("slider").max = run.steps - 1;
  byId("tape-hint").textContent = `${run.slots} slots${run.memory ? ` of ${run.memory.shape[2]} numbers, colours from −${run.memory.limit.toPrecision(2)} to ${run.memory.limit.toPrecision(2)} by square root` : ""}; above it what is read, below what is written`;
  document.body.dataset.sample = index;
  byId("used").parentElement.hidden = run.used[1] === run.slots;
  chips();
  redraw();
}

function chips() {
  const place = byId("heads");
  place.replaceChildren();
  state.run.heads.forEach((head, index) => {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.className = head.kind;
    chip.textContent = head.name;
    chip.setAttribute("aria-pressed", state.heads.includes(index));
    chip.addEventListener("click", () => {
      state.heads = state.heads.includes(index) ? state.heads.filter((n) => n !== index) : [...state.heads, index];
      chip.setAttribute("aria-pressed", state.heads.includes(index));
      redraw();
    });
    place.append(chip);
  });
}

/** Show the next read head with the write head of the same number. */
function nextHeads() {
  const kinds = ["read", "write"].map((kind) => state.run.heads.flatMap((head, n) => (head.kind === kind ? [n] : [])));
  const most = Math.max(...kinds.map((heads) => heads.length));
  const now = Math.max(...kinds.map((heads) => heads.indexOf(state.heads.find((n) => heads.includes(n)))));
  state.heads = kinds.filter((heads) => heads.length).map((heads) => heads[((now + 1) % most) % heads.length]);
  chips();
  redraw();
}

function redraw() {
  signed = null;
  buildMix();
  buildRows();
  legend();
  drawNow();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  readColours();
  if (state.run) redraw();
}

// --- hands -----------------------------------------------------------------------------------------------------------

function tip(event, text) {
  const element = byId("tip");
  element.hidden = !text;
  if (!text) return;
  element.textContent = text;
  const { width, height } = element.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
  const top = event.clientY + 16 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 16;
  element.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

/** Where in a canvas the pointer is, as shares of its width and height. */
function within(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const share = (value, low, size) => Math.min(0.999999, Math.max(0, (value - low) / size));
  return [share(event.clientX, box.left, box.width), share(event.clientY, box.top, box.height)];
}

function listen() {
  const place = byId("rows");
  let dragging = null;
  const seek = (event) => go(Math.floor(within(dragging, event)[0] * state.run.steps));
  place.addEventListener("pointerdown", (event) => {
    if (event.target.tagName !== "CANVAS") return;
    dragging = event.target;
    place.setPointerCapture(event.pointerId);
    seek(event);
  });
  place.addEventListener("pointermove", (event) => {
    if (dragging) seek(event);
    const row = rows.find(({ canvas }) => canvas === (dragging ?? event.target));
    if (!row) return tip(event, "");
    const [x, y] = within(row.canvas, event);
    tip(event, row.tell(Math.floor(x * state.run.steps), y));
  });
  for (const end of ["pointerup", "pointercancel"]) place.addEventListener(end, () => (dragging = null));
  place.addEventListener("pointerleave", (event) => tip(event, ""));

  const canvas = byId("tape");
  canvas.addEventListener("pointermove", (event) => {
    const { run, step } = state;
    const [x, y] = within(canvas, event);
    const plan = tapeLayout();
    const { count, slot: at } = shownSlots();
    const slot = at(Math.floor(x * count));
    const lines = [`slot ${slot}`];
    const depth = y * plan.height - plan.top;
    if (plan.width && depth >= 0 && depth < plan.contents) {
      const m = Math.min(plan.width - 1, Math.floor((depth / plan.contents) * plan.width));
      lines.push(`number ${m + 1}: ${run.memory.at((step * run.slots + slot) * plan.width + m).toFixed(3)}`);
    }
    for (const head of [...plan.reads, ...plan.writes]) lines.push(`${head.name}: ${figure(head.address.at(step * run.slots + slot))}`);
    tip(event, lines.join("\n"));
  });
  canvas.addEventListener("pointerleave", (event) => tip(event, ""));

  byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("used").addEventListener("change", (event) => {
    state.used = event.target.checked;
    redraw();
  });
  byId("sample").addEventListener("change", (event) => choose(Number(event.target.value)));
  byId("play").addEventListener("click", () => play(!state.playing));
  const step = (id, to) => byId(id).addEventListener("click", () => (play(false), go(to())));
  step("first", () => 0);
  step("back", () => state.step - 1);
  step("forward", () => state.step + 1);
  step("last", () => state.run.steps - 1);
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
  const help = byId("help");
  const showHelp = (open) => {
    if (open) help.showModal();
    byId("help-button").setAttribute("aria-expanded", open);
  };
  byId("help-button").addEventListener("click", () => showHelp(true));
  help.addEventListener("close", () => showHelp(false));

  const keys = {
    " ": () => play(!state.playing),
    ArrowLeft: (event) => go(state.step - (event.shiftKey ? 10 : 1)),
    ArrowRight: (event) => go(state.step + (event.shiftKey ? 10 : 1)),
    Home: () => go(0),
    End: () => go(state.run.steps - 1),
    d: () => go(state.run.decoding),
    e: nextWrong,
    h: nextHeads,
    "[": () => choose(state.sample - 1),
    "]": () => choose(state.sample + 1),
    "?": () => showHelp(true),
  };
  document.addEventListener("keydown", (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!(key in keys) || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    // A list keeps its own keys, and so does the space bar on a button.
    if (event.target.tagName === "SELECT" || (key === " " && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    if (key !== " " && state.playing) play(false);
    keys[key](event);
  });

  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    drawRows();
    drawNow();
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches));
}

async function begin() {
  byId("title").textContent = DOCUMENT.title;
  byId("facts").textContent = DOCUMENT.facts.join(" · ");
  DOCUMENT.executions.forEach((run, index) => {
    const wrong = run.errors === 0 ? "nothing wrong" : `${run.errors.toLocaleString("en")} of ${run.asked.toLocaleString("en")} ${run.unit} wrong`;
    byId("sample").append(new Option(run.asked ? `${run.name}: ${wrong}` : run.name, index));
  });
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  byId("message").hidden = false;
  await load(0); // before anything is shown: panels without content look broken
  byId("message").hidden = true;
  byId("main").hidden = false;
  await choose(0);
  const wanted = Number(location.hash.slice(1)); // view.html#36 opens at step 36
  if (wanted >= 1) go(wanted - 1);
  listen();
  document.body.dataset.ready = "true";
}

begin().catch((error) => {
  byId("main").hidden = true;
  byId("message").hidden = false;
  byId("message").classList.remove("waiting");
  byId("message").textContent = "DecompressionStream" in window ? `This page could not be shown: ${error.message}` : "This page needs a browser of 2023 or later.";
  throw error;
});
