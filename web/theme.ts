// Dark and light, and the colours that a canvas needs.

const listeners: (() => void)[] = [];

/** Colours by their names in page.css, as they are now. */
export class Colours {
  private known = new Map<string, string>();

  constructor() {
    onTheme(() => this.known.clear());
  }

  of(name: string): string {
    let colour = this.known.get(name);
    if (colour === undefined) {
      colour = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";
      this.known.set(name, colour);
    }
    return colour;
  }
}

export function onTheme(listener: () => void): void {
  listeners.push(listener);
}

const system = matchMedia("(prefers-color-scheme: dark)");

/** What was chosen on an earlier page, if anything was. */
function kept(): string | null {
  try {
    return localStorage.getItem("slip-theme");
  } catch {
    // Pages from a file may not keep anything.
    return null;
  }
}

function show(isDark: boolean): void {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  for (const listener of listeners) listener();
}

export function toggleTheme(): void {
  system.removeEventListener("change", follow);
  show(document.documentElement.dataset.theme !== "dark");
  try {
    localStorage.setItem("slip-theme", document.documentElement.dataset.theme ?? "light");
  } catch {
    // As above.
  }
}

function follow(): void {
  show(system.matches);
}

/** As it was chosen, else as the system has it. */
export function startTheme(): void {
  const chosen = kept();
  if (chosen === "dark" || chosen === "light") {
    show(chosen === "dark");
    return;
  }
  follow();
  system.addEventListener("change", follow);
}
