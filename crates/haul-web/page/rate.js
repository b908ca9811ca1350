// The progress of a job over time: its rate and what remains.

/** Points that are kept. When there are more, two become one. */
const POINTS_MAX = 240;

/** Time over which the current rate is taken, in milliseconds. */
const RECENT = 8000;

/** Shortest time between two recent points, in milliseconds. */
const RECENT_STEP = 250;

export class RateHistory {
  constructor() {
    /** Mean rates in bytes per second, each over `step` milliseconds of work. @type {number[]} */
    this.points = [];
    this.step = 1000;
    /** @type {{time: number, bytes: number}[]} */
    this.recent = [];
    this.open = { time: 0, bytes: 0 };
  }

  /** Starts a run. The time between runs does not count. @param {number} time @param {number} bytes */
  start(time, bytes) {
    this.open = { time, bytes };
    this.recent = [this.open];
  }

  /** @param {number} time in milliseconds @param {number} bytes that are done */
  add(time, bytes) {
    const last = this.recent[this.recent.length - 1];
    if (last === undefined || bytes < last.bytes) {
      // A session after a lost lane counts again what it finds.
      this.start(time, bytes);
      return;
    }
    if (time - last.time >= RECENT_STEP) {
      this.recent.push({ time, bytes });
      while (time - this.recent[0].time > RECENT) {
        this.recent.shift();
      }
    }
    const passed = time - this.open.time;
    if (passed >= this.step) {
      this.points.push(((bytes - this.open.bytes) * 1000) / passed);
      this.open = { time, bytes };
      if (this.points.length > POINTS_MAX) {
        const pairs = Array.from({ length: this.points.length >> 1 }, (_, at) => 2 * at);
        this.points = pairs.map((at) => (this.points[at] + this.points[at + 1]) / 2);
        this.step *= 2;
      }
    }
  }

  /** Returns the current rate in bytes per second. */
  rate() {
    const [first, last] = [this.recent[0], this.recent[this.recent.length - 1]];
    return last !== undefined && last.time > first.time ? ((last.bytes - first.bytes) * 1000) / (last.time - first.time) : 0;
  }

  /** Returns the remaining time in seconds, or null if it is unknown. @param {number} left in bytes */
  remaining(left) {
    const rate = this.rate();
    return rate > 0 ? left / rate : null;
  }
}
