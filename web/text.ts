// Numbers as text, as the other forms of the report have them.

/** Three digits or so: `12.3 ms`. */
export function duration(ns: number): string {
  const size = Math.abs(ns);
  if (size < 1e3) return `${Math.round(ns)} ns`;
  if (size < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (size < 1e8) return `${(ns / 1e6).toFixed(1)} ms`;
  if (size < 1e9) return `${(ns / 1e6).toFixed(0)} ms`;
  if (size < 6e11) return `${(ns / 1e9).toFixed(1)} s`;
  return `${(ns / 6e10).toFixed(1)} min`;
}

export function share(part: number, whole: number): string {
  return `${(whole > 0 ? (part * 100) / whole : 0).toFixed(1)} %`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** `1 request`, `2 requests`. */
export function plural(value: number, word: string): string {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

/** An element with text in it, which may come from a target. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text = "",
  name = "",
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (name !== "") made.className = name;
  return made;
}
