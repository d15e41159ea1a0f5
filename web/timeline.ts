// Requests in rows: of each what it was spent on, in the colours of the budget; of workers what they did in the order of time.

import { Surface } from "./canvas";
import { Data, element } from "./data";
import { count, duration, make, plural } from "./text";
import { Colours, onTheme } from "./theme";

const ROW = 20;

/** A part of a request, or one of its worker's samples or waits. */
export type Choice =
  | { request: number; segment: number }
  | { piece: number };

interface Box {
  left: number;
  wide: number;
  kind: number;
  segment: number;
  piece: number;
}

export class Timeline {
  private readonly surface: Surface;
  private readonly box = element("rows");
  private readonly order = element<HTMLSelectElement>("order");
  private readonly axis = element<HTMLSelectElement>("axis");
  private readonly byWorker = element<HTMLInputElement>("by-worker");
  private readonly find = element<HTMLInputElement>("find-request");
  /** Requests by number; a worker is `-1 - track`. */
  private rows: number[] = [];
  private at = -1;
  private segment = -1;
  private from = 0;
  private until = 1;
  private byKind = -1;
  private isShown = false;
  /** By track: where its samples and its waits are among the pieces. */
  private readonly ranges: [number, number, number, number][];
  private readonly begun: number;
  private readonly ended: number;

  constructor(
    private readonly data: Data,
    private readonly colours: Colours,
    private readonly chosen: (choice: Choice | null) => void,
  ) {
    this.surface = new Surface(
      element<HTMLCanvasElement>("timeline"),
      this.box,
      () => this.draw(),
      "12px ui-monospace, Menlo, Consolas, monospace",
    );
    onTheme(() => this.surface.ask());
    const { pieces, requests, tracks } = data;
    const range = (from: number, until: number, track: number): [number, number] => [
      lower(pieces.track, from, until, track),
      lower(pieces.track, from, until, track + 1),
    ];
    this.ranges = tracks.map((_, track) => [
      ...range(0, pieces.waits_from, track),
      ...range(pieces.waits_from, pieces.track.length, track),
    ]);
    let [begun, ended] = [Infinity, 1];
    for (let at = 0; at < requests.begin_ns.length; at++) {
      begun = Math.min(begun, requests.begin_ns[at]);
      ended = Math.max(ended, requests.end_ns[at]);
    }
    if (!pieces.joined) {
      for (let at = 0; at < pieces.start_ns.length; at++) {
        begun = Math.min(begun, pieces.start_ns[at]);
        ended = Math.max(ended, pieces.start_ns[at] + pieces.ns[at]);
      }
    }
    this.begun = begun === Infinity ? 0 : begun;
    this.ended = ended;
    if (requests.track.length === 0) {
      this.axis.value = "clock";
      this.byWorker.checked = true;
    }
    for (const control of [this.order, this.axis, this.byWorker]) {
      control.addEventListener("change", () => {
        this.byKind = -1;
        this.arrange();
      });
    }
    this.find.addEventListener("input", () => this.arrange());
    element("time-in").addEventListener("click", () => this.zoom(0.5));
    element("time-out").addEventListener("click", () => this.zoom(2));
    element("time-all").addEventListener("click", () => this.reset());
    this.chips();
    this.listen();
  }

  show(): void {
    this.surface.fit();
    if (!this.isShown) {
      this.isShown = true;
      this.arrange();
    }
  }

  private isClock(): boolean {
    return this.axis.value === "clock";
  }

  private length(request: number): number {
    return this.data.requests.end_ns[request] - this.data.requests.begin_ns[request];
  }

  private timeOf(request: number, kind: number): number {
    const { requests } = this.data;
    let sum = 0;
    for (let at = requests.first[request]; at < requests.first[request + 1]; at++) {
      if (requests.kind[at] === kind) sum += requests.ns[at];
    }
    return sum;
  }

