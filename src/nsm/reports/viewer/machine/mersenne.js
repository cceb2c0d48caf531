// The Mersenne Twister as torch's CPU generator uses it: the same seed gives the same numbers.

const LENGTH = 624, MIDDLE = 397;

export class Mersenne {
  constructor(seed) {
    this.state = new Uint32Array(LENGTH);
    this.state[0] = seed % 2 ** 32;
    for (let i = 1; i < LENGTH; i++) {
      const before = this.state[i - 1] ^ (this.state[i - 1] >>> 30);
      this.state[i] = Math.imul(1812433253, before) + i;
    }
    this.next = LENGTH;
  }

  twist() {
    const { state } = this;
    for (let i = 0; i < LENGTH; i++) {
      const bits = (state[i] & 0x80000000) | (state[(i + 1) % LENGTH] & 0x7fffffff);
      state[i] = state[(i + MIDDLE) % LENGTH] ^ (bits >>> 1) ^ (bits & 1 ? 0x9908b0df : 0);
    }
    this.next = 0;
  }

  /** 32 random bits. */
  bits() {
    if (this.next === LENGTH) this.twist();
    let y = this.state[this.next++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  /** A number of float32, uniform from `low` up to `high`. */
  uniform(low, high) {
    const share = (this.bits() & 0xffffff) / 2 ** 24;
    low = Math.fround(low);
    return Math.fround(Math.fround(share * Math.fround(Math.fround(high) - low)) + low);
  }
}
