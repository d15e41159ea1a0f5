// The view with the flame graph: what is chosen in its controls, and what that means for the drawing.

import { Data, SERVER, Stacks, element, ownTimes, wholeTimes } from "./data";
import { Flame, Place } from "./flame";
import { FunctionTimes, Search, functionTimes } from "./functions";
import { count, duration, make, share } from "./text";
import { Colours } from "./theme";
import { Tree, fromLeaves, fromRoots, outermost } from "./tree";

type Mode = "down" | "up" | "sandwich";

/** Most functions in the table. */
const MAX_FUNCTIONS = 300;
/** Most places that search goes through. */
const MAX_FOUND = 500;

export class Graph {
  private readonly flame: Flame;
  private readonly search: Search;
  private mode: Mode = "down";
  private own: Float64Array = new Float64Array(0);
  private whole: Float64Array = new Float64Array(0);
  private otherOwn: Float64Array | null = null;
  private otherWhole: Float64Array | null = null;
  private total = 0;
  private otherTotal = 0;
  private times: FunctionTimes | null = null;
  private matches: Uint8Array | null = null;
  private found: number[] = [];
  private foundAt = -1;
  private centre = -1;
  private tree: Tree | null = null;
  private isStale = true;

  constructor(
    private readonly data: Data,
    private readonly stacks: Stacks,
    colours: Colours,
  ) {
    this.search = new Search(stacks);
    this.flame = new Flame(
      element<HTMLCanvasElement>("graph"),
      element("flame-box"),
      stacks,
      colours,
      (place) => this.say(place),
      (place, x, y) => this.tip(place, x, y),
    );
    const worker = element<HTMLSelectElement>("worker");
    data.tracks.forEach((track, at) => {
      const text = track.name === track.process ? `${track.name} (${track.pid})` : `${track.process} (${track.pid}): ${track.name}`;
      const option = make("option", text);
      option.value = String(at);
      worker.append(option);
    });
    element("width-label").hidden = data.base === null;
    for (const id of ["time-of", "worker", "width-of"]) {
      element(id).addEventListener("change", () => {
        this.isStale = true;
        this.show();
      });
    }
    for (const mode of ["down", "up", "sandwich"] as Mode[]) {
      element(`mode-${mode}`).addEventListener("click", () => this.setMode(mode));
    }
    const find = element<HTMLInputElement>("find");
    find.addEventListener("input", () => this.find(find.value));
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.next(event.shiftKey ? -1 : 1);
      }
    });
    element("zoom-in").addEventListener("click", () => this.flame.zoom(0.5));
    element("zoom-out").addEventListener("click", () => this.flame.zoom(2));
    element("zoom-all").addEventListener("click", () => this.flame.reset());
    element("functions").addEventListener("click", (event) => {
      const row = (event.target as HTMLElement).closest("tr");
      if (row?.dataset.of !== undefined) this.setCentre(Number(row.dataset.of));
    });
    element("flame-box").addEventListener("keydown", (event) => this.key(event));
  }

  /** The view is opened: what was seen there is seen again. */
  open(): void {
    if (this.tree === null || this.isStale) this.show();
    else this.flame.fit();
  }

  /** Makes what is to be seen now. */
  private show(): void {
    if (this.isStale) this.count();
    const { stacks } = this;
    const others = this.otherOwn !== null;
    element("functions").hidden = this.mode !== "sandwich";
    for (const mode of ["down", "up", "sandwich"]) {
      element(`mode-${mode}`).setAttribute("aria-checked", String(mode === this.mode));
    }
    const look = this.look();
    if (this.mode === "down") {
      this.tree = fromRoots(stacks, this.whole, this.otherWhole);
      this.flame.show([{ tree: this.tree, isAbove: false, hasRoot: false }], look);
    } else if (this.mode === "up") {
      this.tree = fromLeaves(stacks, this.own, this.otherOwn);
      this.flame.show([{ tree: this.tree, isAbove: false, hasRoot: false }], look);
    } else {
      this.times ??= functionTimes(stacks, this.own, this.whole);
      if (this.centre < 0) this.centre = this.hottest();
      this.list();
      const items = outermost(stacks, this.centre);
      const callers = new Tree(stacks, "up", items, this.whole, this.otherWhole, this.centre);
      this.tree = new Tree(stacks, "down", items, this.whole, this.otherWhole, this.centre);
      this.flame.show(
        [
          { tree: callers, isAbove: true, hasRoot: false },
          { tree: this.tree, isAbove: false, hasRoot: true },
        ],
        look,
        this.depthAbove(items),
      );
    }
    const note = element("flame-note");
    const words: string[] = [];
    if (this.total === 0) words.push("Nothing was seen of that.");
    else words.push(`${duration(this.total)} ${this.timeText()}`);
    if (this.mode === "up") words.push("innermost functions on top, below each who called it");
    if (this.mode === "sandwich") words.push("callers above, callees below");
    if (others && this.data.base !== null) {
      words.push(`blue is less than in ${this.data.base.name}, orange more, ${this.unit()}`);
    }
    note.textContent = words.join(" · ");
  }

  /** How many callers the deepest of them has. */
  private depthAbove(items: Int32Array): number {
    let most = 1;
    for (const item of items) most = Math.max(most, this.stacks.path(item).length - 1);
    return most;
  }

  private timeText(): string {
    const time = element<HTMLSelectElement>("time-of").value;
    return time === "on" ? "on a CPU or ready for one" : time === "off" ? "off CPU" : "on and off CPU";
  }

  private unit(): string {
    return this.isPerRequest() ? "for each request" : "as a share of all";
  }

  private isPerRequest(): boolean {
    return this.data.requests_ended > 0 && this.data.base !== null && this.data.base.requests_ended > 0;
  }

  private count(): void {
    this.isStale = false;
    this.times = null;
    const { data, stacks } = this;
    const time = element<HTMLSelectElement>("time-of").value as "both" | "on" | "off";
    const track = Number(element<HTMLSelectElement>("worker").value);
    let own = ownTimes(stacks.count, data.weights, track, time);
    let other = data.base === null ? null : ownTimes(stacks.count, data.base.weights, -1, time);
    // Widths of before are the same, seen from there.
    if (other !== null && element<HTMLSelectElement>("width-of").value === "before") [own, other] = [other, own];
    this.own = own;
    this.otherOwn = other;
    this.whole = wholeTimes(stacks, own);
    this.otherWhole = other === null ? null : wholeTimes(stacks, other);
    this.total = own.reduce((sum, ns) => sum + ns, 0);
    this.otherTotal = other === null ? 0 : other.reduce((sum, ns) => sum + ns, 0);
    this.find(element<HTMLInputElement>("find").value);
  }

  private isBefore(): boolean {
    return element<HTMLSelectElement>("width-of").value === "before";
  }

  /** What a time of this drawing is to be compared as. */
  private comparable(ns: number, isOther: boolean): number {
    if (this.isPerRequest() && this.data.base !== null) {
      const isBase = isOther !== this.isBefore();
      return ns / (isBase ? this.data.base.requests_ended : this.data.requests_ended);
    }
    const total = isOther ? this.otherTotal : this.total;
    return total > 0 ? ns / total : 0;
  }

  private look(): { matches: Uint8Array | null; change: ((tree: Tree, node: number) => number) | null } {
    const change = (tree: Tree, node: number): number => {
      const shown = this.comparable(tree.time.at[node], false);
      const other = this.comparable(tree.other.at[node], true);
      const most = Math.max(shown, other);
      const part = most > 0 ? (shown - other) / most : 0;
      return this.isBefore() ? -part : part;
    };
    return { matches: this.matches, change: this.otherOwn === null ? null : change };
  }

  // ---- search

  find(text: string): void {
    this.matches = this.search.matches(text);
    const output = element("found");
    this.found = [];
    this.foundAt = -1;
    if (this.matches === null) {
      output.textContent = "";
    } else {
      const functions = this.matches.reduce((sum, one) => sum + one, 0);
      const time = this.search.time(this.matches, this.own);
      output.textContent = `${share(time, this.total)} of time, ${count(functions)} function${functions === 1 ? "" : "s"}`;
    }
    if (this.mode === "sandwich" && this.times !== null) this.list();
    this.flame.recolour(this.look());
  }

  private listFound(): void {
    const { stacks, matches } = this;
    if (matches === null || this.found.length > 0) return;
    const within = new Uint8Array(stacks.count);
    for (let node = 0; node < stacks.count; node++) {
      const parent = stacks.parent[node];
      const isWithin = parent >= 0 && within[parent] === 1;
      const isMatch = matches[stacks.of[node]] === 1;
      within[node] = isWithin || isMatch ? 1 : 0;
      if (isMatch && !isWithin && this.whole[node] > 0) this.found.push(node);
    }
    this.found.sort((a, b) => this.whole[b] - this.whole[a]);
    this.found.length = Math.min(this.found.length, MAX_FOUND);
  }

  next(by: number): void {
    this.listFound();
    if (this.found.length === 0) return;
    this.foundAt = (this.foundAt + by + this.found.length) % this.found.length;
    const node = this.found[this.foundAt];
    if (this.mode === "sandwich") this.setCentre(this.stacks.of[node]);
    else this.reveal(node);
  }

  /** Shows a node of the stacks. */
  reveal(node: number): void {
    if (this.isStale || this.tree === null) this.show();
    if (this.mode === "sandwich") this.setMode("down");
    const tree = this.tree as Tree;
    let place = -1;
    if (this.mode === "down") {
      place = tree.find(node);
    } else {
      const first = tree.firstChild(0);
      for (let at = 0; at < tree.childCount(0) && place < 0; at++) {
        if (tree.of.at[first + at] === this.stacks.of[node]) place = first + at;
      }
    }
    if (place > 0) this.flame.chooseIn(tree, place);
  }

  // ---- modes

  setMode(mode: Mode): void {
    if (mode === "sandwich") {
      const focus = this.flame.focus;
      if (focus !== null) this.centre = focus.pane.tree.of.at[focus.node];
    }
    this.mode = mode;
    this.show();
  }

  private setCentre(of: number): void {
    this.centre = of;
    this.mode = "sandwich";
    this.show();
  }

  private hottest(): number {
    const times = this.times as FunctionTimes;
    let hottest = 0;
    for (let of = 1; of < times.own.length; of++) {
      const isCode = this.stacks.kinds[of] !== 0 && this.stacks.kinds[of] !== SERVER;
      if (isCode && (times.own[of] > times.own[hottest] || this.stacks.kinds[hottest] === 0)) hottest = of;
    }
    return hottest;
  }

  private list(): void {
    const times = this.times as FunctionTimes;
    const order: number[] = [];
    for (let of = 0; of < times.whole.length; of++) {
      if (times.whole[of] > 0 && (this.matches === null || this.matches[of] === 1)) order.push(of);
    }
    order.sort((a, b) => times.own[b] - times.own[a] || times.whole[b] - times.whole[a]);
    const body = make("tbody");
    for (const of of order.slice(0, MAX_FUNCTIONS)) {
      const row = make("tr");
      row.dataset.of = String(of);
      if (of === this.centre) row.className = "chosen-row";
      const name = make("td");
      const button = make("button", this.stacks.names[of]);
      button.type = "button";
      button.title = this.stacks.labels[of];
      if (of === this.centre) button.setAttribute("aria-current", "true");
      name.append(button);
      row.append(make("td", share(times.own[of], this.total), "n"), make("td", share(times.whole[of], this.total), "n"), name);
      body.append(row);
    }
    element("functions").querySelector("tbody")?.replaceWith(body);
  }

  // ---- what is said of a box

  private lines(place: Place): string[] {
    const { tree } = place.pane;
    const { node } = place;
    const time = tree.time.at[node];
    const words = [`${duration(time)}, ${share(time, this.total)}`];
    if (this.mode !== "up" && !place.pane.isAbove) words.push(`own ${duration(tree.own(node))}`);
    if (this.otherOwn !== null) {
      const text = (value: number): string => (this.isPerRequest() ? `${duration(value)} a request` : `${(value * 100).toFixed(2)} %`);
      const shown = this.comparable(time, false);
      const other = this.comparable(tree.other.at[node], true);
      const [now, before] = this.isBefore() ? [other, shown] : [shown, other];
      words.push(`now ${text(now)}, before ${text(before)}`);
    }
    return words;
  }

  private say(place: Place | null): void {
    const chosen = element("chosen");
    chosen.replaceChildren();
    if (place === null) {
      chosen.append(make("span", "Choose a box: click it, or use the arrow keys.", "quiet"));
      return;
    }
    const of = place.pane.tree.of.at[place.node];
    if (of < 0) return;
    const label = this.stacks.labels[of];
    chosen.append(make("b", label), make("span", this.lines(place).join(" · ")));
    if (this.mode !== "sandwich" || of !== this.centre) {
      const button = make("button", "callers and callees");
      button.type = "button";
      button.addEventListener("click", () => this.setCentre(of));
      chosen.append(button);
    }
    element("status").textContent = `${label}: ${this.lines(place).join(", ")}`;
  }

  private tip(place: Place | null, x: number, y: number): void {
    const tip = element("tip");
    tip.hidden = place === null;
    if (place === null) return;
    const box = element("flame-box");
    tip.replaceChildren(
      make("b", this.stacks.labels[place.pane.tree.of.at[place.node]]),
      make("span", this.lines(place).join(" · ")),
    );
    tip.style.left = `${Math.max(4, Math.min(x + 14, box.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 22 + tip.offsetHeight > box.clientHeight ? Math.max(0, y - tip.offsetHeight - 10) : y + 22}px`;
  }

  // ---- keys

  /** Keys that hold wherever the focus is in this view. */
  letter(key: string): boolean {
    switch (key) {
      case "i":
        this.setMode(this.mode === "up" ? "down" : "up");
        return true;
      case "s":
        this.setMode(this.mode === "sandwich" ? "down" : "sandwich");
        return true;
      case "o": {
        const time = element<HTMLSelectElement>("time-of");
        time.selectedIndex = (time.selectedIndex + 1) % 3;
        this.isStale = true;
        this.show();
        return true;
      }
      case "w":
        element("worker").focus();
        return true;
      case "n":
        this.next(1);
        return true;
      case "N":
        this.next(-1);
        return true;
      case "/":
        element<HTMLInputElement>("find").select();
        return true;
      case "+":
      case "=":
        this.flame.zoom(0.5);
        return true;
      case "-":
        this.flame.zoom(2);
        return true;
      case "0":
        this.flame.reset();
        return true;
      case "a":
        this.flame.pan(-0.2);
        return true;
      case "d":
        this.flame.pan(0.2);
        return true;
      default:
        return false;
    }
  }

  /** False if there was nothing to leave. */
  escape(): boolean {
    if (this.flame.isZoomed()) {
      this.flame.reset();
      return true;
    }
    if (this.flame.focus !== null) {
      this.flame.choose(null);
      return true;
    }
    return false;
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowUp") this.flame.vertical(true);
    else if (event.key === "ArrowDown") this.flame.vertical(false);
    else if (event.key === "ArrowLeft") this.flame.step("left");
    else if (event.key === "ArrowRight") this.flame.step("right");
    else if (event.key === "PageDown") this.flame.scroll(10);
    else if (event.key === "PageUp") this.flame.scroll(-10);
    else if (event.key === "Enter" && this.flame.focus !== null) this.flame.zoomTo(this.flame.focus);
    else return;
    event.preventDefault();
  }
}
