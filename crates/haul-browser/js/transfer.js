// One job: connects, moves bytes between a lane and the module, and connects again after a loss.
//
// The module decides what to read, write and send. This file carries that out: events of the module
// go to an `Upload` (upload.js) or a `Download` (download.js), which answer them.

import { LaneLost } from './lane-http.js';

/** Delay before a lost lane is opened again, in milliseconds: the first one, and the longest. */
const RECONNECT_DELAY = 500;
const RECONNECT_DELAY_MAX = 30_000;

/** Interval at which the module learns the time, in milliseconds. */
const TICK = 1000;

/** Time that a server has to end the lane after the session, in milliseconds. */
const CLOSE_DELAY = 2000;

/**
 * A direction of a job.
 * @typedef {object} Direction
 * @property {(core: import('./core.js').Core) => Promise<void> | void} start starts a session
 * @property {(event: import('./core.js').CoreEvent) => void} handle carries out an event
 * @property {() => void} continue called when something may have changed
 * @property {() => Promise<void>} end called after a session
 */

export class Transfer {
  /**
   * @param {import('./core.js').Core} core
   * @param {Direction} direction
   * @param {() => Promise<import('./lane-http.js').Lane>} openLane
   * @param {(report: import('./core.js').CoreEvent) => void} report
   */
  constructor(core, direction, openLane, report) {
    this.core = core;
    this.direction = direction;
    this.openLane = openLane;
    this.report = report;
    this.isStopped = false;
    /** @type {import('./core.js').CoreEvent | null} */
    this.ended = null;
    /** @type {(() => void)[]} */
    this.waiting = [];
    /** Wakes the delay before a connection. */
    this.wake = () => {};
  }

  /**
   * Runs the job until it ends. Returns the last `ended` event.
   * @returns {Promise<import('./core.js').CoreEvent>}
   */
  async run() {
    for (let delay = RECONNECT_DELAY; ; delay = Math.min(2 * delay, RECONNECT_DELAY_MAX)) {
      const { ended, isLost, moved } = await this.session();
      if (!isLost || this.isStopped) {
        return ended;
      }
      if (moved) {
        delay = RECONNECT_DELAY;
      }
      this.report({ type: 'reconnecting', text: ended.text, delay });
      await new Promise((resolve) => {
        this.wake = () => resolve(undefined);
        setTimeout(resolve, delay);
      });
    }
  }

  /** Stops the job. What the server has is kept; the same job resumes. */
  stop() {
    this.isStopped = true;
    this.wake();
    this.core.stop();
    this.settle();
  }

  /** Opens a lane and runs one session over it. */
  async session() {
    this.ended = null;
    let lane;
    try {
      lane = await this.openLane();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return { ended: { type: 'ended', ok: 0, text }, isLost: true, moved: false };
    }
    let isLost = false;
    const lost = (/** @type {unknown} */ error) => {
      // The server closes the lane after its BYE.
      isLost ||= this.ended === null;
      this.core.laneLost();
      this.settle();
      if (!(error instanceof LaneLost) && error !== undefined) {
        throw error;
      }
    };
    const ticks = setInterval(() => {
      this.core.tick();
      this.settle();
    }, TICK);
    try {
      await this.direction.start(this.core);
      const receiving = this.receive(lane).then(() => lost(undefined), lost);
      // Awaited below, possibly later than it fails.
      receiving.catch(() => {});
      await this.send(lane).catch(lost);
      await lane.finish();
      // The server ends the lane when it has read the BYE.
      await Promise.race([receiving, new Promise((resolve) => setTimeout(resolve, CLOSE_DELAY))]);
      lane.close();
      await receiving;
    } finally {
      lane.close();
      clearInterval(ticks);
      await this.direction.end();
    }
    const ended = /** @type {import('./core.js').CoreEvent} */ (/** @type {unknown} */ (this.ended));
    return { ended, isLost, moved: ended.bytes > 0 || ended.done > 0 };
  }

  /** Sends the output of the module until the session is over. */
  async send(/** @type {import('./lane-http.js').Lane} */ lane) {
    for (;;) {
      for (let bytes = this.core.output(); bytes; bytes = this.core.output()) {
        // A copy: the module can move its memory while the lane waits.
        await lane.write(bytes.slice());
        this.core.outputSent();
        this.settle();
      }
      lane.flush();
      if (this.ended) {
        return;
      }
      await this.change();
    }
  }

  /** Passes the bytes of the lane to the module. */
  async receive(/** @type {import('./lane-http.js').Lane} */ lane) {
    for await (const piece of lane.pieces()) {
      for (let at = 0; at < piece.length;) {
        at += this.core.feed(piece.subarray(at));
        while (!this.core.advance()) {
          // The module waits until events are taken, or until some writes are done.
          if (!this.settle()) {
            await this.change();
          }
        }
        this.settle();
      }
    }
  }

  /** Takes all events of the module, and wakes what waits for a change. Returns false if none. */
  settle() {
    let some = false;
    for (let event = this.core.nextEvent(); event; event = this.core.nextEvent()) {
      some = true;
      if (event.type === 'ended') {
        this.ended = event;
      } else {
        this.direction.handle(event);
      }
    }
    this.direction.continue();
    this.waiting.splice(0).forEach((wake) => wake());
    return some;
  }

  /** Waits until something has changed. */
  change() {
    return new Promise((resolve) => this.waiting.push(() => resolve(undefined)));
  }
}
