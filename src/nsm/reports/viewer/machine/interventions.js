// Changes to a machine while it runs: nsm/interventions.py, with the same kinds and fields. An intervention is
//
//   {kind: "ForceProgram", head, program, start, stop}     a head runs one program only
//   {kind: "ForbidProgram", head, program, start, stop}    a head runs any but one
//   {kind: "EraseSlot", slot, step}                        a slot gets its initial content before a step
//   {kind: "SwapSlots", first, second, step}               two slots swap their contents before a step
//   {kind: "MoveHead", head, by, step}                     at a step a head is `by` slots further than it would be
//   {kind: "PlaceHead", head, slot, step}                  at a step a head is on one slot, with its whole weight
//   {kind: "SilenceNoise", start, stop}                    no noise
//
// Steps, slots and programs count from 0; heads are named "read 1", "write 1", … as in `Machine.heads`. "state" and
// "output" name the programs of the state network and the output layer, if these are in `Machine.parts`. With a start and a
// stop, it applies from `start` to before `stop`, by default from the first step to the end.

import { zeros } from "./algebra.js";

const whole = (low, high) => (value) => Number.isInteger(value) && value >= low && value < high;

/** The fields of each kind, with their valid values in a machine on a tape of `slots` slots. */
function fieldsOf(kind, machine, slots) {
  const head = (value) => machine.heads.some(({ name }) => name === value);
  const chooser = (value) => head(value) || machine.parts.includes(value);
  const program = whole(0, machine.programs), slot = whole(0, slots), step = whole(0, Infinity);
  const span = { start: (value = 0) => step(value), stop: (value = null) => value === null || step(value) };
  const known = {
    ForceProgram: { head: chooser, program, ...span },
    ForbidProgram: { head: chooser, program, ...span },
    EraseSlot: { slot, step },
    SwapSlots: { first: slot, second: slot, step },
    MoveHead: { head, by: Number.isInteger, step },
    PlaceHead: { head, slot, step },
    SilenceNoise: span,
  };
  return Object.hasOwn(known, kind) ? known[kind] : null;
}

/** Throws an Error unless these interventions are valid for a machine on a tape of `slots` slots. */
export function checkInterventions(interventions, machine, slots) {
  for (const intervention of interventions) {
    const fields = fieldsOf(intervention.kind, machine, slots);
    if (!fields) throw new Error(`there is no intervention of kind ${JSON.stringify(intervention.kind)}`);
    for (const [name, right] of Object.entries(fields)) {
      if (right(intervention[name])) continue;
      throw new Error(`${intervention.kind}.${name} can't be ${JSON.stringify(intervention[name])} here`);
    }
  }
}

/** The interventions of one step, in the form that `Machine.step` needs. */
export class Touch {
  constructor(interventions, step, machine) {
    const now = ({ step: at, start = 0, stop = null }) => {
      return at === undefined ? start <= step && (stop === null || step < stop) : at === step;
    };
    this.active = interventions.filter(now);
    this.machine = machine;
  }

  /** Those of some kinds. */
  of(...kinds) {
    return this.active.filter(({ kind }) => kinds.includes(kind));
  }

  /** The state that the step begins with. Only what stands on the tape changes: usage, links and heads stay. */
  before(state) {
    const edits = this.of("EraseSlot", "SwapSlots");
    if (!edits.length) return state;
    const { width } = this.machine.memory, memory = state.memory.memory.slice();
    const row = (tape, slot) => tape.slice(slot * width, (slot + 1) * width);
    for (const { kind, slot, first, second } of edits) {
      if (kind === "EraseSlot") {
        memory.set(row(this.machine.memory.blank(memory.length / width), slot), slot * width);
      } else {
        const kept = row(memory, first);
        memory.set(row(memory, second), first * width);
        memory.set(kept, second * width);
      }
    }
    return { ...state, memory: { ...state.memory, memory } };
  }

  noise(noise) {
    return this.of("SilenceNoise").length ? {} : noise;
  }

  /** Which programs a control head, by its number, or a part may run, null if any. */
  allowed(chooser) {
    const mine = this.of("ForceProgram", "ForbidProgram").filter(({ head }) => this.machine.chooser(head) === chooser);
    if (!mine.length) return null;
    const allowed = Array.from({ length: this.machine.programs }, (_, p) => {
      return mine.every(({ kind, program }) => (kind === "ForceProgram") === (program === p));
    });
    if (!allowed.includes(true)) throw new Error(`${mine[0].head} has no program left to run`);
    return allowed;
  }

  /** The address that replaces the one a head computed. */
  place(kind, index, address) {
    const slots = address.length;
    for (const move of this.of("MoveHead", "PlaceHead")) {
      const head = this.machine.head(move.head);
      if (head.kind !== kind || head.index !== index) continue;
      const moved = zeros(slots);
      address.forEach((share, i) => {
        moved[move.kind === "PlaceHead" ? move.slot : (((i + move.by) % slots) + slots) % slots] += share;
      });
      address = moved;
    }
    return address;
  }
}
