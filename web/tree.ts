// The tree that is drawn. It is made where it is looked at: a node's children are known when somebody asks for them, so that turning
// 100,000 stacks around takes no longer than drawing them.

import { Stacks } from "./data";

/** Grows as it is filled. */
class Ints {
  at = new Int32Array(1024);
  length = 0;

  room(more: number): number {
    const from = this.length;
    this.length += more;
    if (this.length > this.at.length) {
      const larger = new Int32Array(Math.max(this.length, this.at.length * 2));
      larger.set(this.at);
      this.at = larger;
    }
    return from;
  }
}

class Floats {
  at = new Float64Array(1024);
  length = 0;

  room(more: number): number {
    const from = this.length;
    this.length += more;
    if (this.length > this.at.length) {
      const larger = new Float64Array(Math.max(this.length, this.at.length * 2));
      larger.set(this.at);
      this.at = larger;
    }
    return from;
  }
}

/** From a function to what it calls, or from it to who calls it. */
export type Direction = "down" | "up";

/**
 * Nodes of one function each, which stand for *items*: nodes of the stacks, with their time. Children are in the order of their time, the
 * most first, and have numbers one after the other. Node 0 is the root.
 */
export class Tree {
  readonly of = new Ints();
  readonly parent = new Ints();
  readonly depth = new Ints();
  readonly time = new Floats();
  /** Of the other recording, if two are compared. */
  readonly other = new Floats();
  readonly start = new Floats();
  private readonly kids = new Ints();
  private readonly kidCount = new Ints();
  private readonly itemFirst = new Ints();
  private readonly itemCount = new Ints();
  /** Where in the stacks an item is, and whose time it has. */
  private readonly itemAt = new Ints();
  private readonly itemTime = new Ints();
  private readonly slot: Int32Array;

  /**
   * `times` by node of the stacks: of `down` with callees, of `up` what the item where it begins stands for. The items of the root are `items`;
   * without `root`, a function, they are its children and not itself.
   */
  constructor(
    private readonly stacks: Stacks,
    private readonly direction: Direction,
    items: Int32Array,
    private readonly times: Float64Array,
    private readonly others: Float64Array | null,
    private readonly root: number,
  ) {
    this.slot = new Int32Array(stacks.names.length).fill(-1);
    this.room(1);
    this.of.at[0] = root;
    this.parent.at[0] = -1;
    this.itemAt.room(items.length);
    this.itemAt.at.set(items);
    this.itemTime.room(items.length);
    this.itemTime.at.set(items);
    this.itemCount.at[0] = items.length;
    for (let at = 0; at < items.length; at++) {
      this.time.at[0] += times[items[at]];
      if (others !== null) this.other.at[0] += others[items[at]];
    }
  }

  get total(): number {
    return this.time.at[0];
  }

  childCount(node: number): number {
    if (this.kids.at[node] < 0) this.expand(node);
    return this.kidCount.at[node];
  }

  /** The number of the first child, if there is one. */
  firstChild(node: number): number {
    if (this.kids.at[node] < 0) this.expand(node);
    return this.kids.at[node];
  }

  isExpanded(node: number): boolean {
    return this.kids.at[node] >= 0;
  }

  /** The time that none of its children has. */
  own(node: number): number {
    let own = this.time.at[node];
    const first = this.firstChild(node);
    for (let at = 0; at < this.kidCount.at[node]; at++) own -= this.time.at[first + at];
    return Math.max(0, own);
  }

  /** A node of the stacks that this one stands for. */
  someItem(node: number): number {
    return this.itemCount.at[node] > 0 ? this.itemAt.at[this.itemFirst.at[node]] : -1;
  }

  /** The node that stands for a node of the stacks; only of a tree from the roots. */
  find(wanted: number): number {
    const path: number[] = [];
    for (let at = wanted; at >= 0; at = this.stacks.parent[at]) path.push(this.stacks.of[at]);
    let node = 0;
    for (let step = path.length - 1; step >= 0; step--) {
      const first = this.firstChild(node);
      const count = this.kidCount.at[node];
      let found = -1;
      for (let at = 0; at < count && found < 0; at++) if (this.of.at[first + at] === path[step]) found = first + at;
      if (found < 0) return node;
      node = found;
    }
    return node;
  }

