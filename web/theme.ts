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

export function isDark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen !== undefined ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function tell(): void {
  for (const listener of listeners) listener();
}

export function toggleTheme(): void {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("slip-theme", document.documentElement.dataset.theme);
  } catch {
    // Pages from a file may not keep anything.
  }
  tell();
}

export function startTheme(): void {
  try {
    const kept = localStorage.getItem("slip-theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch {
    // As above.
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
}
