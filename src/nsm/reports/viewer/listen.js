/* Pointer, buttons and keys. */

import { byId } from "./page-data.js";
import { drawPlayhead, drawRows, tellRow } from "./rows.js";
import { actions, state } from "./state.js";
import { nameSlot } from "./reach.js";
import { slotUnder, tellTape } from "./tape.js";
import { within } from "./canvas.js";

function tip(event, text) {
  const place = byId("tip");
  place.hidden = !text;
  if (!text) return;
  place.textContent = text;
  const { width, height } = place.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
  const top = event.clientY + 16 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 16;
  place.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

function listenToRows() {
  const place = byId("rows");
  let dragging = null;
  const seek = (event) => actions.go(Math.floor(within(dragging, event)[0] * state.run.steps), true);
  place.addEventListener("pointerdown", (event) => {
    if (event.target.tagName !== "CANVAS") return;
    dragging = event.target;
    place.setPointerCapture(event.pointerId);
    seek(event);
  });
  place.addEventListener("pointermove", (event) => {
    if (dragging) seek(event);
    tip(event, tellRow(dragging ?? event.target, event));
  });
  for (const end of ["pointerup", "pointercancel"]) place.addEventListener(end, () => (dragging = null));
  place.addEventListener("pointerleave", (event) => tip(event, ""));
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    drawRows();
    drawPlayhead();
    actions.go(state.step);
  }).observe(place);
}

function listenToTape(id, run) {
  const canvas = byId(id);
  canvas.addEventListener("pointermove", (event) => tip(event, run() ? tellTape(canvas, run(), event) : ""));
  canvas.addEventListener("pointerleave", (event) => tip(event, ""));
  canvas.addEventListener("click", (event) => state.canReach && nameSlot(slotUnder(canvas, event)));
}

export function listen() {
  listenToRows();
  listenToTape("tape", () => state.run);
  listenToTape("tape-2", () => state.other);
  const seek = (id, to) => byId(id).addEventListener("click", () => actions.go(to(), true));
  seek("first", () => 0);
  seek("back", () => state.step - 1);
  seek("forward", () => state.step + 1);
  seek("last", () => state.run.steps - 1);
  byId("slider").addEventListener("input", (event) => actions.go(Number(event.target.value), true));
  byId("play").addEventListener("click", () => actions.play(!state.playing));
  byId("speed").addEventListener("change", (event) => (state.speed = Number(event.target.value)));
  byId("used").addEventListener("change", (event) => actions.narrow(event.target.checked));
  byId("sample").addEventListener("change", (event) => actions.choose(Number(event.target.value)));
  byId("theme").addEventListener("click", () => actions.theme(document.documentElement.dataset.theme !== "dark"));
  byId("link").addEventListener("click", actions.link);
  byId("save-png").addEventListener("click", actions.picture);
  byId("save-gif").addEventListener("click", actions.film);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => actions.theme(event.matches));
  window.addEventListener("hashchange", actions.address);
  listenToKeys();
}

function nextWrong() {
  const { run } = state;
  for (let ahead = 1; ahead <= run.steps; ahead++) {
    const t = (state.step + ahead) % run.steps;
    if (run.wrongAt(t)) return actions.go(t, true);
  }
}

function listenToKeys() {
  const help = byId("help");
  const showHelp = (open) => {
    if (open) help.showModal();
    byId("help-button").setAttribute("aria-expanded", open);
  };
  byId("help-button").addEventListener("click", () => showHelp(true));
  help.addEventListener("close", () => showHelp(false));
  const keys = {
    " ": () => actions.play(!state.playing),
    ArrowLeft: (event) => actions.go(state.step - (event.shiftKey ? 10 : 1), true),
    ArrowRight: (event) => actions.go(state.step + (event.shiftKey ? 10 : 1), true),
    Home: () => actions.go(0, true),
    End: () => actions.go(state.run.steps - 1, true),
    d: () => actions.go(state.run.decoding, true),
    e: nextWrong,
    h: () => actions.nextHeads(),
    "[": () => actions.choose(state.example - 1),
    "]": () => actions.choose(state.example + 1),
    "?": () => showHelp(true),
  };
  document.addEventListener("keydown", (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!(key in keys) || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    // A field or a menu keeps its keys, and a button its space bar.
    const { tagName, type } = event.target;
    if (tagName === "SELECT" || tagName === "TEXTAREA" || (tagName === "INPUT" && type !== "range" && type !== "checkbox")) return;
    if (key === " " && (tagName === "BUTTON" || tagName === "INPUT")) return;
    event.preventDefault();
    keys[key](event);
  });
}
