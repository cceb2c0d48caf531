/* The execution viewer: a machine in a page, at work on what it is shown.

   What is shown is in `state`, which only this file changes: `run` computes what the machine does with an input, `redraw`
   shows it, and a step then redraws only what differs from step to step. */

import { addressable, lastFragment, wanted, writeAddress } from "./address.js";
import { readColours } from "./colours.js";
import { fromMachine, fromRecording, unpackSample, workingHeads } from "./execution.js";
import { saveFilm, savePicture } from "./export.js";
import { listen } from "./listen.js";
import { checkInterventions } from "./machine/interventions.js";
import { unpackMachine } from "./machine/weights.js";
import { DOCUMENT, byId, element } from "./page-data.js";
import { buildLegend, buildMix, drawMix, drawVectors } from "./panels.js";
import { buildReach, markReach } from "./reach.js";
import { buildRows, drawPlayhead } from "./rows.js";
import { actions, state } from "./state.js";
import { stepWords, tellStory } from "./story.js";
import { drawTape } from "./tape.js";
import { Refusal } from "./tasks/layout.js";
import { Laying, knownTask } from "./tasks/tasks.js";
import { buildTry, markTry, refuse, showAnswer } from "./try.js";

const machines = []; // the machine, and optionally another to compare with
const samples = new Map();
const recorded = new Map();
const ORIGINAL = "original";

// --- computing -------------------------------------------------------------------------------------------------------

/** A sequence of the page, unpacked when it is first looked at. */
async function sampleOf(index) {
  if (!samples.has(index)) samples.set(index, await unpackSample(DOCUMENT.sequences[index]));
  return samples.get(index);
}

function layingOf(index, sample) {
  const { task, words } = DOCUMENT.sequences[index];
  if (!machines.length || !knownTask(task)) return null;
  return new Laying(task, sample.inputs.columns, sample.targets.columns, words, sample);
}

/** What the machine does with the current sequence, and the run it is compared with. */
async function run() {
  const example = DOCUMENT.sequences[state.example];
  if (!machines.length) {
    if (!recorded.has(state.example)) recorded.set(state.example, await fromRecording(example));
    state.run = recorded.get(state.example);
    return;
  }
  const sample = state.spec ? state.laying.lay(state.spec) : await sampleOf(state.example);
  const intervened = state.interventions.length > 0;
  state.run = fromMachine(machines[0], sample, example, state.slots ?? undefined, state.interventions);
  const beside = intervened ? machines[0] : machines[1];
  state.other = beside ? fromMachine(beside, sample, example, state.slots ?? undefined) : null;
  state.runName = intervened ? "with interventions" : (DOCUMENT.machines[0]?.name ?? "");
  state.otherName = intervened ? ORIGINAL : (DOCUMENT.machines[1]?.name ?? "");
  if (state.other && !intervened) state.other.ownHeads = workingHeads(state.other);
  state.step = Math.min(state.step, state.run.steps - 1);
}

/** Compute and show the result; an input that the machine can't take is refused with a message, and nothing changes. */
async function change(parts, rebuild = true) {
  const before = { ...state };
  Object.assign(state, parts);
  try {
    if (state.spec) state.laying.check(state.spec);
    await run();
  } catch (error) {
    Object.assign(state, before);
    if (!(error instanceof Refusal)) throw error;
    refuse(`The input needs ${error.message}.`.replace(/^The input needs (“.*)$/, "$1"));
    return false;
  }
  refuse("");
  const shown = state.heads.length && state.heads.every((index) => index < state.run.heads.length);
  if (!shown) Object.assign(state, { heads: workingHeads(state.run), headsByHand: false });
  if (rebuild) buildTry();
  redraw();
  writeAddress();
  return true;
}

// --- showing ---------------------------------------------------------------------------------------------------------

