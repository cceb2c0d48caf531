/* The tape at one step: what its slots hold, what heads read above it and write below it. */

import { FONT, figure, fit, picture, stretch, within } from "./canvas.js";
import { colours, ramp } from "./colours.js";
import { strongest } from "./execution.js";
import { shownSlots, state } from "./state.js";

const LANE = 34, GAP = 10, AXIS = 18;

/** The heads that are shown of a run: those chosen, by their names in another machine's. */
export function shownHeads(run) {
  if (run === state.run) return run.heads.filter((_, index) => state.heads.includes(index));
  if (run.ownHeads) return run.heads.filter((_, index) => run.ownHeads.includes(index));
  const names = state.run.heads.filter((_, index) => state.heads.includes(index)).map((head) => head.name);
  return run.heads.filter((head) => names.includes(head.name));
}

/** From top to bottom: a lane per read head, the slots' contents, a lane per write head, slot numbers. */
export function tapePlan(run) {
  const heads = shownHeads(run);
  const [reads, writes] = ["read", "write"].map((kind) => heads.filter((head) => head.kind === kind));
  const width = run.memory ? run.memory.width : 0;
  const contents = width ? Math.min(220, Math.max(150, width * 9)) : 16;
  const top = reads.length * (LANE + GAP);
  return { reads, writes, width, top, contents, height: top + contents + writes.length * (LANE + GAP) + AXIS };
}

/** The position of a number on the colour ramp: its square root, so that small numbers stay visible. */
const shadeOf = (value, limit) => 0.5 + 0.5 * Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value) / limit));

export function drawTape(canvas, run, step, size) {
  const plan = tapePlan(run);
  const { context, width } = fit(canvas, plan.height, size);
  drawTapeOn(context, width, plan, run, step);
}

export function drawTapeOn(context, width, plan, run, step) {
  const { count, slot } = shownSlots();
  const cell = width / count;
  if (plan.width) {
    const start = step * run.slots * plan.width;
    const { data, limit } = run.memory;
    const shade = (place, m) => shadeOf(data[start + slot(place) * plan.width + m], limit);
    stretch(context, picture(count, plan.width, ramp("minus", "zero", "plus"), shade), 0, plan.top, width, plan.contents);
  }
  context.strokeStyle = colours.grid;
  context.lineWidth = 1;
  context.strokeRect(0.5, plan.top + 0.5, width - 1, plan.contents - 1);
  plan.reads.forEach((head, k) => drawHead(context, head, k * (LANE + GAP), cell, plan, true, step));
  const below = plan.top + plan.contents + GAP;
  plan.writes.forEach((head, k) => drawHead(context, head, below + k * (LANE + GAP), cell, plan, false, step));
  context.fillStyle = colours.soft;
  context.font = `11px ${FONT}`;
  context.textBaseline = "bottom";
  context.textAlign = "center";
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((n) => n * cell >= 34) ?? run.slots;
  for (let place = 0; place < count; place++) {
    const x = Math.max(8, (place + 0.5) * cell);
    if (slot(place) % every === 0 && x < width - 8) context.fillText(slot(place), x, plan.height);
  }
}

/** A head's weights as bars that grow towards the tape, and an arrow on the slot it is most on. */
function drawHead(context, head, y, cell, plan, above, step) {
  const { count, slot } = shownSlots();
  const width = cell * count;
  context.fillStyle = colours["cell-none"];
  context.fillRect(0, y, width, LANE);
  context.fillStyle = colours[head.kind];
  let most = 0;
  for (let place = 0; place < count; place++) {
    const weight = head.address.at(step, slot(place));
    const size = weight * LANE;
    if (size > 0.2) context.fillRect(place * cell, above ? y + LANE - size : y, Math.max(1, cell - 0.5), size);
    if (weight > head.address.at(step, slot(most))) most = place;
  }
  const weight = head.address.at(step, slot(most));
  const x = (most + 0.5) * cell;
  context.font = `600 11px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = x > 90 ? "left" : "right";
  context.fillText(head.name, x > 90 ? 5 : width - 5, y + LANE / 2);
  if (weight < 0.05) return;
  const size = Math.max(5, Math.min(7, cell));
  const tip = above ? y + LANE + GAP : y - GAP;
  const back = above ? tip - GAP + 1 : tip + GAP - 1;
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

/** The slot under the pointer. */
export function slotUnder(canvas, event) {
  const { count, slot } = shownSlots();
  return slot(Math.floor(within(canvas, event)[0] * count));
}

/** A description of the tape under the pointer. */
export function tellTape(canvas, run, event) {
  const { step } = state;
  const plan = tapePlan(run);
  const slot = slotUnder(canvas, event);
  const lines = [`slot ${slot}`];
  const depth = within(canvas, event)[1] * plan.height - plan.top;
  if (plan.width && depth >= 0 && depth < plan.contents) {
    const m = Math.min(plan.width - 1, Math.floor((depth / plan.contents) * plan.width));
    lines.push(`number ${m + 1}: ${run.memory.data[(step * run.slots + slot) * plan.width + m].toFixed(3)}`);
  }
  for (const head of [...plan.reads, ...plan.writes]) lines.push(`${head.name}: ${figure(head.address.at(step, slot))}`);
  return lines.join("\n");
}

/** The read head and the write head in front: of those shown, the first of each kind. */
export const frontHeads = (run) => ["read", "write"].flatMap((kind) => shownHeads(run).filter((head) => head.kind === kind).slice(0, 1));

/** Where a head is, in words: "slot 12", "slot 12 (0.61)", or "no slot in particular". */
export function whereabouts(head, step) {
  const { slot, weight } = strongest(head, step);
  if (weight <= 0.05) return "no slot in particular";
  return `slot ${slot}${weight < 0.95 ? ` (${weight.toFixed(2)})` : ""}`;
}
