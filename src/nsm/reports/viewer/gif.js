/* Animated GIF: one palette for all frames, and of each frame only the rectangle that changed. */

const COLOURS = 256;
const FINENESS = 3; // bits of each channel that are dropped when colours are counted

const bucketOf = (r, g, b) => ((r >> FINENESS) << 10) | ((g >> FINENESS) << 5) | (b >> FINENESS);

/** The most frequent colours of some frames, each the mean of similar ones. */
function commonColours(frames) {
  const sums = new Map();
  for (const points of frames) {
    for (let i = 0; i < points.length; i += 4) {
      const bucket = bucketOf(points[i], points[i + 1], points[i + 2]);
      const sum = sums.get(bucket);
      if (!sum) sums.set(bucket, [points[i], points[i + 1], points[i + 2], 1]);
      else {
        sum[0] += points[i];
        sum[1] += points[i + 1];
        sum[2] += points[i + 2];
        sum[3] += 1;
      }
    }
  }
  const common = [...sums.values()].sort((one, other) => other[3] - one[3]).slice(0, COLOURS);
  return common.map(([r, g, b, count]) => [r, g, b].map((sum) => Math.round(sum / count)));
}

export class GifWriter {
  /** `frames`: some of them, from which the colours of all are taken. */
  constructor(width, height, frames) {
    const palette = commonColours(frames);
    Object.assign(this, { width, height, palette, bytes: new Uint8Array(1 << 20), size: 0, before: null, found: new Map() });
    this.text("GIF89a");
    this.words(width, height);
    this.put(0xf7, 0, 0); // a palette of 256 colours for all frames
    this.put(...palette.flat(), ...new Array(3 * (COLOURS - palette.length)).fill(0));
    this.put(0x21, 0xff, 11);
    this.text("NETSCAPE2.0");
    this.put(3, 1, 0, 0, 0); // loop forever
  }

  put(...values) {
    if (this.size + values.length > this.bytes.length) {
      const larger = new Uint8Array(2 * this.bytes.length + values.length);
      larger.set(this.bytes);
      this.bytes = larger;
    }
    this.bytes.set(values, this.size);
    this.size += values.length;
  }

  text(words) {
    this.put(...Array.from(words, (sign) => sign.charCodeAt(0)));
  }

  words(...values) {
    this.put(...values.flatMap((value) => [value & 255, value >> 8]));
  }

  /** A frame of RGBA pixels, shown for the given hundredths of a second. */
  add(points, hundredths) {
    const { width, height } = this;
    const now = this.indexed(points);
    let [left, top, right, bottom] = [0, 0, width, height];
    if (this.before) {
      [left, top, right, bottom] = [width - 1, height - 1, 1, 1]; // nothing new: one point
      for (let y = 0, i = 0; y < height; y++) {
        for (let x = 0; x < width; x++, i++) {
          if (now[i] === this.before[i]) continue;
          if (x < left) left = x;
          if (y < top) top = y;
          if (x >= right) right = x + 1;
          if (y >= bottom) bottom = y + 1;
        }
      }
      right = Math.max(right, left + 1);
      bottom = Math.max(bottom, top + 1);
    }
    this.before = now;
    this.put(0x21, 0xf9, 4, 0x04); // frames stay: the next is drawn on top
    this.words(hundredths);
    this.put(0, 0, 0x2c);
    this.words(left, top, right - left, bottom - top);
    this.put(0, 8);
    const cut = new Uint8Array((right - left) * (bottom - top));
    for (let y = top, at = 0; y < bottom; y++, at += right - left) cut.set(now.subarray(y * width + left, y * width + right), at);
    this.compressed(cut);
  }

  /** The nearest colour of the palette. */
  nearest(r, g, b) {
    let best = 0, least = Infinity;
    this.palette.forEach((colour, index) => {
      const far = (colour[0] - r) ** 2 + (colour[1] - g) ** 2 + (colour[2] - b) ** 2;
      if (far < least) [best, least] = [index, far];
    });
    return best;
  }

  indexed(points) {
    const now = new Uint8Array(this.width * this.height);
    const whole = new Uint32Array(points.buffer, points.byteOffset, now.length);
    let last = -1, index = 0;
    for (let i = 0; i < now.length; i++) {
      if (whole[i] !== last) {
        last = whole[i];
        index = this.found.get(last);
        if (index === undefined) {
          index = this.nearest(points[4 * i], points[4 * i + 1], points[4 * i + 2]);
          this.found.set(last, index);
        }
      }
      now[i] = index;
    }
    return now;
  }

  /** LZW with codes of 9 to 12 bits, in blocks of at most 255 bytes. */
  compressed(indices) {
    const CLEAR = 256, END = 257;
    let block = [], held = 0, bits = 0, width = 9, next = 258;
    let known = new Map();
    const code = (value) => {
      held |= value << bits;
      for (bits += width; bits >= 8; bits -= 8, held >>>= 8) {
        block.push(held & 255);
        if (block.length === 255) this.flush(block), (block = []);
      }
    };
    code(CLEAR);
    let prefix = indices[0];
    for (let i = 1; i < indices.length; i++) {
      const key = (prefix << 8) | indices[i];
      const longer = known.get(key);
      if (longer !== undefined) {
        prefix = longer;
        continue;
      }
      code(prefix);
      prefix = indices[i];
      if (next < 4096) {
        known.set(key, next++);
        if (next > 1 << width && width < 12) width++;
      } else {
        code(CLEAR);
        [known, width, next] = [new Map(), 9, 258];
      }
    }
    code(prefix);
    if (next === 1 << width && width < 12) width++; // the reader has made one entry more by now
    code(END);
    if (bits) block.push(held & 255);
    if (block.length) this.flush(block);
    this.put(0);
  }

  flush(block) {
    this.put(block.length, ...block);
  }

  finish() {
    this.put(0x3b);
    return this.bytes.slice(0, this.size);
  }
}