  /** The kinds that requests have, with a button each. */
  private chips(): void {
    const { requests, kinds, pieces } = this.data;
    const sums = new Float64Array(kinds.length);
    const isOfRequests = requests.track.length > 0;
    const [of, ns] = isOfRequests ? [requests.kind, requests.ns] : [pieces.kind, pieces.ns];
    for (let at = 0; at < of.length; at++) sums[of[at]] += ns[at];
    const box = element("kinds");
    kinds.forEach((kind, at) => {
      if (sums[at] === 0) return;
      const chip = make("button", "", "chip");
      chip.type = "button";
      chip.dataset.kind = String(at);
      chip.title = kind.meaning;
      chip.append(make("i", "", `k-${kind.key}`), make("span", kind.name), make("small", duration(sums[at])));
      chip.addEventListener("click", () => {
        this.byKind = this.byKind === at ? -1 : at;
        this.arrange();
      });
      box.append(chip);
    });
  }

  /** Puts the rows in order. */
  arrange(): void {
    const { requests, tracks } = this.data;
    const wanted = this.find.value.trim().toLowerCase();
    const nameOf = tracks.map((track) => `${track.process} ${track.name} ${track.pid}`.toLowerCase());
    const rows: number[] = [];
    for (let request = 0; request < requests.track.length; request++) {
      if (
        wanted === "" ||
        requests.texts[requests.text[request]].toLowerCase().includes(wanted) ||
        nameOf[requests.track[request]].includes(wanted)
      ) {
        rows.push(request);
      }
    }
    if (this.byKind >= 0) {
      const times = new Map(rows.map((request) => [request, this.timeOf(request, this.byKind)]));
      rows.sort((a, b) => (times.get(b) as number) - (times.get(a) as number) || a - b);
    } else if (this.order.value === "length") {
      rows.sort((a, b) => this.length(b) - this.length(a) || a - b);
    }
    if (this.byWorker.checked) {
      const groups = new Map<number, number[]>();
      tracks.forEach((_, track) => {
        const [from, until, waits, end] = this.ranges[track];
        const isSeen = until > from || end > waits;
        if (isSeen && requests.track.length === 0 && (wanted === "" || nameOf[track].includes(wanted))) groups.set(track, []);
      });
      for (const request of rows) {
        const track = requests.track[request];
        const group = groups.get(track);
        if (group === undefined) groups.set(track, [request]);
        else group.push(request);
      }
      this.rows = [];
      for (const track of [...groups.keys()].sort((a, b) => a - b)) {
        this.rows.push(-1 - track);
        for (const request of groups.get(track) as number[]) this.rows.push(request);
      }
    } else {
      this.rows = rows;
    }
    for (const chip of element("kinds").querySelectorAll<HTMLElement>(".chip")) {
      chip.setAttribute("aria-pressed", String(chip.dataset.kind === String(this.byKind)));
    }
    this.at = -1;
    this.box.scrollTop = 0;
    element("rows-space").style.height = `${this.rows.length * ROW + ROW}px`;
    this.note(rows.length);
    this.reset();
  }

  private note(shown: number): void {
    const { requests, has_budget, pieces } = this.data;
    const words: string[] = [];
    if (requests.track.length === 0) {
      words.push("The recording knows of no requests: a row for each thread, with its samples and waits in the order of time");
      if (pieces.joined) words.push("there are too many to show each, so their order is lost");
    } else {
      words.push(shown === requests.track.length ? plural(shown, "request") : `${count(shown)} of ${plural(requests.track.length, "request")}`);
      words.push(
        has_budget
          ? "measured, line by line; the lines of a request are in the order of the budget, not of time"
          : "as samples and waits saw them; what a request was spent on is in the order of the legend, not of time",
      );
    }
    if (this.isClock() && this.byWorker.checked && !pieces.joined) {
      words.push("of a thread: samples, and waits as if those that were stored together had been one, which ended then");
    }
    if (requests.shared.length > 0) words.push(`${count(requests.shared.length)} shared their worker with others, so that no line is theirs`);
    if (pieces.left_out > 0) words.push(`${count(pieces.left_out)} of the shortest samples and waits are left out`);
    element("requests-note").textContent = `${words.join(" · ")}.`;
  }

