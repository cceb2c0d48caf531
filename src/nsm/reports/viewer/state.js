/* What the page shows now. Only viewer.js changes it; other files ask it to, through `actions`. */

export const state = {
  example: 0,
  spec: null, // the edited example, null: not edited
  slots: null, // size of the tape, null: the machine's own
  interventions: [],
  step: 0,
  playing: false,
  speed: 10,
  heads: [], // indices of those shown
  headsByHand: false, // whether the user chose them
  onlyUsed: true,
  run: null,
  other: null, // what it is compared with
  runName: "", // their names when shown beside each other
  otherName: "",
  laying: null, // how its task is laid out; null where the page does not know
  original: null, // the spec of the unedited example
  canReach: false, // whether the machine is in the page
};

/** edit(spec), go(step), play(on), choose(example), intervene(list), show(heads), tape(slots): set by viewer.js. */
export const actions = {};

/** The stretch of the tape that is shown. The tape is a ring: a stretch may wrap around its end. */
export function shownSlots() {
  const { slots, used } = state.run;
  let [first, count] = state.onlyUsed ? used : [0, slots];
  if (state.onlyUsed && state.other && state.other.slots === slots) {
    const [start, size] = state.other.used;
    const end = Math.max(first + count, start + size);
    first = Math.min(first, start);
    count = end - first;
    if (count >= slots) [first, count] = [0, slots];
  }
  return { count, slot: (place) => (first + place + slots) % slots };
}
