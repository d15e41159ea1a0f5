// What is known of a part of a request: its stack, the server, and the cause.

import { Data, SERVER, Server, Stacks, element } from "./data";
import { count, duration, make, plural, share } from "./text";
import { Choice } from "./timeline";

/** Most stacks that are shown, and functions of each. */
const MAX_STACKS = 12;
/** Of these so many are seen at once. */
const FIRST_STACKS = 2;
const MAX_SERVERS = 6;
const MAX_FUNCTIONS = 60;
/** Waits are stored within half a second after their end. */
const STORED_WITHIN_NS = 500e6;

/** Which of the samples and waits belong to a part, by the keys of their colours. */
const ALSO: Record<string, string[]> = {
  connect: ["wait"],
  client: ["wait"],
  gil: ["lock"],
  boot: ["boot", "code"],
  memory: ["memory", "code"],
};

function callParts(server: Server): string {
  return server.parts.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ");
}

export class Panel {
  private readonly box = element("panel");
  private readonly ofRequest = new Map<number, number[]>();

  constructor(
    private readonly data: Data,
    private readonly stacks: Stacks,
    private readonly reveal: (node: number) => void,
    private readonly changed: (segment: number) => void,
  ) {
    const { request } = data.pieces;
    for (let piece = 0; piece < request.length; piece++) {
      if (request[piece] === 0) continue;
      const known = this.ofRequest.get(request[piece] - 1);
      if (known === undefined) this.ofRequest.set(request[piece] - 1, [piece]);
      else known.push(piece);
    }
  }

  get isOpen(): boolean {
    return !this.box.hidden;
  }

  close(): void {
    this.box.hidden = true;
    element("rows").focus();
  }

  show(choice: Choice | null): void {
    this.box.replaceChildren();
    this.box.hidden = choice === null;
    if (choice === null) return;
    const close = make("button", "×", "close");
    close.type = "button";
    close.setAttribute("aria-label", "Close (Esc)");
    close.addEventListener("click", () => this.close());
    this.box.append(close);
    if ("piece" in choice) this.showPiece(choice.piece);
    else this.showSegment(choice.request, choice.segment);
    this.box.scrollTop = 0;
  }

  private heading(kind: number, text: string): void {
    const heading = make("h3");
    heading.append(make("i", "", `k-${this.data.kinds[kind].key}`), make("span", text));
    this.box.append(heading);
  }

  private trackText(track: number): string {
    const { process, name, pid } = this.data.tracks[track];
    return name === process ? `${name} (${pid})` : `${process} (${pid}): ${name}`;
  }

  private showPiece(piece: number): void {
    const { pieces, kinds } = this.data;
    const kind = pieces.kind[piece];
    this.heading(kind, `${kinds[kind].name} · ${duration(pieces.ns[piece])}`);
    this.box.append(make("p", `${this.trackText(pieces.track[piece])}, ${duration(pieces.start_ns[piece])} after the begin: ${kinds[kind].meaning}.`));
    this.box.append(make("h4", "Stack"));
    this.stack(piece, this.box);
    this.cause(kinds[kind].key);
    // A stack that ends at a server says it itself.
    if (this.serverOf(piece) === undefined) this.servers(pieces.track[piece], kinds[kind].key);
  }

  /** The server that a wait was for, if it is known. */
  private serverOf(piece: number): number | undefined {
    return this.stacks.path(this.data.pieces.node[piece]).find((of) => this.stacks.kinds[of] === SERVER);
  }

