// What both drawings have in common: a canvas as sharp as the screen, one drawing for each frame, and text that fits.

export class Surface {
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;
  private isAsked = false;
  private letter = 7;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly box: HTMLElement,
    private readonly draw: () => void,
    readonly font: string,
  ) {
    this.context = canvas.getContext("2d") as CanvasRenderingContext2D;
    new ResizeObserver(() => this.fit()).observe(box);
  }

  /** Takes on the size of its box; false as long as that is not shown. */
  fit(): boolean {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (width === 0 || height === 0) return false;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.width = width;
    this.height = height;
    this.ask();
    return true;
  }

  /** Draws once before the next frame, however often it is asked to. */
  ask(): void {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      if (this.width === 0) return;
      const ratio = window.devicePixelRatio || 1;
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.context.font = this.font;
      this.context.textBaseline = "middle";
      // The font has letters of one width, so that what fits is known without measuring each text.
      this.letter = this.context.measureText("mmmmmmmmmm").width / 10;
      this.draw();
    });
  }

  /** As much of a text as fits; nothing if that is hardly any. */
  fitting(text: string, width: number): string {
    const letters = Math.floor(width / this.letter);
    if (text.length <= letters) return text;
    return letters < 3 ? "" : `${text.slice(0, letters - 1)}…`;
  }
}

/** Calls back with a moving value from 0 to 1; at once with 1 for who does not want motion. */
export function glide(step: (at: number) => void): () => void {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    step(1);
    return () => undefined;
  }
  const begin = performance.now();
  let isStopped = false;
  const frame = (): void => {
    if (isStopped) return;
    const at = Math.min(1, (performance.now() - begin) / 140);
    step(1 - (1 - at) * (1 - at));
    if (at < 1) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  return () => {
    isStopped = true;
  };
}
