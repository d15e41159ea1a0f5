// The table of functions beside the sandwich, and search.

import { Stacks } from "./data";

export interface FunctionTimes {
  own: Float64Array;
  /** With callees, each moment once. */
  whole: Float64Array;
}

/** Time of each function. */
export function functionTimes(stacks: Stacks, own: Float64Array, whole: Float64Array): FunctionTimes {
  const times = { own: new Float64Array(stacks.names.length), whole: new Float64Array(stacks.names.length) };
  const open = new Int32Array(stacks.names.length);
  // Depth first: a node is entered, and left again as `-1 - node`.
  const way: number[] = [];
  for (let at = stacks.first[stacks.count]; at < stacks.first[stacks.count + 1]; at++) way.push(stacks.callees[at]);
  while (way.length > 0) {
    const node = way.pop() as number;
    if (node < 0) {
      open[stacks.of[-1 - node]]--;
      continue;
    }
    const of = stacks.of[node];
    times.own[of] += own[node];
    if (open[of]++ === 0) times.whole[of] += whole[node];
    way.push(-1 - node);
    for (let at = stacks.first[node]; at < stacks.first[node + 1]; at++) {
      if (whole[stacks.callees[at]] > 0) way.push(stacks.callees[at]);
    }
  }
  return times;
}

/** By function, whether its name or its place has this in it; null for nothing. */
export class Search {
  private small: string[] | null = null;

  constructor(private readonly stacks: Stacks) {}

  matches(text: string): Uint8Array | null {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") return null;
    this.small ??= this.stacks.labels.map((label) => label.toLowerCase());
    const matches = new Uint8Array(this.small.length);
    for (let of = 0; of < matches.length; of++) if (this.small[of].includes(wanted)) matches[of] = 1;
    return matches;
  }

  /** The time in which one of them is anywhere in the stack. */
  time(matches: Uint8Array, own: Float64Array): number {
    const { stacks } = this;
    const within = new Uint8Array(stacks.count);
    let time = 0;
    for (let node = 0; node < stacks.count; node++) {
      const parent = stacks.parent[node];
      if (matches[stacks.of[node]] === 1 || (parent >= 0 && within[parent] === 1)) {
        within[node] = 1;
        time += own[node];
      }
    }
    return time;
  }
}