  private showSegment(request: number, segment: number): void {
    const { requests, kinds } = this.data;
    const kind = requests.kind[segment];
    const { key, name, meaning } = kinds[kind];
    const length = requests.end_ns[request] - requests.begin_ns[request];
    const track = requests.track[request];
    this.heading(kind, `${name} · ${duration(requests.ns[segment])}`);
    this.box.append(make("p", `${meaning[0].toUpperCase()}${meaning.slice(1)}: ${share(requests.ns[segment], length)} of the request.`));

    const text = requests.texts[requests.text[request]];
    const facts = make("p", "", "facts");
    if (text !== "") facts.append(make("b", text), document.createElement("br"));
    facts.append(`${duration(length)}, ${duration(requests.begin_ns[request])} after the begin of the recording, by ${this.trackText(track)}`);
    this.box.append(facts);
    if (requests.shared.includes(request)) {
      this.box.append(make("p", "It shared its worker with other requests: no part of the worker's time belongs to one of them."));
    }
    const parts = make("div", "", "chips");
    for (let at = requests.first[request]; at < requests.first[request + 1]; at++) {
      const chip = make("button", "", "chip");
      chip.type = "button";
      chip.setAttribute("aria-pressed", String(at === segment));
      chip.append(
        make("i", "", `k-${kinds[requests.kind[at]].key}`),
        make("span", kinds[requests.kind[at]].name),
        make("small", duration(requests.ns[at])),
      );
      chip.addEventListener("click", () => {
        this.changed(at);
        this.show({ request, segment: at });
      });
      parts.append(chip);
    }
    this.box.append(parts);
    this.cause(key);
    this.stacksOf(request, key, name);
    this.servers(track, key);
  }

  private stacksOf(request: number, key: string, name: string): void {
    const { pieces, kinds, requests } = this.data;
    const all = this.ofRequest.get(request) ?? [];
    const wanted = ALSO[key] ?? [key];
    const longestFirst = (list: number[]): number[] => list.slice().sort((a, b) => pieces.ns[b] - pieces.ns[a]);
    let fitting = longestFirst(all.filter((piece) => wanted.includes(kinds[pieces.kind[piece]].key)));
    let isAround = false;
    this.box.append(make("h4", "Stacks"));
    if (fitting.length === 0) {
      const track = requests.track[request];
      const [from, until] = [requests.begin_ns[request], requests.end_ns[request] + STORED_WITHIN_NS];
      const around: number[] = [];
      for (let piece = pieces.waits_from; piece < pieces.track.length && !pieces.joined; piece++) {
        const end = pieces.start_ns[piece] + pieces.ns[piece];
        if (pieces.track[piece] === track && pieces.request[piece] === 0 && end >= from && end <= until) around.push(piece);
      }
      fitting = longestFirst(around.filter((piece) => wanted.includes(kinds[pieces.kind[piece]].key)));
      isAround = fitting.length > 0;
    }
    if (isAround) {
      this.box.append(make("p", "In which request these waits were is not known: they are those of this worker that were stored until half a second after it.", "quiet"));
    } else if (fitting.length === 0) {
      const why = all.length === 0
        ? `No sample and no wait is known to be of this request. One sample comes every ${duration(this.data.interval_ns)}.`
        : `No sample and no wait of this request is of ${name}; these are the others.`;
      this.box.append(make("p", why, "quiet"));
      fitting = longestFirst(all);
    }
    for (const piece of fitting.slice(0, FIRST_STACKS)) this.stack(piece, this.box);
    const others = fitting.slice(FIRST_STACKS, MAX_STACKS);
    if (others.length > 0) {
      const more = make("details", "", "stack");
      const left = fitting.length - MAX_STACKS;
      more.append(make("summary", left > 0 ? `${others.length} more; ${count(left)} shorter ones are not shown` : `${others.length} more`));
      for (const piece of others) this.stack(piece, more);
      this.box.append(more);
    }
  }

