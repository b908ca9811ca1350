// One job: connects, moves bytes between a lane and the module, and connects again after a loss.
//
// The module decides what to read, write and send. This file carries that out: events of the module
// go to an `Upload` (upload.js) or a `Download` (download.js), which answer them.

import { LaneLost, LaneRefused } from './lane.js';

/**
 * Times in milliseconds.
 * @typedef {object} Delays
 * @property {number} reconnect delay before a lost lane is opened again; it doubles
 * @property {number} reconnectMax the longest such delay
 * @property {number} tick interval at which the module learns the time
 * @property {number} close time for the last bytes, and for the server to end the lane
 */

/**
 * Ends of a session after which another session continues the job, by the texts of the module: a
 * silent server, a damaged frame, a server that stops, and an earlier session of this job that the
 * server still has.
 */
const CONTINUES = /; connect again( to resume)?$|the server is stopping$|^the server refuses the job: busy: /;

/** @type {Delays} */
const DELAYS = { reconnect: 500, reconnectMax: 30_000, tick: 1000, close: 2000 };

/**
 * A direction of a job.
 * @typedef {object} Direction
 * @property {(core: import('./core.js').Core) => Promise<void> | void} start starts a session
 * @property {(event: import('./core.js').CoreEvent) => void} handle carries out an event
 * @property {() => void} continue called when something may have changed
 * @property {boolean} isAtStorage true if a session that waits does so for the storage
 * @property {() => Promise<void>} end called after a session
 * @property {(error: unknown) => void} fail set by the transfer: ends the job with an error
 */

export class Transfer {
  /**
   * @param {import('./core.js').Core} core
   * @param {Direction} direction
   * @param {() => Promise<import('./lane.js').Lane>} openLane
   * @param {(report: import('./core.js').CoreEvent) => void} report
   * @param {Delays} [delays]
   */
  constructor(core, direction, openLane, report, delays = DELAYS) {
    this.core = core;
    this.direction = direction;
    this.openLane = openLane;
    this.report = report;
    this.delays = delays;
    this.isStopped = false;
    /** @type {Promise<void>} */
    this.stopped = new Promise((resolve) => {
      this.resolveStopped = resolve;
    });
    /** True while the module has a session that can be stopped. */
    this.isStarted = false;
    /** Ends the session, and the job, with an error. */
    this.fail = (/** @type {unknown} */ _error) => {};
    direction.fail = (error) => this.fail(error);
    /** @type {import('./core.js').CoreEvent | null} */
    this.ended = null;
    /** @type {import('./lane.js').Lane | null} */
    this.lane = null;
    /** @type {(() => void)[]} */
    this.waiting = [];
    /**
     * Milliseconds that the loop with the data waited: of an upload the loop that sends, of a
     * download the one that receives. The rest is work of this thread.
     */
    this.waits = { send: { lane: 0, storage: 0, peer: 0 }, receive: { lane: 0, storage: 0, peer: 0 } };
  }

  /**
   * Waits, and adds the time to `waits`.
   * @template T
   * @param {'send' | 'receive'} loop
   * @param {'lane' | 'change'} what
   * @param {Promise<T>} promise
   */
  async wait(loop, what, promise) {
    const since = performance.now();
    const cause = what === 'lane' ? 'lane' : this.direction.isAtStorage ? 'storage' : 'peer';
    try {
      return await promise;
    } finally {
      this.waits[loop][cause] += performance.now() - since;
    }
  }

  /**
   * Runs the job until it ends. Returns the last `ended` event.
   * @returns {Promise<import('./core.js').CoreEvent>}
   */
  async run() {
    const { reconnect, reconnectMax } = this.delays;
    /** @type {import('./core.js').CoreEvent} */
    let last = { type: 'ended', ok: 0, done: 0, same: 0, failed: 0, unread: 0, bytes: 0, again: 0 };
    for (let delay = reconnect; !this.isStopped; delay = Math.min(2 * delay, reconnectMax)) {
      const session = await this.session();
      last = { ...last, ...session.ended };
      if (!session.isLost) {
        return last;
      }
      if (this.isStopped) {
        break;
      }
      if (session.moved) {
        delay = reconnect;
      }
      this.report({ type: 'reconnecting', text: last.text, delay });
      await this.pause(delay);
    }
    return { ...last, text: 'stopped' };
  }

  /** Stops the job. What the server has is kept; the same job resumes. */
  stop() {
    this.isStopped = true;
    this.resolveStopped?.();
    if (this.isStarted) {
      this.attempt(() => this.core.stop());
    }
    // A lane that is stuck would keep the job.
    this.giveUp = setTimeout(() => this.lane?.close(), this.delays.close);
  }