function redraw() {
  const { run: shown, other } = state;
  const { memory } = shown;
  byId("slider").max = shown.steps - 1;
  byId("story-step").style.minWidth = `${`Step ${shown.steps} of ${shown.steps}`.length + 1}ch`;
  byId("used").parentElement.hidden = shown.used[1] === shown.slots;
  byId("tape-hint").textContent = `${shown.slots} slots${memory ? ` × ${memory.width} numbers` : ""}; read heads above, write heads below`;
  byId("tape-hint").title = memory ? `Colour scale from −${memory.limit.toPrecision(2)} to ${memory.limit.toPrecision(2)}; a square-root scale, to show small values.` : "";
  document.body.dataset.other = Boolean(other);
  document.body.dataset.parts = shown.parts.length > 0;
  byId("try").dataset.kind = shown.words.length ? "words" : shown.picture ? "drawings" : "bits";
  byId("other-tape").hidden = byId("tape-name").hidden = !other;
  byId("tapes").classList.toggle("two", Boolean(other));
  byId("tape-name").textContent = state.runName;
  byId("other-name").textContent = state.otherName;
  showAnswer();
  buildMix();
  chips();
  buildRows();
  buildLegend();
  buildReach();
  drawNow();
}

function drawNow() {
  const { run: shown, other, step } = state;
  // First measure sizes, then change text: otherwise every step would be laid out several times.
  drawPlayhead();
  drawTape(byId("tape"), shown, step);
  if (other) drawTape(byId("tape-2"), other, step);
  drawVectors();
  markTry();
  drawMix();
  tellStory();
  markReach();
  byId("slider").value = step;
  byId("slider").setAttribute("aria-valuetext", stepWords());
  document.body.dataset.step = step;
}

function chips() {
  const made = state.run.heads.map((head, index) => {
    const pressed = state.heads.includes(index);
    const toggle = () => {
      const heads = pressed ? state.heads.filter((n) => n !== index) : [...state.heads, index].sort((one, other) => one - other);
      actions.show(heads);
      byId("heads").children[index].focus();
    };
    return element("button", { type: "button", class: head.kind, "aria-pressed": pressed, onclick: toggle }, head.name);
  });
  byId("heads").replaceChildren(...made);
}

// --- acting ----------------------------------------------------------------------------------------------------------

function go(step, byHand = false) {
  if (byHand && state.playing) play(false);
  state.step = Math.max(0, Math.min(state.run.steps - 1, Math.round(step)));
  drawNow();
  writeAddress();
}

function play(on) {
  state.playing = on && state.run.steps > 1;
  if (state.playing && state.step === state.run.steps - 1) go(0);
  byId("play").setAttribute("aria-label", state.playing ? "Pause" : "Play");
  document.body.dataset.playing = state.playing;
  writeAddress();
  if (!state.playing) return tellStory();
  let before = performance.now(), due = 0;
  const frame = (now) => {
    if (!state.playing) return;
    due += ((now - before) / 1000) * state.speed;
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

async function choose(index, more = {}) {
  if (state.playing) play(false);
  const count = DOCUMENT.sequences.length;
  const example = ((index % count) + count) % count;
  const sample = await sampleOf(example);
  const laying = layingOf(example, sample);
  byId("sample").value = example;
  document.body.dataset.sample = example;
  byId("about").textContent = about(laying);
  return change({ example, laying, original: laying?.read(sample), spec: null, interventions: [], ...more });
}

/** Interventions that this machine can't take, on a smaller tape say, are dropped. */
function possible(interventions) {
  const slots = state.slots ?? machines[0]?.slots;
  return interventions.filter((each) => {
    try {
      checkInterventions([each], machines[0], slots);
      return true;
    } catch {
      return false;
    }
  });
}

/** Show the next read head with the write head of the same number. */
function nextHeads() {
  const kinds = ["read", "write"].map((kind) => state.run.heads.flatMap((head, n) => (head.kind === kind ? [n] : [])));
  const most = Math.max(...kinds.map((heads) => heads.length));
  const now = Math.max(...kinds.map((heads) => heads.indexOf(state.heads.find((n) => heads.includes(n)))));
  actions.show(kinds.filter((heads) => heads.length).map((heads) => heads[((now + 1) % most) % heads.length]));
}

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  readColours();
  if (state.run) {
    buildTry();
    redraw();
  }
}

let silence = 0;

/** Show a message beside the buttons for a while. */
function say(words) {
  byId("said").textContent = words;
  clearTimeout(silence);
  silence = setTimeout(() => (byId("said").textContent = ""), 4000);
}

async function link() {
  writeAddress();
  await new Promise((done) => setTimeout(done, 300));
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied.");
  } catch {
    say("The link is in the address bar.");
  }
}

