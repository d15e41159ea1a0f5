// The flame graph: boxes of a tree on a canvas, as wide as their time.

import { Surface, glide } from "./canvas";
import { SERVER, Stacks } from "./data";
import { Colours, onTheme } from "./theme";
import { Tree } from "./tree";

const ROW = 19;
/** Narrower boxes are not drawn one by one. */
const LEAST = 0.5;
/** A frame stops to look for new children after that, and goes on in the next one. */
const BUDGET_MS = 9;

/** Trees that are drawn with one axis: callers above, or callees below. */
export interface Pane {
  tree: Tree;
  isAbove: boolean;
  /** Whether the root is a box itself. */
  hasRoot: boolean;
}

export interface Place {
  pane: Pane;
  node: number;
}

/** How boxes are coloured. */
export interface Look {
  /** By function, whether it was searched for; null if nothing was. */
  matches: Uint8Array | null;
  /** From -1, all gone, to 1, all new; null if nothing is compared. */
  change: ((tree: Tree, node: number) => number) | null;
}

export class Flame {
  private readonly surface: Surface;
  private panes: Pane[] = [];
  private look: Look = { matches: null, change: null };
  private from = 0;
  private until = 1;
  /** How far down is scrolled. */
  private top = 0;
  /** Where what is below begins, if there is something above. */
  private middle = 0;
  private depth = 0;
  private above = 0;
  focus: Place | null = null;
  private hover: Place | null = null;
  private stop: () => void = () => undefined;
  private fills: string[] = [];
  private scale: string[] = [];

  constructor(
    canvas: HTMLCanvasElement,
    private readonly box: HTMLElement,
    private readonly stacks: Stacks,
    private readonly colours: Colours,
    private readonly chosen: (place: Place | null) => void,
    private readonly hovered: (place: Place | null, x: number, y: number) => void,
  ) {
    this.surface = new Surface(canvas, box, () => this.draw(), "12px ui-monospace, Menlo, Consolas, monospace");
    onTheme(() => {
      this.fills = [];
      this.surface.ask();
    });
    this.listen();
  }

  /** `above` is how many rows there are at most above what is in the middle. */
  show(panes: Pane[], look: Look, above = 0): void {
    this.stop();
    this.panes = panes;
    this.look = look;
    this.focus = null;
    this.hover = null;
    this.from = 0;
    this.until = Math.max(1, panes[0].tree.total);
    this.top = 0;
    this.middle = 0;
    if (above > 0) this.middle = Math.min(above * ROW + 2, Math.max(ROW, Math.floor(this.box.clientHeight / 2 / ROW) * ROW));
    this.above = above;
    this.surface.fit();
    // What is in the middle is what it is about.
    const root = panes.find((pane) => pane.hasRoot);
    if (root !== undefined) this.focus = { pane: root, node: 0 };
    this.chosen(this.focus);
  }

  recolour(look: Look): void {
    this.look = look;
    this.surface.ask();
  }

  fit(): void {
    this.surface.fit();
  }

  // ---- where boxes are

  private row(pane: Pane, node: number): number {
    const depth = pane.tree.depth.at[node] - (pane.hasRoot ? 0 : 1);
    return this.middle - this.top + (pane.isAbove ? -depth - 1 : depth) * ROW;
  }

