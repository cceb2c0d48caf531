// Algorithm 1, the machine itself: nsm/machine.py, in evaluation.
//
//   h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1})                   state network         controllers.js
//   ξ^p      = P_I(c_t);  W_t = NSM(ξ^p, M_p)                 per control head      programs.js
//   ξ        = c_t W_t                                        per control head
//   r_t      = memory(ξ, M)                                   data memory           ntm.js, lrua.js, dnc.js
//   y_t      = [c_t, r_t] W_out
//
// The weights of the state network and W_out may be read from program memories of their own, too.

import { joined, layerNorm } from "./algebra.js";
import { stateNetwork } from "./controllers.js";
import { DNCMemory } from "./dnc.js";
import { Touch, checkInterventions } from "./interventions.js";
import { LRUAMemory } from "./lrua.js";
import { NTMMemory } from "./ntm.js";
import { StaticLinear, StoredProgramLinear } from "./programs.js";

const MEMORIES = { NTM: NTMMemory, LRUA: LRUAMemory, DNC: DNCMemory };
const single = (vector) => Float32Array.from(vector);

export class Machine {
  /** `config` as in config.json; `tensors` are {name: {data, shape}} as in model.safetensors. */
  constructor(config, tensors) {
    const under = (prefix) => (name) => tensors[`${prefix}.${name}`];
    this.config = config;
    this.inputs = config.input_size;
    this.outputs = config.output_size;
    this.programs = config.programs?.count ?? 0;
    this.memory = new MEMORIES[config.memory.kind](config.memory, under("memory"));
    this.slots = config.memory.slots;
    const stored = (part) => (config.programs?.parts.includes(part) ? config.programs : null);
    const layer = (programs, tensor) => (programs ? new StoredProgramLinear(programs, tensor) : new StaticLinear(tensor));
    this.controller = stateNetwork(config.controller, stored("state"), under("controller"));
    this.interfaces = this.memory.heads.map((_, n) => layer(config.programs, under(`interfaces.${n}`)));
    this.norms = this.memory.heads.map((_, n) => [tensors[`norms.${n}.weight`], tensors[`norms.${n}.bias`]]);
    this.output = layer(stored("output"), under("output"));
    this.parts = ["state", "output"].filter(stored);
    this.initialRead = tensors.initial_read.data;
    this.heads = this.namedHeads();
  }

  /** Heads by kind, numbered from 1: {name, kind, index, control}. A DNC's read heads share a control head. */
  namedHeads() {
    return ["read", "write"].flatMap((kind) => {
      const controls = this.memory.heads.flatMap((head, n) => (head.kind === kind ? [n] : []));
      const count = this.config.memory[`${kind}_heads`] ?? controls.length;
      return Array.from({ length: count }, (_, index) => {
        return { name: `${kind} ${index + 1}`, kind, index, control: controls[Math.min(index, controls.length - 1)] };
      });
    });
  }

  head(name) {
    return this.heads.find((head) => head.name === name);
  }

  /** What runs programs, by the name of a head or a part: the number of the control head, or the part. */
  chooser(name) {
    return this.head(name)?.control ?? name;
  }

  /** The state before the first step, on a tape of any number of slots. States are never changed in place. */
  initialState(slots) {
    slots ??= this.slots;
    if (!Number.isInteger(slots) || slots < 1) throw new Error(`slots must be an integer of at least 1, was ${slots}`);
    return {
      step: 0,
      controller: this.controller.initialState(),
      memory: this.memory.initialState(slots),
      read: Float64Array.from(this.initialRead),
    };
  }

  /** One time step: x (I), `noise` {cell (n), programs: one (P) per control head} if any.
   *
   *  → output (O), logits; the next state; what each head did, {name, kind, address (N), programs (P) or null}; the
   *  programs (P) of the parts that are stored, {name, programs}; and the tape (N·M), the state's own. The step's number,
   *  which interventions go by, is the state's `step`. Noise for programs is one (P) per control head, then one per part. */
  step(x, state, interventions = [], noise = {}) {
    checkInterventions(interventions, this, state.memory.memory.length / this.memory.width);
    const touch = new Touch(interventions, state.step, this);
    state = touch.before(state);
    noise = touch.noise(noise);
    const drawn = (name) => noise.programs?.[this.interfaces.length + this.parts.indexOf(name)];
    const choice = (name) => [drawn(name), touch.allowed(name)];
    const [c, controller, stateMix] = this.controller.step(joined(x, state.read), state.controller, noise.cell, ...choice("state"));
    const mixes = [];
    const interfaces = this.interfaces.map((network, n) => {
      const [interface_, weights] = network.interface(c, noise.programs?.[n], touch.allowed(n));
      mixes.push(weights);
      return this.norms[n][0] ? layerNorm(interface_, ...this.norms[n]) : interface_;
    });
    const place = (kind, head, address) => touch.place(kind, head, address);
    const { read, state: memory, addresses } = this.memory.step(interfaces, state.memory, place);
    const [output, outputMix] = this.output.interface(joined(c, read), ...choice("output"));
    const ran = { state: stateMix, output: outputMix };
    return {
      output: single(output),
      state: { step: state.step + 1, controller, memory, read },
      heads: this.heads.map(({ name, kind, index, control }) => {
        const address = single(addresses[kind][index]);
        return { name, kind, address, programs: mixes[control] && single(mixes[control]) };
      }),
      parts: this.parts.map((name) => ({ name, programs: single(ran[name]) })),
      memory: memory.memory,
    };
  }

  /** A whole sequence, from its first step. `inputs` and `noise`: one per step; `memory: false` leaves the tape out.
   *
   *  → outputs, logits; heads as Trace.head_traces() names them, each with an address (N) and program weights (P) per step;
   *  parts as Trace.part_programs() names them, with program weights; and the tape (N·M) after each step. */
  run(inputs, { slots, interventions = [], noise = [], memory = true } = {}) {
    let state = this.initialState(slots);
    const heads = this.heads.map(({ name, kind }) => ({ name, kind, addresses: [], programs: this.programs ? [] : null }));
    const parts = this.parts.map((name) => ({ name, programs: [] }));
    const done = { outputs: [], heads, parts, memory: [] };
    inputs.forEach((x, t) => {
      const happened = this.step(x, state, interventions, noise[t]);
      state = happened.state;
      done.outputs.push(happened.output);
      happened.heads.forEach(({ address, programs }, n) => {
        heads[n].addresses.push(address);
        heads[n].programs?.push(programs);
      });
      happened.parts.forEach(({ programs }, n) => parts[n].programs.push(programs));
      if (memory) done.memory.push(single(happened.memory));
    });
    return done;
  }
}