  private room(more: number): number {
    const from = this.of.room(more);
    for (const list of [this.parent, this.depth, this.kids, this.kidCount, this.itemFirst, this.itemCount]) list.room(more);
    for (const list of [this.time, this.other, this.start]) list.room(more);
    this.kids.at.fill(-1, from, from + more);
    return from;
  }

  private expand(node: number): void {
    const { stacks, slot } = this;
    const from = this.itemFirst.at[node];
    const until = from + this.itemCount.at[node];
    // All that come next, and how many there are of each function.
    const next: number[] = [];
    const timeOf: number[] = [];
    const groups: number[] = [];
    const sizes: number[] = [];
    const times: number[] = [];
    const others: number[] = [];
    const add = (at: number, time: number): void => {
      const of = stacks.of[at];
      let group = slot[of];
      if (group < 0) {
        group = groups.length;
        slot[of] = group;
        groups.push(of);
        sizes.push(0);
        times.push(0);
        others.push(0);
      }
      next.push(at);
      timeOf.push(time);
      sizes[group]++;
      times[group] += this.times[time];
      if (this.others !== null) others[group] += this.others[time];
    };
    const isWanted = (time: number): boolean =>
      this.times[time] > 0 || (this.others !== null && this.others[time] > 0);
    const isFirst = node === 0 && this.root < 0;
    for (let item = from; item < until; item++) {
      const at = this.itemAt.at[item];
      const time = this.itemTime.at[item];
      if (isFirst) {
        if (isWanted(time)) add(at, time);
      } else if (this.direction === "up") {
        const caller = stacks.parent[at];
        if (caller >= 0) add(caller, time);
      } else {
        for (let kid = stacks.first[at]; kid < stacks.first[at + 1]; kid++) {
          const callee = stacks.callees[kid];
          if (isWanted(callee)) add(callee, callee);
        }
      }
    }
    const order = groups.map((_, group) => group);
    order.sort((a, b) => times[b] - times[a] || groups[a] - groups[b]);
    const first = this.room(groups.length);
    const items = this.itemAt.room(next.length);
    this.itemTime.room(next.length);
    this.kids.at[node] = first;
    this.kidCount.at[node] = groups.length;
    let start = this.start.at[node];
    let place = items;
    const placeOf = new Int32Array(groups.length);
    order.forEach((group, at) => {
      const child = first + at;
      this.of.at[child] = groups[group];
      this.parent.at[child] = node;
      this.depth.at[child] = this.depth.at[node] + 1;
      this.time.at[child] = times[group];
      this.other.at[child] = others[group];
      this.start.at[child] = start;
      this.itemFirst.at[child] = place;
      this.itemCount.at[child] = sizes[group];
      placeOf[group] = place;
      start += times[group];
      place += sizes[group];
    });
    for (let at = 0; at < next.length; at++) {
      const to = placeOf[slot[stacks.of[next[at]]]]++;
      this.itemAt.at[to] = next[at];
      this.itemTime.at[to] = timeOf[at];
    }
    for (const of of groups) slot[of] = -1;
  }
}

/** From the outermost functions to what they call. */
export function fromRoots(stacks: Stacks, whole: Float64Array, others: Float64Array | null): Tree {
  const roots = stacks.callees.slice(stacks.first[stacks.count], stacks.first[stacks.count + 1]);
  return new Tree(stacks, "down", roots, whole, others, -1);
}

/** From the innermost functions to who called them. */
export function fromLeaves(stacks: Stacks, own: Float64Array, others: Float64Array | null): Tree {
  const leaves: number[] = [];
  for (let node = 0; node < stacks.count; node++) {
    if (own[node] > 0 || (others !== null && others[node] > 0)) leaves.push(node);
  }
  return new Tree(stacks, "up", Int32Array.from(leaves), own, others, -1);
}

/** The outermost nodes of a function: with their callees they are all of its time, each moment once. */
export function outermost(stacks: Stacks, wanted: number): Int32Array {
  const within = new Uint8Array(stacks.count);
  const found: number[] = [];
  for (let node = 0; node < stacks.count; node++) {
    const parent = stacks.parent[node];
    const isWithin = parent >= 0 && within[parent] === 1;
    if (stacks.of[node] === wanted) {
      if (!isWithin) found.push(node);
      within[node] = 1;
    } else if (isWithin) {
      within[node] = 1;
    }
  }
  return Int32Array.from(found);
}