  private reset(): void {
    if (this.isClock()) {
      [this.from, this.until] = [this.begun, this.ended];
    } else {
      const lengths = this.rows.filter((row) => row >= 0).map((row) => this.length(row));
      lengths.sort((a, b) => a - b);
      const longest = lengths[lengths.length - 1] ?? 1;
      // A few that took very long would leave nothing to be seen of the others.
      const most = lengths[Math.floor(lengths.length * 0.98)] ?? longest;
      this.from = 0;
      this.until = Math.max(1, this.order.value === "length" || this.byKind >= 0 ? longest : Math.min(longest, most * 1.5));
    }
    this.surface.ask();
  }

  zoom(factor: number, around = this.isClock() ? 0.5 : 0): void {
    const wide = this.until - this.from;
    const middle = this.from + wide * around;
    const next = Math.max(1e3, wide * factor);
    this.from = middle - next * around;
    this.until = this.from + next;
    if (!this.isClock() && this.from < 0) [this.from, this.until] = [0, next];
    this.surface.ask();
  }

  pan(part: number): void {
    const by = (this.until - this.from) * part;
    const least = this.isClock() ? this.begun : 0;
    const shift = Math.max(least - this.from, by);
    this.from += shift;
    this.until += shift;
    this.surface.ask();
  }

  // ---- drawing

  private gutter(): number {
    return this.surface.width < 600 ? 110 : 260;
  }

  /** The boxes of a row, in pixels behind the gutter. */
  private boxes(row: number, wide: number): Box[] {
    const { requests, pieces } = this.data;
    const perTime = wide / (this.until - this.from);
    const boxes: Box[] = [];
    const add = (begin: number, ns: number, kind: number, segment: number, piece: number): void => {
      const left = (begin - this.from) * perTime;
      const width = ns * perTime;
      if (left + width < 0 || left > wide) return;
      boxes.push({ left: Math.max(0, left), wide: Math.min(left + width, wide) - Math.max(0, left), kind, segment, piece });
    };
    if (row >= 0) {
      let begin = this.isClock() ? requests.begin_ns[row] : 0;
      const isQueue = (at: number): boolean => this.data.kinds[requests.kind[at]].key === "queue";
      for (let at = requests.first[row]; at < requests.first[row + 1]; at++) {
        // The queue is before the begin: it is drawn there by the clock.
        if (isQueue(at) && this.isClock()) {
          add(begin - requests.ns[at], requests.ns[at], requests.kind[at], at, -1);
          continue;
        }
        add(begin, requests.ns[at], requests.kind[at], at, -1);
        begin += requests.ns[at];
      }
    } else if (this.isClock() && !pieces.joined) {
      const [from, until, waits, end] = this.ranges[-1 - row];
      for (const [first, last] of [
        [waits, end],
        [from, until],
      ]) {
        let edge = -1;
        for (let at = lower(pieces.start_ns, first, last, this.from - 1e10); at < last; at++) {
          if (pieces.start_ns[at] > this.until) break;
          const left = (pieces.start_ns[at] - this.from) * perTime;
          // Not more than two a pixel.
          if (left + pieces.ns[at] * perTime < edge + 0.5) continue;
          edge = left + pieces.ns[at] * perTime;
          add(pieces.start_ns[at], pieces.ns[at], pieces.kind[at], -1, at);
        }
      }
    }
    return boxes;
  }

  private label(row: number): string {
    const { requests, tracks } = this.data;
    if (row < 0) {
      const track = tracks[-1 - row];
      return `${track.name} (${track.pid})`;
    }
    const text = requests.texts[requests.text[row]];
    const what = text === "" ? `worker ${tracks[requests.track[row]].pid}` : text;
    return `${duration(this.length(row)).padStart(8)} ${what}`;
  }

