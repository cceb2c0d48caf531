/* The colours of the style sheet, for canvases. */

export let colours = {};

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = new Proxy({}, { get: (known, name) => (known[name] ??= style.getPropertyValue(`--${name}`).trim()) });
  ramps.clear();
}

export const channelsOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

const ramps = new Map();

/** 256 colours, interpolated evenly between those named. */
export function ramp(...names) {
  const key = names.join();
  if (!ramps.has(key)) ramps.set(key, passing(names.map((name) => channelsOf(colours[name]))));
  return ramps.get(key);
}

function passing(stops) {
  const table = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const from = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) table[3 * i + c] = stops[from][c] + (place - from) * (stops[from + 1][c] - stops[from][c]);
  }
  return table;
}

export const programColour = (index) => colours[`program-${(index % 6) + 1}`];

/** The colour of a number: off at 0, on at 1, another one below 0. */
export function mixed(value) {
  const [from, to] = [channelsOf(colours["cell-off"]), channelsOf(colours[value < 0 ? "cell-negative" : "cell-on"])];
  const share = Math.min(1, Math.abs(value));
  return `rgb(${from.map((c, i) => Math.round(c + share * (to[i] - c))).join(" ")})`;
}