async function film() {
  play(false);
  const step = state.step;
  byId("save-gif").disabled = true;
  await saveFilm(go, (share) => say(`Creating the GIF: ${Math.round(100 * share)} %`));
  byId("save-gif").disabled = false;
  say("GIF saved.");
  go(step);
}

/** Follow an address that was typed or opened. */
async function address() {
  if (location.hash === lastFragment) return;
  const found = wanted(location.hash);
  const slots = found.slots ?? DOCUMENT.slots ?? null;
  const kept = await choose(found.example ?? state.example, { slots: machines.length ? slots : null });
  if (found.spec && state.laying && kept) await change({ spec: found.spec });
  if (found.interventions?.length && machines.length) await change({ interventions: possible(found.interventions) });
  const { heads } = found;
  if (heads?.every((index) => index >= 0 && index < state.run.heads.length)) actions.show(heads);
  if (found.onlyUsed === false) actions.narrow(false);
  if (found.step !== null) go(found.step, true);
}

Object.assign(actions, {
  go, play, choose, nextHeads, theme, link, film, address,
  picture: savePicture,
  edit: (spec, again = false) => change({ spec }, again),
  tape: (slots) => change({ slots: slots === machines[0].slots && DOCUMENT.slots === null ? null : slots, interventions: [] }),
  narrow(onlyUsed) {
    state.onlyUsed = byId("used").checked = onlyUsed;
    redraw();
    writeAddress();
  },
  show(heads) {
    Object.assign(state, { heads, headsByHand: true });
    redraw();
    writeAddress();
  },
  intervene: (interventions) => change({ interventions: possible(interventions) }, false),
  force: (head, program) => {
    const others = state.interventions.filter((each) => !(each.kind === "ForceProgram" && each.head === head && each.start === state.step));
    actions.intervene([...others, { kind: "ForceProgram", head, program, start: state.step }]);
  },
});

// --- beginning -------------------------------------------------------------------------------------------------------

function about(laying) {
  const { programs, parts } = DOCUMENT;
  const task = laying ? `${laying.about} ` : "";
  const means = programs ? `A program is a set of weights that steers a head over the tape. Each head stores ${programs} of them and, at every step, uses one or a weighted mix.` : "This machine stores no programs: each head has one set of weights, used at every step.";
  const named = parts.map((name) => ({ state: "state network", output: "output layer" })[name]).join(" and the ");
  return task + means + (named && ` So ${parts.length > 1 ? "do" : "does"} the ${named}.`);
}

async function begin() {
  byId("title").textContent = DOCUMENT.title;
  byId("facts").textContent = DOCUMENT.facts.join(" · ");
  byId("message").hidden = false;
  theme(matchMedia("(prefers-color-scheme: dark)").matches);
  machines.push(...(await Promise.all(DOCUMENT.machines.map(unpackMachine))));
  DOCUMENT.sequences.forEach(({ name }, index) => byId("sample").append(new Option(name, index)));
  state.canReach = machines.length > 0;
  state.slots = DOCUMENT.slots ?? null;
  byId("link").hidden = !addressable();
  byId("header").hidden = byId("main").hidden = false; // laid out, but not visible before it is ready
  const opened = location.hash.length > 1;
  if (opened) await address();
  if (!state.run) await choose(0);
  listen();
  byId("message").hidden = true;
  document.body.dataset.ready = "true";
  // It opens playing, unless the address names a step or the user prefers reduced motion.
  if (!opened && !matchMedia("(prefers-reduced-motion: reduce)").matches) play(true);
}

begin().catch((error) => {
  byId("header").hidden = byId("main").hidden = true;
  byId("message").hidden = false;
  byId("message").classList.remove("waiting");
  byId("message").textContent = "DecompressionStream" in window ? `This page could not be shown: ${error.message}` : "This page needs a browser of 2023 or later.";
  throw error;
});