  /**
   * Waits until a time has passed, or the job is stopped.
   * @param {number} ms
   */
  async pause(ms) {
    let timer;
    await Promise.race([this.stopped, new Promise((resolve) => {
      timer = setTimeout(resolve, ms);
    })]);
    clearTimeout(timer);
  }

  /**
   * Calls the module outside of the loops of a session.
   * @param {() => void} call
   */
  attempt(call) {
    try {
      call();
      this.settle();
    } catch (error) {
      this.fail(error);
    }
  }

  /** Opens a lane. Returns null if the job is stopped before that. */
  async connect() {
    const opening = this.openLane();
    const lane = await Promise.race([opening, this.stopped.then(() => null)]);
    if (lane && !this.isStopped) {
      return lane;
    }
    opening.then((late) => late.close(), () => {});
    return null;
  }

  /** Opens a lane and runs one session over it. */
  async session() {
    this.ended = null;
    let lane;
    try {
      lane = await this.connect();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      const refusal = error instanceof LaneRefused ? error : null;
      return { ended: { type: 'ended', ok: 0, text, status: refusal?.status }, isLost: !refusal, moved: false };
    }
    if (!lane) {
      return { ended: { type: 'ended', ok: 0, text: 'stopped' }, isLost: false, moved: false };
    }
    this.lane = lane;
    let isLost = false;
    let isOver = false;
    /** @type {Promise<never>} */
    const failed = new Promise((_, reject) => {
      this.fail = reject;
    });
    failed.catch(() => {});
    const lost = (/** @type {unknown} */ error) => {
      if (isOver) {
        return;
      }
      if (!(error instanceof LaneLost) && error !== undefined) {
        throw error;
      }
      // The server closes the lane after its BYE.
      isLost ||= this.ended === null;
      this.core.laneLost();
      this.settle();
    };
    const ticks = setInterval(() => this.attempt(() => this.core.tick()), this.delays.tick);
    try {
      await Promise.race([this.direction.start(this.core), failed]);
      this.isStarted = true;
      if (this.isStopped) {
        // The job was stopped before the module had this session.
        this.core.stop();
        this.settle();
      }
      const receiving = this.receive(lane).then(() => lost(undefined), lost);
      receiving.catch(this.fail);
      await Promise.race([this.send(lane).catch(lost), failed]);
      if (!isLost) {
        // The server ends the lane when it has read the BYE.
        const closing = lane.finish().then(() => receiving);
        await Promise.race([closing.catch(() => {}), after(this.delays.close)]);
      }
      lane.close();
      await Promise.race([receiving, failed]);
    } finally {
      isOver = true;
      this.isStarted = false;
      this.lane = null;
      clearTimeout(this.giveUp);
      lane.close();
      clearInterval(ticks);
      await this.direction.end();
    }
    const ended = /** @type {import('./core.js').CoreEvent} */ (/** @type {unknown} */ (this.ended));
    isLost ||= !ended.ok && CONTINUES.test(ended.text);
    return { ended, isLost, moved: ended.bytes > 0 || ended.done > 0 };
  }

  /** Sends the output of the module until the session is over. */
  async send(/** @type {import('./lane.js').Lane} */ lane) {
    for (;;) {
      for (let bytes = this.core.output(); bytes; bytes = this.core.output()) {
        for (let at = lane.take(bytes); at < bytes.length; at += lane.take(bytes.subarray(at))) {
          await this.wait('send', 'lane', lane.space());
          // The same bytes: the module can have moved its memory meanwhile.
          bytes = /** @type {Uint8Array} */ (this.core.output());
        }
        this.core.outputSent();
        this.settle();
      }
      lane.flush();
      if (this.ended) {
        return;
      }
      await this.wait('send', 'change', this.change());
    }
  }

  /** Passes the bytes of the lane to the module. */
  async receive(/** @type {import('./lane.js').Lane} */ lane) {
    const pieces = lane.pieces();
    try {
      for (;;) {
        const { value: piece, done } = await this.wait('receive', 'lane', pieces.next());
        if (done || !(await this.take(piece))) {
          return;
        }
      }
    } finally {
      await pieces.return();
    }
  }

  /**
   * Passes a piece of the lane to the module. Returns false if the session is over.
   * @param {Uint8Array} piece
   */
  async take(piece) {
    for (let at = 0; at < piece.length;) {
      at += this.core.feed(piece.subarray(at));
      while (!this.core.advance()) {
        // The module waits until events are taken, or until some writes are done.
        if (!this.settle()) {
          if (this.ended) {
            return false;
          }
          await this.wait('receive', 'change', this.change());
        }
      }
      this.settle();
    }
    return true;
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

/**
 * Waits.
 * @param {number} ms
 */
function after(ms) {
  return new Promise((resolve) => setTimeout(() => resolve(undefined), ms));
}