  private stack(piece: number, into: HTMLElement): void {
    const { pieces, kinds } = this.data;
    const kind = kinds[pieces.kind[piece]];
    const isWait = piece >= pieces.waits_from;
    const details = make("details", "", "stack");
    details.open = this.box.querySelector("details[open]") === null;
    const summary = make("summary");
    const what = plural(pieces.count[piece], isWait ? "wait" : "sample");
    summary.append(make("i", "", `k-${kind.key}`), make("b", `${kind.name} ${duration(pieces.ns[piece])}`), make("small", what));
    const all = this.stacks.path(pieces.node[piece]);
    // The program's own functions say most; those of libraries and the kernel, and what it waits for, are inside of them.
    const isOurs = (of: number): boolean => ![0, 4, 5, SERVER].includes(this.stacks.kinds[of]);
    const first = Math.max(0, all.findIndex(isOurs));
    const inside = all.slice(0, first).filter((of) => this.stacks.kinds[of] !== SERVER);
    const path = all.slice(first);
    const list = make("ol");
    for (const of of path.slice(0, MAX_FUNCTIONS)) list.append(make("li", this.stacks.labels[of]));
    if (path.length > MAX_FUNCTIONS) list.append(make("li", `${count(path.length - MAX_FUNCTIONS)} more outside`));
    const button = make("button", "show in the flame graph");
    button.type = "button";
    button.addEventListener("click", () => this.reveal(pieces.node[piece]));
    details.append(summary, list);
    const server = this.serverOf(piece);
    if (server !== undefined) details.append(this.serverText(this.stacks.names[server]));
    if (inside.length > 0) details.append(make("p", `inside of it: ${inside.map((of) => this.stacks.names[of]).reverse().join(" → ")}`, "quiet"));
    details.append(button);
    into.append(details);
  }

  /** A server, and what a call to it takes. */
  private serverText(address: string): HTMLElement {
    const server = this.data.servers.find((one) => one.address === address);
    const text = make("p", "waits for ");
    text.append(make("b", server?.name ?? address));
    if (server !== undefined && server.calls > 0) text.append(`; a call to it takes ${duration(server.mean_ns)}: ${callParts(server)}`);
    return text;
  }

  /** What the doctor says of the line, and who had the CPU. */
  private cause(key: string): void {
    const { findings, takers, kinds } = this.data;
    const line = kinds.find((kind) => kind.key === key)?.name;
    const found = findings.map((finding, at) => ({ ...finding, at })).filter((finding) => finding.line !== null && finding.line === line);
    if (found.length === 0 && !(key === "wake" && takers.length > 0)) return;
    this.box.append(make("h4", "Cause, in the whole recording"));
    for (const finding of found) {
      const text = make("p");
      const link = make("a", finding.rule);
      link.href = `#finding-${finding.at + 1}`;
      text.append(link, ` ${finding.text}`);
      this.box.append(text);
    }
    if (key === "wake" && takers.length > 0) {
      const list = make("ul");
      for (const taker of takers) {
        const who = taker.name === "" ? "nobody (being woken, or a quota)" : taker.name;
        list.append(make("li", `${who}${taker.is_worker ? ", a worker itself" : ""}: had the CPU for ${duration(taker.ns)} of such time`));
      }
      this.box.append(list);
    }
  }

  /** The servers that the time may be of: as the recording counts them by worker, all of that one's. */
  private servers(track: number, key: string): void {
    if (!["wait", "connect", "wake"].includes(key)) return;
    const { worker_servers, servers } = this.data;
    const time = (row: (typeof worker_servers)[0]): number =>
      key === "wait" ? row.wait_ns : key === "connect" ? row.connect_ns : row.wake_ns;
    const rows = worker_servers.filter((row) => row.track === track && time(row) > 0).sort((a, b) => time(b) - time(a));
    if (rows.length === 0) return;
    this.box.append(make("h4", rows.length === 1 ? "Server" : "Servers of this worker, in the whole recording"));
    for (const row of rows.slice(0, MAX_SERVERS)) {
      const server = servers[row.server];
      const details = make("details", "", "stack");
      const summary = make("summary");
      summary.append(make("b", server.name), make("small", `${duration(time(row))}, ${plural(row.calls, "call")}, ${plural(row.connects, "connection")}`));
      details.append(summary);
      if (server.calls > 0) {
        details.append(make("p", `A call takes ${duration(server.mean_ns)}: ${callParts(server)}.`, "quiet"));
      }
      if (server.commands.length > 0) {
        const commands = server.commands.map(([name, calls, mean]) => `${name} ${count(calls)} × ${duration(mean)}`).join(", ");
        details.append(make("p", `${commands}.`, "quiet"));
      }
      this.box.append(details);
    }
  }
}
