/* The address of what is shown: #step=44&sequence=2&input=…&slots=64&do=… A link opens exactly that. */

import { DOCUMENT } from "./page-data.js";
import { state } from "./state.js";

const MOST_SIGNS = 60_000;

/** JSON as characters that an address may have. */
function encoded(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function decoded(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
}

/** What follows the # of an address. */
export function fragment() {
  const parts = new URLSearchParams();
  parts.set("step", state.step + 1);
  if (state.example) parts.set("sequence", state.example + 1);
  if (state.spec) parts.set("input", encoded(state.spec));
  if (state.slots !== (DOCUMENT.slots ?? null)) parts.set("slots", state.slots);
  if (state.interventions.length) parts.set("do", encoded(state.interventions));
  if (state.headsByHand) parts.set("heads", state.heads.map((index) => index + 1).join("."));
  if (!state.onlyUsed) parts.set("tape", "whole");
  return parts.toString();
}

const natural = (text) => (/^\d{1,7}$/.test(text ?? "") ? Number(text) : null);

/** What an address asks for; invalid parts are ignored. */
export function wanted(hash) {
  const text = hash.replace(/^#/, "").slice(0, MOST_SIGNS);
  if (/^\d+$/.test(text)) return { step: Number(text) - 1 };
  const parts = new URLSearchParams(text);
  const json = (name) => {
    try {
      return parts.has(name) ? decoded(parts.get(name)) : null;
    } catch {
      return null;
    }
  };
  const [step, sequence, slots] = ["step", "sequence", "slots"].map((name) => natural(parts.get(name)));
  const deeds = json("do");
  return {
    step: step === null ? null : step - 1,
    example: sequence === null ? null : Math.max(0, Math.min(DOCUMENT.sequences.length, sequence) - 1),
    spec: json("input"),
    slots: slots && slots <= 4096 ? slots : null,
    heads: parts.has("heads") ? parts.get("heads").split(".").map((each) => natural(each) - 1) : null,
    onlyUsed: parts.get("tape") !== "whole",
    interventions: Array.isArray(deeds) && deeds.length <= 50 && deeds.every((each) => each && typeof each === "object") ? deeds : [],
  };
}

/** Whether this page has an address of its own: one in a frame of a notebook has none. */
export const addressable = () => location.protocol !== "about:";

let pending = 0;
export let lastFragment = "";

/** Write the address, a moment after the last change: browsers allow few changes a second. */
export function writeAddress() {
  if (!addressable()) return;
  clearTimeout(pending);
  pending = setTimeout(() => {
    if (state.playing) return;
    lastFragment = `#${fragment()}`;
    history.replaceState(null, "", lastFragment);
  }, 250);
}
