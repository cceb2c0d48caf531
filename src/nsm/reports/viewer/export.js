/* A step as PNG, the whole sequence as an animated GIF, drawn on one canvas. */

import { FONT } from "./canvas.js";
import { colours } from "./colours.js";
import { GifWriter } from "./gif.js";
import { DOCUMENT, byId, element } from "./page-data.js";
import { drawRowOn, timeRows } from "./rows.js";
import { state } from "./state.js";
import { drawTapeOn, tapePlan } from "./tape.js";

const WIDTH = 960, EDGE = 24, LABEL = 120, MOST_FRAMES = 240;

const plainText = (id) => byId(id).innerText.replace(/\s+/g, " ").trim();

/** Everything that does not change from step to step, and where the rest goes. */
function stage() {
  const runs = state.other ? [[state.run, state.runName], [state.other, state.otherName]] : [[state.run, ""]];
  const plans = runs.map(([run, name]) => ({ run, name, plan: tapePlan(run) }));
  const rows = timeRows;
  const inner = WIDTH - 2 * EDGE;
  let y = EDGE + 66;
  for (const each of plans) {
    each.y = y + (each.name ? 18 : 0);
    y = each.y + each.plan.height + 14;
  }
  const tops = rows.map((row) => {
    const top = y;
    y += row.height + 5;
    return top;
  });
  const height = y + EDGE - 5;
  const canvas = element("canvas", { width: WIDTH, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const still = element("canvas", { width: WIDTH, height });
  const ground = still.getContext("2d");
  ground.fillStyle = colours.card;
  ground.fillRect(0, 0, WIDTH, height);
  rows.forEach((row, n) => {
    ground.save();
    ground.translate(EDGE + LABEL, tops[n]);
    drawRowOn(row, { context: ground, width: inner - LABEL, height: row.height });
    ground.restore();
    ground.fillStyle = colours.soft;
    ground.font = `11px ${FONT}`;
    ground.textBaseline = "middle";
    ground.fillText(row.label, EDGE, tops[n] + row.height / 2, LABEL - 8);
  });
  return { canvas, context, still, plans, inner, rowsFrom: tops[0] ?? y, rowsTo: height - EDGE };
}

/** The page's pictures of the step it is at. */
function drawStage({ context, still, plans, inner, rowsFrom, rowsTo }) {
  context.drawImage(still, 0, 0);
  context.fillStyle = colours.ink;
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.font = `600 17px ${FONT}`;
  context.fillText(DOCUMENT.title, EDGE, EDGE + 14, inner);
  context.font = `13px ${FONT}`;
  context.fillText(`${plainText("story-step")}. ${plainText("story-phase")}`, EDGE, EDGE + 36, inner);
  context.fillText(`${plainText("story-heads")} ${plainText("story-answer")}`, EDGE, EDGE + 54, inner);
  for (const { run, name, plan, y } of plans) {
    context.fillStyle = colours.soft;
    context.font = `12px ${FONT}`;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    if (name) context.fillText(name, EDGE, y - 5);
    context.save();
    context.translate(EDGE, y);
    drawTapeOn(context, inner, plan, run, state.step);
    context.restore();
  }
  const x = EDGE + LABEL + ((state.step + 0.5) / state.run.steps) * (inner - LABEL);
  context.fillStyle = colours.accent;
  context.fillRect(x - 1, rowsFrom, 2, rowsTo - rowsFrom);
}

const fileName = (suffix) => `${DOCUMENT.title.replace(/[^\w]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "machine"}.${suffix}`;

function download(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export async function savePicture() {
  const drawn = stage();
  drawStage(drawn);
  const blob = await new Promise((done) => drawn.canvas.toBlob(done, "image/png"));
  download(blob, fileName("png"));
}

/** All steps, or every n-th of a long run; `show(step)` moves the page to a step, `tell(share)` reports progress. */
export async function saveFilm(show, tell) {
  const { steps } = state.run;
  const every = Math.ceil(steps / MOST_FRAMES);
  const drawn = stage();
  const { width, height } = drawn.canvas;
  const frame = (t) => {
    show(t);
    drawStage(drawn);
    return drawn.context.getImageData(0, 0, width, height).data;
  };
  const film = new GifWriter(width, height, [0, 0.3, 0.6, 1].map((share) => frame(Math.round(share * (steps - 1)))));
  for (let t = 0; t < steps; t += every) {
    const last = t + every >= steps;
    film.add(frame(t), last ? 200 : Math.max(4, Math.round(100 / Math.min(20, state.speed))));
    tell((t + 1) / steps);
    await new Promise((next) => setTimeout(next));
  }
  download(new Blob([film.finish()], { type: "image/gif" }), fileName("gif"));
}
