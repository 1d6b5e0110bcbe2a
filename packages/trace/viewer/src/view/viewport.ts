/** The visible interval of time, in nanoseconds, over a number of pixels. */

const LEAST_NS = 50;

export class Viewport {
  begin = 0;
  nsPerPixel = 1;

  constructor(public width = 1000, public lowest = 0, public highest = 1) {}

  get end(): number {
    return this.begin + this.width * this.nsPerPixel;
  }

  x(time: number): number {
    return (time - this.begin) / this.nsPerPixel;
  }

  time(x: number): number {
    return this.begin + x * this.nsPerPixel;
  }

  /** Show an interval with a margin, which is a share of its length. */
  show(begin: number, end: number, margin = 0): void {
    const length = Math.max(LEAST_NS, end - begin);
    this.begin = (begin + end) / 2 - (length / 2) * (1 + 2 * margin);
    this.nsPerPixel = (length * (1 + 2 * margin)) / this.width;
    this.limit();
  }

  /** Multiply the length of the interval by a factor; the time at `x` stays where it is. */
  zoom(factor: number, x: number): void {
    const time = this.time(x);
    this.nsPerPixel *= factor;
    this.limitScale();
    this.begin = time - x * this.nsPerPixel;
    this.limit();
  }

  pan(pixels: number): void {
    this.begin += pixels * this.nsPerPixel;
    this.limit();
  }

  /** Scroll as little as possible so that an interval is visible; its start if it is too long. */
  reveal(begin: number, end: number): void {
    const margin = 40 * this.nsPerPixel;
    const isLong = end - begin > (this.width - 80) * this.nsPerPixel;
    if (isLong && begin < this.end - margin && end > this.begin + margin) return;
    if (begin < this.begin + margin) this.begin = begin - margin;
    else if (end > this.end - margin) {
      this.begin = isLong ? begin - margin : end + margin - this.width * this.nsPerPixel;
    }
    this.limit();
  }

  private limitScale(): void {
    const most = Math.max(LEAST_NS, (this.highest - this.lowest) * 1.2);
    const scale = Math.min(most / this.width, this.nsPerPixel);
    this.nsPerPixel = Math.max(LEAST_NS / this.width, scale);
  }

  private limit(): void {
    this.limitScale();
    const half = (this.width * this.nsPerPixel) / 2;
    const low = this.lowest - half;
    const high = this.highest - half;
    this.begin = Math.min(Math.max(this.begin, low), Math.max(low, high));
  }
}

/** Return the distance of the ticks of a ruler: 1, 2 or 5 times a power of 10 nanoseconds. */
export function tickStep(nsPerPixel: number, pixels: number): number {
  const least = nsPerPixel * pixels;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? least;
}