  private draw(): void {
    const { context, width, height } = this.surface;
    const { kinds } = this.data;
    const gutter = this.gutter();
    const wide = width - gutter - 8;
    const top = this.box.scrollTop;
    context.fillStyle = this.colours.of("surface");
    context.fillRect(0, 0, width, height);
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(this.rows.length, Math.ceil((top + height - ROW) / ROW) + 1);
    this.grid(gutter, wide, height);
    for (let at = first; at < last; at++) {
      const row = this.rows[at];
      const y = at * ROW - top + ROW;
      if (at === this.at) {
        context.fillStyle = this.colours.of("row-chosen");
        context.fillRect(0, y, width, ROW);
      } else if (row < 0) {
        context.fillStyle = this.colours.of("row-group");
        context.fillRect(0, y, width, ROW);
      }
      for (const box of this.boxes(row, wide)) {
        context.fillStyle = this.colours.of(`k-${kinds[box.kind].key}`);
        context.fillRect(gutter + box.left, y + 2, Math.max(box.wide > 3 ? box.wide - 1 : box.wide, 0.7), ROW - 4);
        if (at === this.at && box.segment >= 0 && box.segment === this.segment) {
          context.strokeStyle = this.colours.of("focus");
          context.lineWidth = 2;
          context.strokeRect(gutter + box.left, y + 1, Math.max(3, box.wide), ROW - 2);
        }
      }
      context.fillStyle = this.colours.of(row < 0 ? "ink" : "ink-quiet");
      context.fillText(this.surface.fitting(this.label(row), (row < 0 ? width : gutter) - 12), 6, y + ROW / 2);
    }
    // The axis stays on top of rows.
    context.fillStyle = this.colours.of("surface");
    context.fillRect(0, 0, width, ROW);
    this.numbers(gutter, wide);
    context.strokeStyle = this.colours.of("edge");
    context.lineWidth = 1;
    context.strokeRect(-1, -1, width + 2, ROW + 0.5);
  }

  private ticks(wide: number): number[] {
    const rough = ((this.until - this.from) / Math.max(1, wide)) * 110;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((by) => by * power).find((one) => one >= rough) ?? rough;
    const ticks: number[] = [];
    for (let at = Math.ceil(this.from / step); at * step < this.until && ticks.length < 50; at++) ticks.push(at * step);
    return ticks;
  }

  private grid(gutter: number, wide: number, height: number): void {
    const { context } = this.surface;
    context.fillStyle = this.colours.of("grid");
    for (const tick of this.ticks(wide)) {
      context.fillRect(gutter + Math.round(((tick - this.from) / (this.until - this.from)) * wide), ROW, 1, height);
    }
  }

  private numbers(gutter: number, wide: number): void {
    const { context } = this.surface;
    context.fillStyle = this.colours.of("ink-quiet");
    context.fillText(this.isClock() ? "since the begin" : "length, request", 6, ROW / 2);
    for (const tick of this.ticks(wide)) {
      const x = gutter + ((tick - this.from) / (this.until - this.from)) * wide;
      const text = tick === 0 ? "0" : short(tick);
      if (x + text.length * 7 < gutter + wide + 8) context.fillText(text, x + 3, ROW / 2);
    }
  }

  // ---- choosing

  private choose(at: number, segment: number): void {
    this.at = at;
    const row = this.rows[at];
    const { requests } = this.data;
    this.segment = segment;
    if (row >= 0 && segment < 0) {
      // The longest part says most.
      let longest = requests.first[row];
      for (let one = longest; one < requests.first[row + 1]; one++) if (requests.ns[one] > requests.ns[longest]) longest = one;
      this.segment = longest < requests.first[row + 1] ? longest : -1;
    }
    const y = at * ROW;
    if (y < this.box.scrollTop) this.box.scrollTop = y;
    else if (y + 2 * ROW > this.box.scrollTop + this.surface.height) this.box.scrollTop = y + 2 * ROW - this.surface.height;
    this.surface.ask();
    const status = element("status");
    status.textContent = `${this.label(row)}${this.segment >= 0 && row >= 0 ? `, ${this.partText(this.segment)}` : ""}`;
  }

  private partText(segment: number): string {
    const { requests, kinds } = this.data;
    return `${kinds[requests.kind[segment]].name} ${duration(requests.ns[segment])}`;
  }

  private open(): void {
    const row = this.rows[this.at];
    if (row !== undefined && row >= 0 && this.segment >= 0) this.chosen({ request: row, segment: this.segment });
  }