  /** The first child that ends behind `time`. */
  private childAt(tree: Tree, node: number, time: number): number {
    const first = tree.firstChild(node);
    let low = 0;
    let high = tree.childCount(node);
    while (low < high) {
      const middle = (low + high) >> 1;
      const child = first + middle;
      if (tree.start.at[child] + tree.time.at[child] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  private at(x: number, y: number): Place | null {
    const time = this.from + (x / this.surface.width) * (this.until - this.from);
    for (const pane of this.panes) {
      const { tree } = pane;
      let node = 0;
      for (;;) {
        const isBox = node > 0 || pane.hasRoot;
        const row = this.row(pane, node);
        if (isBox && y >= row && y < row + ROW) {
          const isInside = time >= tree.start.at[node] && time < tree.start.at[node] + tree.time.at[node];
          return isInside ? { pane, node } : null;
        }
        if (isBox && (pane.isAbove ? y > row + ROW : y < row)) break;
        const count = tree.childCount(node);
        const child = this.childAt(tree, node, time);
        if (child >= count || tree.start.at[tree.firstChild(node) + child] > time) break;
        node = tree.firstChild(node) + child;
      }
    }
    return null;
  }

  // ---- drawing

  private fill(of: number): string {
    if (this.fills.length === 0) this.fills = new Array<string>(this.stacks.names.length);
    let fill = this.fills[of];
    if (fill === undefined) {
      fill = this.makeFill(of);
      this.fills[of] = fill;
    }
    return fill;
  }

  /** By what kind of code it is; shades of it by name, so that neighbours differ and the same function is the same everywhere. */
  private makeFill(of: number): string {
    const name = this.stacks.names[of];
    let hash = 7;
    for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) | 0;
    const shade = (hash >>> 3) % 4;
    const kind = this.stacks.kinds[of];
    if (kind === 0) {
      if (name.includes("waits") || name === "[ready]") return this.colours.of(waitColour(name));
      return this.colours.of("flame-marker");
    }
    return this.colours.of(kind === SERVER ? "k-wait" : `flame-${kind}-${shade}`);
  }

  /** What is written on a box. Waits have the colours of the budget, which are light in both themes but for two. */
  private ink(of: number): string {
    const name = this.stacks.names[of];
    if (this.stacks.kinds[of] === SERVER) return this.colours.of("on-light");
    if (this.stacks.kinds[of] !== 0 || !(name.includes("waits") || name === "[ready]")) return this.colours.of("flame-ink");
    const colour = waitColour(name);
    return this.colours.of(colour === "k-wake" || colour === "k-disk" ? "on-dark" : "on-light");
  }

  private changeFill(change: number): string {
    if (this.scale.length === 0 || this.fills.length === 0) {
      this.fill(0);
      this.scale = [];
      for (let step = -4; step <= 4; step++) this.scale.push(this.colours.of(`change-${step + 4}`));
    }
    return this.scale[Math.round(Math.max(-1, Math.min(1, change)) * 4) + 4];
  }

  private draw(): void {
    if (this.panes.length === 0) return;
    const { context, width, height } = this.surface;
    const began = performance.now();
    context.fillStyle = this.colours.of("surface");
    context.fillRect(0, 0, width, height);
    const perTime = width / (this.until - this.from);
    const ink = this.colours.of("flame-ink");
    const foundInk = this.colours.of("flame-found-ink");
    const sliver = this.colours.of("flame-sliver");
    const found = this.colours.of("flame-found");
    const { matches, change } = this.look;
    const texts: [string, number, number, string][] = [];
    let isWhole = true;
    let fill = "";
    let deepest = 0;
    for (const pane of this.panes) {
      const { tree } = pane;
      const open = [0];
      while (open.length > 0) {
        const node = open.pop() as number;
        const row = this.row(pane, node);
        const isBox = node > 0 || pane.hasRoot;
        if (isBox) {
          deepest = Math.max(deepest, tree.depth.at[node]);
          const left = (tree.start.at[node] - this.from) * perTime;
          const right = left + tree.time.at[node] * perTime;
          const x = Math.max(0, left);
          const wide = Math.min(width, right) - x;
          if (row > -ROW && row < height) {
            const of = tree.of.at[node];
            const isFound = matches !== null && matches[of] === 1;
            const colour = isFound ? found : change !== null ? this.changeFill(change(tree, node)) : this.fill(of);
            // What was not searched for steps back.
            context.globalAlpha = matches !== null && !isFound ? 0.3 : 1;
            if (colour !== fill) {
              fill = colour;
              context.fillStyle = colour;
            }
            // A gap between boxes, if there is room for one.
            context.fillRect(x, row, Math.max(LEAST, wide > 3 ? wide - 1 : wide), ROW - 1);
            if (wide > 26) {
              const text = this.surface.fitting(this.stacks.shorts[of], wide - 8);
              if (text !== "") texts.push([text, x + 4, row, isFound ? foundInk : matches === null && change === null ? this.ink(of) : ink]);
            }
          }
        }
        // Nothing of what comes next can be seen.
        if (isBox && (pane.isAbove ? row < 0 : row > height)) continue;
        if (!tree.isExpanded(node) && performance.now() - began > BUDGET_MS) {
          isWhole = false;
          continue;
        }
        const count = tree.childCount(node);
        const first = tree.firstChild(node);
        for (let at = this.childAt(tree, node, this.from); at < count; at++) {
          const child = first + at;
          if (tree.start.at[child] >= this.until) break;
          if (tree.time.at[child] * perTime < LEAST) {
            // The ones behind it are no wider: they are drawn as one.
            const last = first + count - 1;
            const x = Math.max(0, (tree.start.at[child] - this.from) * perTime);
            const wide = (tree.start.at[last] + tree.time.at[last] - this.from) * perTime - x;
            const below = this.row(pane, child);
            if (wide >= LEAST && below > -ROW && below < height) {
              context.globalAlpha = 1;
              fill = sliver;
              context.fillStyle = sliver;
              context.fillRect(x, below, Math.min(wide, width), ROW - 1);
            }
            break;
          }
          open.push(child);
        }
      }
    }
    context.globalAlpha = 1;
    this.depth = deepest;
    for (const [text, x, y, colour] of texts) {
      context.fillStyle = colour;
      context.fillText(text, x, y + ROW / 2);
    }
    this.outline(this.hover, 1, perTime);
    this.outline(this.focus, 2, perTime);
    if (!isWhole) this.surface.ask();
  }

  private outline(place: Place | null, wide: number, perTime: number): void {
    if (place === null || !this.panes.includes(place.pane)) return;
    const { tree } = place.pane;
    const { context, width } = this.surface;
    const x = Math.max(1, (tree.start.at[place.node] - this.from) * perTime);
    const right = Math.min(width - 1, (tree.start.at[place.node] + tree.time.at[place.node] - this.from) * perTime);
    context.strokeStyle = this.colours.of("focus");
    context.lineWidth = wide;
    context.strokeRect(x, this.row(place.pane, place.node) + 0.5, Math.max(2, right - x - 1), ROW - 2);
  }

  // ---- moving

  private clamp(from: number, until: number): [number, number] {
    const total = Math.max(1, this.panes[0].tree.total);
    const wide = Math.min(total, Math.max(until - from, total * 1e-9, 1));
    const begin = Math.max(0, Math.min(total - wide, from));
    return [begin, begin + wide];
  }

  private move(from: number, until: number): void {
    this.stop();
    const [to, end] = this.clamp(from, until);
    const [before, last] = [this.from, this.until];
    this.stop = glide((at) => {
      this.from = before + (to - before) * at;
      this.until = last + (end - last) * at;
      this.surface.ask();
    });
  }

  private jump(from: number, until: number): void {
    this.stop();
    [this.from, this.until] = this.clamp(from, until);
    this.surface.ask();
  }

  /** Zooms by a factor around a place, 0 to 1 of the width. */
  zoom(factor: number, around = 0.5): void {
    const wide = this.until - this.from;
    const middle = this.from + wide * around;
    this.jump(middle - wide * factor * around, middle + wide * factor * (1 - around));
  }

  pan(part: number): void {
    const wide = this.until - this.from;
    this.jump(this.from + wide * part, this.until + wide * part);
  }

  scroll(rows: number): void {
    const most = Math.max(0, this.middle + (this.depth + 2) * ROW - this.surface.height / 2);
    const least = Math.min(0, this.middle - this.above * ROW - 2);
    this.top = Math.max(least, Math.min(most, this.top + rows * ROW));
    this.surface.ask();
  }

  reset(): void {
    this.top = 0;
    this.move(0, this.panes[0].tree.total);
  }

  isZoomed(): boolean {
    return this.until - this.from < this.panes[0].tree.total * 0.999;
  }

  zoomTo(place: Place): void {
    const { tree } = place.pane;
    const from = tree.start.at[place.node];
    this.move(from, from + tree.time.at[place.node]);
    this.choose(place);
  }

  chooseIn(tree: Tree, node: number): void {
    const pane = this.panes.find((known) => known.tree === tree);
    if (pane !== undefined) this.choose({ pane, node });
  }

  choose(place: Place | null): void {
    this.focus = place;
    if (place !== null) this.reveal(place);
    this.surface.ask();
    this.chosen(place);
  }

  private reveal({ pane, node }: Place): void {
    const row = this.row(pane, node);
    const { height } = this.surface;
    if (row < 0) this.top += row - ROW;
    else if (row + ROW > height) this.top += row + 2 * ROW - height;
    const from = pane.tree.start.at[node];
    const until = from + pane.tree.time.at[node];
    const wide = this.until - this.from;
    if (until - from < wide / 400) this.move(from - (until - from) * 20, until + (until - from) * 20);
    else if (until <= this.from || from >= this.until) this.move((from + until - wide) / 2, (from + until + wide) / 2);
  }

  /** Moves the focus: `in` is away from the root. */
  step(way: "in" | "out" | "left" | "right"): void {
    const place = this.focus;
    if (place === null) {
      const pane = this.panes[this.panes.length - 1];
      const node = pane.hasRoot ? 0 : pane.tree.firstChild(0);
      if (pane.hasRoot || pane.tree.childCount(0) > 0) this.choose({ pane, node });
      return;
    }
    const { pane, node } = place;
    const { tree } = pane;
    if (way === "in") {
      if (tree.childCount(node) > 0) this.choose({ pane, node: tree.firstChild(node) });
    } else if (way === "out") {
      const parent = tree.parent.at[node];
      if (parent > 0 || (parent === 0 && pane.hasRoot)) this.choose({ pane, node: parent });
      else if (node === 0) {
        const other = this.panes.find((known) => known !== pane);
        if (other !== undefined && other.tree.childCount(0) > 0) {
          this.choose({ pane: other, node: other.hasRoot ? 0 : other.tree.firstChild(0) });
        }
      } else if (parent === 0) {
        // A caller's own way out is the function in the middle.
        const other = this.panes.find((known) => known.hasRoot && known !== pane);
        if (other !== undefined) this.choose({ pane: other, node: 0 });
      }
    } else {
      const parent = tree.parent.at[node];
      if (parent < 0) return;
      const next = node + (way === "left" ? -1 : 1);
      const first = tree.firstChild(parent);
      if (next >= first && next < first + tree.childCount(parent) && tree.time.at[next] > 0) {
        this.choose({ pane, node: next });
      }
    }
  }

  /** The up and down keys, as it looks. */
  vertical(isUp: boolean): void {
    const isAbove = this.focus?.pane.isAbove ?? false;
    this.step(isUp === isAbove ? "in" : "out");
  }

  // ---- pointer

  private listen(): void {
    const { box } = this;
    const pointers = new Map<number, { x: number; y: number }>();
    let moved = 0;
    const local = (event: PointerEvent | WheelEvent): [number, number] => {
      const frame = box.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    box.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : 1;
        if (event.shiftKey) this.scroll((event.deltaY * lines) / ROW);
        else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX * lines) / this.surface.width);
        else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * lines)) / 240), local(event)[0] / this.surface.width);
      },
      { passive: false },
    );
    box.addEventListener("pointerdown", (event) => {
      const [x, y] = local(event);
      pointers.set(event.pointerId, { x, y });
      moved = 0;
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      const [x, y] = local(event);
      const known = pointers.get(event.pointerId);
      if (known === undefined) {
        const place = this.at(x, y);
        if (place?.node !== this.hover?.node || place?.pane !== this.hover?.pane) {
          this.hover = place;
          this.surface.ask();
        }
        this.hovered(place, x, y);
        return;
      }
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      if (others.length > 0) {
        const apart = Math.max(20, Math.abs(known.x - others[0].x));
        const now = Math.max(20, Math.abs(x - others[0].x));
        this.zoom(apart / now, (x + others[0].x) / 2 / this.surface.width);
        moved = 99;
      } else {
        moved += Math.abs(x - known.x) + Math.abs(y - known.y);
        if (moved > 4) {
          this.hovered(null, 0, 0);
          this.pan((known.x - x) / this.surface.width);
          this.scroll((known.y - y) / ROW);
        }
      }
      pointers.set(event.pointerId, { x, y });
    });
    const up = (event: PointerEvent): void => {
      const wasDown = pointers.delete(event.pointerId);
      if (event.type !== "pointerup" || !wasDown || moved > 4 || pointers.size > 0) return;
      const [x, y] = local(event);
      const place = this.at(x, y);
      if (place !== null) this.zoomTo(place);
    };
    box.addEventListener("pointerup", up);
    box.addEventListener("pointercancel", up);
    box.addEventListener("pointerleave", () => {
      this.hover = null;
      this.hovered(null, 0, 0);
      this.surface.ask();
    });
  }
}

/** Waits have the colour that they have in the budget. */
export function waitColour(name: string): string {
  if (name === "[ready]") return "k-wake";
  if (name.includes("socket") || name.includes("poll")) return "k-wait";
  if (name.includes("file")) return "k-disk";
  if (name.includes("lock")) return "k-lock";
  if (name.includes("sleep")) return "k-sleep";
  if (name.includes("page fault")) return "k-memory";
  return "k-other";
}
