/* Intervene: what a person changes in the machine while it runs, and its effect. */

import { distance, answersChanged } from "./rows.js";
import { choosers } from "./execution.js";
import { byId, element } from "./page-data.js";
import { actions, state } from "./state.js";

/** The kinds of intervention, each with its fields and its text. Steps count from 1 here, as everywhere on the page. */
const DEEDS = {
  ForceProgram: { title: "force a program", programs: true, fields: ["head", "program", "lasting"], say: (i) => `from step ${i.start + 1}${i.stop ? ` to ${i.stop}` : ""} ${i.head} uses only program ${i.program + 1}` },
  ForbidProgram: { title: "forbid a program", programs: true, fields: ["head", "program", "lasting"], say: (i) => `from step ${i.start + 1}${i.stop ? ` to ${i.stop}` : ""} ${i.head} never uses program ${i.program + 1}` },
  EraseSlot: { title: "erase a slot", fields: ["slot"], say: (i) => `before step ${i.step + 1} slot ${i.slot} is erased` },
  SwapSlots: { title: "swap two slots", fields: ["first", "second"], say: (i) => `before step ${i.step + 1} slots ${i.first} and ${i.second} are swapped` },
  MoveHead: { title: "move a head", fields: ["head", "by"], say: (i) => `at step ${i.step + 1} ${i.head} is moved by ${i.by > 0 ? "+" : "−"}${Math.abs(i.by)}` },
  PlaceHead: { title: "place a head", fields: ["head", "slot"], say: (i) => `at step ${i.step + 1} ${i.head} is placed on slot ${i.slot}` },
};

const chosen = { kind: "ForceProgram", head: "", program: 0, slot: 0, first: 0, second: 1, by: 1, lasting: "on" };

const hasPrograms = () => state.run.mixes.length > 0;

/** The intervention of the form, as the machine takes it. */
function deed() {
  const { kind } = chosen;
  const own = Object.fromEntries(DEEDS[kind].fields.filter((name) => name !== "lasting").map((name) => [name, chosen[name]]));
  const when = DEEDS[kind].programs ? { start: state.step, ...(chosen.lasting === "once" ? { stop: state.step + 1 } : {}) } : { step: state.step };
  return { kind, ...own, ...when };
}

function options(name, label, values, change = () => {}) {
  const select = element("select", { "aria-label": label }, ...values.map(([value, text]) => new Option(text, value, false, String(chosen[name]) === String(value))));
  select.addEventListener("change", () => {
    chosen[name] = /^-?\d+$/.test(select.value) ? Number(select.value) : select.value;
    change();
  });
  return select;
}

function number(name, label, low, high) {
  const field = element("input", { type: "number", min: low, max: high, value: chosen[name], "aria-label": label });
  field.dataset.field = name;
  field.addEventListener("change", () => {
    chosen[name] = Math.max(low, Math.min(high, Math.round(Number(field.value)) || 0));
    field.value = chosen[name];
  });
  return field;
}

/** The form: a sentence to complete. */
export function buildReach() {
  byId("reach").hidden = !state.canReach;
  if (!state.canReach) return;
  const { run } = state;
  if (!hasPrograms() && DEEDS[chosen.kind].programs) chosen.kind = "EraseSlot";
  const names = (DEEDS[chosen.kind].programs ? choosers(run) : run.heads).map(({ name }) => name);
  if (!names.includes(chosen.head)) chosen.head = (run.heads[state.heads[0]] ?? run.heads[0]).name;
  const kinds = Object.entries(DEEDS).filter(([, { programs }]) => !programs || hasPrograms()).map(([kind, { title }]) => [kind, title]);
  const programs = Array.from({ length: run.mixes[0]?.columns ?? 0 }, (_, p) => [p, `program ${p + 1}`]);
  const top = run.slots - 1;
  const fields = {
    head: () => options("head", "Which head", names.map((name) => [name, name])),
    program: () => options("program", "Which program", programs),
    lasting: () => options("lasting", "How long", [["on", "from this step on"], ["once", "at this step only"]]),
    slot: () => number("slot", "Which slot", 0, top),
    first: () => number("first", "One slot", 0, top),
    second: () => number("second", "The other slot", 0, top),
    by: () => number("by", "By how many slots", -top, top),
  };
  const doIt = element("button", { type: "button", class: "primary", onclick: () => actions.intervene([...state.interventions, deed()]) }, "Apply");
  byId("reach-form").replaceChildren(
    element("span", {}, "At step ", element("b", { id: "reach-step" }, String(state.step + 1)), ":"),
    options("kind", "What to do", kinds, buildReach),
    ...DEEDS[chosen.kind].fields.map((name) => fields[name]()),
    doIt,
  );
  const items = state.interventions.map((each, index) => {
    const away = () => actions.intervene(state.interventions.filter((_, n) => n !== index));
    const words = DEEDS[each.kind].say(each);
    const when = each.start ?? each.step;
    const seek = element("button", { type: "button", class: "small", onclick: () => actions.go(when) }, words);
    return element("li", {}, seek, element("button", { type: "button", class: "small away", "aria-label": `Undo: ${words}`, onclick: away }, "×"));
  });
  byId("reach-list").replaceChildren(...items);
  byId("reach-found").textContent = state.interventions.length ? found() : "";
}

/** The effect of the interventions, in a sentence or two. */
function found() {
  const { run, other } = state;
  if (!other) return "";
  let changed = 0, first = -1;
  for (let t = 0; t < run.steps; t++) {
    const now = answersChanged(run, other, t);
    changed += now;
    if (now && first < 0) first = t;
  }
  const unit = run.choice ? "answers" : "output bits";
  const answers = changed ? `${changed} of ${run.asked} ${unit} change, the first at step ${first + 1}.` : "No output changes.";
  const heads = run.heads.flatMap((head) => {
    const twin = other.heads.find(({ name }) => name === head.name);
    let steps = 0;
    for (let t = 0; t < run.steps; t++) steps += distance(head, twin, t) > 0.5;
    return steps ? [`${head.name} (${steps} step${steps === 1 ? "" : "s"})`] : [];
  });
  const moved = heads.length ? ` Heads on different slots: ${heads.slice(0, 4).join(", ")}${heads.length > 4 ? " and others" : ""}.` : " No head is on a different slot.";
  return (run.asked ? answers : "") + moved;
}

export function markReach() {
  const place = byId("reach-step");
  if (place) place.textContent = state.step + 1;
}

/** A click on the tape enters the slot in the form. */
export function nameSlot(slot) {
  const { fields } = DEEDS[chosen.kind];
  const name = ["slot", "first", "second"].find((each) => fields.includes(each));
  if (!name) return;
  if (name === "first" && chosen.first !== slot) chosen.second = chosen.first;
  chosen[name] = slot;
  buildReach();
}
