// What the page was made with: schema `slip.page/1`, written by crates/report/src/html/data.rs. Names in it are untrusted: they become text,
// by `textContent` or on a canvas, and nothing else.

/** Of functions: no function, but the server that is waited for. */
export const SERVER = 6;

export interface Kind {
  key: string;
  name: string;
  meaning: string;
}

export interface Weights {
  track: number[];
  node: number[];
  on_ns: number[];
  off_ns: number[];
}

export interface Server {
  name: string;
  /** The name of the frame, of kind SERVER, in stacks that wait for it. */
  address: string;
  calls: number;
  mean_ns: number;
  parts: [string, number][];
  commands: [string, number, number][];
}

export interface Data {
  interval_ns: number;
  duration_ns: number;
  kinds: Kind[];
  functions: { name: string[]; file: number[]; files: string[]; line: number[]; kind: number[] };
  nodes: { up: number[]; function: number[] };
  tracks: { process: string; name: string; pid: number; tid: number }[];
  weights: Weights;
  requests_ended: number;
  base: { name: string; weights: Weights; requests_ended: number } | null;
  requests: {
    track: number[];
    begin_ns: number[];
    end_ns: number[];
    text: number[];
    texts: string[];
    first: number[];
    kind: number[];
    ns: number[];
    shared: number[];
  };
  pieces: {
    track: number[];
    start_ns: number[];
    ns: number[];
    node: number[];
    kind: number[];
    count: number[];
    request: number[];
    waits_from: number;
    joined: boolean;
    left_out: number;
  };
  servers: Server[];
  worker_servers: {
    track: number;
    server: number;
    calls: number;
    connects: number;
    connect_ns: number;
    wait_ns: number;
    wake_ns: number;
  }[];
  takers: { name: string; is_worker: boolean; ns: number }[];
  findings: { rule: string; line: string | null; text: string }[];
  has_budget: boolean;
}

/** The data of this page. */
export function readData(): Data {
  return JSON.parse(element("data").textContent ?? "") as Data;
}

/** The element of this name, which is there: it stands in the same page. */
export function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** The tree of stacks: a caller has a smaller number than what it calls. */
export class Stacks {
  readonly count: number;
  /** -1 for those without a caller. */
  readonly parent: Int32Array;
  readonly of: Int32Array;
  /** Where the callees of each node begin in `callees`; one more for those without a caller, which is node `count`. */
  readonly first: Int32Array;
  readonly callees: Int32Array;
  /** How a function is shown, with its place. */
  readonly labels: string[];
  /** The same in short, for boxes: only the file of the place. */
  readonly shorts: string[];
  readonly names: string[];
  readonly kinds: number[];

  constructor(data: Data) {
    const { up, function: functions } = data.nodes;
    const count = up.length;
    this.count = count;
    this.parent = new Int32Array(count);
    this.of = Int32Array.from(functions);
    this.first = new Int32Array(count + 2);
    for (let node = 0; node < count; node++) {
      const parent = up[node] > 0 ? node - up[node] : -1;
      this.parent[node] = parent;
      this.first[(parent < 0 ? count : parent) + 1]++;
    }
    for (let node = 0; node <= count; node++) this.first[node + 1] += this.first[node];
    this.callees = new Int32Array(count);
    const next = this.first.slice();
    for (let node = 0; node < count; node++) {
      const parent = this.parent[node];
      this.callees[next[parent < 0 ? count : parent]++] = node;
    }
    const { name, file, files, line, kind } = data.functions;
    this.names = name;
    this.kinds = kind;
    this.labels = name.map((text, at) => {
      const place = files[file[at]];
      if (place === "") return text;
      return line[at] > 0 ? `${text} (${place}:${line[at]})` : `${text} (${place})`;
    });
    const lasts = files.map((path) => path.slice(path.lastIndexOf("/") + 1));
    this.shorts = name.map((text, at) => (lasts[file[at]] === "" ? text : `${text} (${lasts[file[at]]})`));
  }

  /** The functions of a stack, the innermost first. */
  path(node: number): number[] {
    const path: number[] = [];
    for (let at = node; at >= 0; at = this.parent[at]) path.push(this.of[at]);
    return path;
  }
}

/** Own time of each node, of these tracks: -1 is all. */
export function ownTimes(count: number, weights: Weights, track: number, time: "both" | "on" | "off"): Float64Array {
  const own = new Float64Array(count);
  const { node, on_ns, off_ns } = weights;
  for (let row = 0; row < node.length; row++) {
    if (track >= 0 && weights.track[row] !== track) continue;
    own[node[row]] += (time === "off" ? 0 : on_ns[row]) + (time === "on" ? 0 : off_ns[row]);
  }
  return own;
}

/** Time of each node with all that it calls. */
export function wholeTimes(stacks: Stacks, own: Float64Array): Float64Array {
  const whole = own.slice();
  for (let node = stacks.count - 1; node >= 0; node--) {
    const parent = stacks.parent[node];
    if (parent >= 0) whole[parent] += whole[node];
  }
  return whole;
}
