// The page's begin: views, keys, and what is made only when somebody looks at it.

import { Stacks, element, readData } from "./data";
import { Graph } from "./graph";
import { Panel } from "./panel";
import { Colours, startTheme, toggleTheme } from "./theme";
import { Timeline } from "./timeline";

const VIEWS = ["overview", "requests", "flame"] as const;
type View = (typeof VIEWS)[number];

/** What is drawn from the data. */
class Drawings {
  readonly graph: Graph;
  readonly timeline: Timeline;
  readonly panel: Panel;

  constructor(open: (view: View) => void) {
    const data = readData();
    const stacks = new Stacks(data);
    const colours = new Colours();
    this.graph = new Graph(data, stacks, colours);
    this.panel = new Panel(
      data,
      stacks,
      (node) => {
        open("flame");
        this.graph.reveal(node);
        element("flame-box").focus();
      },
      (segment) => this.timeline.select(segment),
    );
    this.timeline = new Timeline(data, colours, (choice) => this.panel.show(choice));
  }
}

let drawings: Drawings | null = null;
let view: View = "overview";

function made(): Drawings {
  drawings ??= new Drawings(open);
  return drawings;
}

function open(wanted: View): void {
  view = wanted;
  for (const one of VIEWS) {
    element(one).hidden = one !== wanted;
    const tab = element(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === wanted));
    tab.tabIndex = one === wanted ? 0 : -1;
  }
  document.body.dataset.view = wanted;
  if (wanted === "requests") made().timeline.show();
  if (wanted === "flame") made().graph.open();
}

/** The place within the page that the address names, such as `#flame` or `#finding-1`. */
function follow(): void {
  const place = location.hash.slice(1);
  const wanted = VIEWS.find((one) => one === place);
  if (wanted !== undefined) open(wanted);
  else if (/^finding-\d+$/.test(place)) {
    open("overview");
    document.getElementById(place)?.scrollIntoView({ block: "center" });
  }
}

function key(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const dialog = element<HTMLDialogElement>("keys");
  if (dialog.open) return;
  const target = event.target as HTMLElement;
  const isTyping = target instanceof HTMLInputElement && target.type === "search";
  if (event.key === "Escape") {
    if (isTyping) target.blur();
    else if (view === "requests" && made().panel.isOpen) made().panel.close();
    else if (view === "flame") made().graph.escape();
    return;
  }
  if (isTyping || target instanceof HTMLSelectElement) return;
  if (event.key === "?") dialog.showModal();
  else if (event.key === "t") toggleTheme();
  else if (/^[123]$/.test(event.key)) {
    open(VIEWS[Number(event.key) - 1]);
    focusView();
  } else if (view === "requests") {
    if (!made().timeline.letter(event.key)) return;
  } else if (view === "flame") {
    if (!made().graph.letter(event.key)) return;
  } else if (event.key === "/") {
    open("flame");
    made().graph.letter("/");
  } else return;
  event.preventDefault();
}

function focusView(): void {
  if (view === "requests") element("rows").focus();
  else if (view === "flame") element("flame-box").focus();
  else element("tab-overview").focus();
}

function start(): void {
  startTheme();
  VIEWS.forEach((one, at) => {
    const tab = element(`tab-${one}`);
    tab.addEventListener("click", () => open(one));
    tab.addEventListener("keydown", (event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (by === 0) return;
      event.preventDefault();
      const next = VIEWS[(at + by + VIEWS.length) % VIEWS.length];
      open(next);
      element(`tab-${next}`).focus();
    });
  });
  element("theme").addEventListener("click", toggleTheme);
  element("help").addEventListener("click", () => element<HTMLDialogElement>("keys").showModal());
  for (const form of document.querySelectorAll("form.controls")) form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", key);
  window.addEventListener("hashchange", follow);
  open("overview");
  follow();
  // What is looked at next is there when it is asked for; the first screen has been painted by then.
  setTimeout(made, 200);
}

start();