  /** Another part of the request that is shown. */
  select(segment: number): void {
    this.segment = segment;
    this.surface.ask();
  }

  private listen(): void {
    const { box } = this;
    box.addEventListener("scroll", () => this.surface.ask(), { passive: true });
    box.addEventListener(
      "wheel",
      (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          const x = event.clientX - box.getBoundingClientRect().left - this.gutter();
          const around = Math.max(0, Math.min(1, x / Math.max(1, this.surface.width - this.gutter())));
          this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 240), around);
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.pan((event.deltaX || event.deltaY) / this.surface.width);
        }
      },
      { passive: false },
    );
    box.addEventListener("click", (event) => {
      const frame = box.getBoundingClientRect();
      const [x, y] = [event.clientX - frame.left, event.clientY - frame.top - ROW];
      const at = Math.floor((y + box.scrollTop) / ROW);
      if (y < 0 || at >= this.rows.length) return;
      const gutter = this.gutter();
      const boxes = this.boxes(this.rows[at], this.surface.width - gutter - 8);
      // Narrow ones are hit from beside them, too. The last is on top.
      const near = (one: Box): number => Math.max(one.left - (x - gutter), x - gutter - one.left - one.wide, 0);
      let hit: Box | null = null;
      for (const one of boxes) if (near(one) <= 3 && (hit === null || near(one) <= near(hit))) hit = one;
      this.choose(at, hit?.segment ?? -1);
      if (hit !== null && hit.piece >= 0) this.chosen({ piece: hit.piece });
      else this.open();
    });
    box.addEventListener("keydown", (event) => this.key(event));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || this.rows.length === 0) return;
    const page = Math.max(1, Math.floor(this.surface.height / ROW) - 2);
    const to = (at: number): void => this.choose(Math.max(0, Math.min(this.rows.length - 1, at)), -1);
    switch (event.key) {
      case "ArrowDown":
        to(this.at + 1);
        break;
      case "ArrowUp":
        to(this.at - 1);
        break;
      case "PageDown":
        to(this.at + page);
        break;
      case "PageUp":
        to(this.at - page);
        break;
      case "Home":
        to(0);
        break;
      case "End":
        to(this.rows.length - 1);
        break;
      case "ArrowLeft":
      case "ArrowRight": {
        const row = this.rows[this.at];
        if (row === undefined || row < 0) break;
        const { first } = this.data.requests;
        const next = this.segment + (event.key === "ArrowLeft" ? -1 : 1);
        if (next >= first[row] && next < first[row + 1]) this.choose(this.at, next);
        break;
      }
      case "Enter":
        this.open();
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  /** Keys that hold wherever the focus is in this view. */
  letter(key: string): boolean {
    const toggle = (control: HTMLSelectElement): true => {
      control.selectedIndex = 1 - control.selectedIndex;
      this.byKind = -1;
      this.arrange();
      return true;
    };
    switch (key) {
      case "r":
        return toggle(this.order);
      case "c":
        return toggle(this.axis);
      case "w":
        this.byWorker.checked = !this.byWorker.checked;
        this.arrange();
        return true;
      case "/":
        this.find.select();
        return true;
      case "+":
      case "=":
        this.zoom(0.5);
        return true;
      case "-":
        this.zoom(2);
        return true;
      case "0":
        this.reset();
        return true;
      case "a":
        this.pan(-0.2);
        return true;
      case "d":
        this.pan(0.2);
        return true;
      default:
        return false;
    }
  }
}

/** `5 ms`, `1.2 s`: of times that are round. */
function short(ns: number): string {
  const [unit, by] = ns < 1e3 ? ["ns", 1] : ns < 1e6 ? ["µs", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
  return `${Number((ns / (by as number)).toPrecision(6))} ${unit}`;
}

/** The first place that has `wanted` or more, between two. */
function lower(list: number[], from: number, until: number, wanted: number): number {
  let [low, high] = [from, until];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] >= wanted) high = middle;
    else low = middle + 1;
  }
  return low;
}
