// Chooses how the lanes of a job reach the server: over HTTP requests or over WebTransport.

import { LaneRefused } from './lane.js';
import { HttpLane } from './lane-http.js';
import { WebTransportLane } from './lane-webtransport.js';

/** @typedef {'http' | 'webtransport'} Path */

/**
 * @typedef {object} LaneSettings
 * @property {'auto' | 'http' | 'webtransport'} kind
 * @property {string} [base] URL of the server without a trailing slash; empty for that of the page
 * @property {string} csrf token of the HTTP session
 * @property {number} [root] number of the server's root
 * @property {boolean} [webtransport] true if the server has WebTransport
 * @property {'upload' | 'download'} [direction] of the bytes of the job
 */

/**
 * Round trip in milliseconds from which on `auto` can use WebTransport. The network process of a
 * browser moves fewer bytes per second over WebTransport, so that HTTP is faster to a server that is
 * near. Far away, the congestion control of the sender decides: BBR keeps its rate on a path that
 * loses packets, CUBIC and Reno do not.
 *
 * The server sends by BBR over WebTransport, and tells what its TCP uses. Chromium sends by CUBIC
 * over WebTransport, and no page learns what the TCP of its system uses. An upload therefore starts
 * over HTTP. If that is slow, it tries WebTransport, and returns if that is slower.
 */
const FAR = 20;

/** Congestion control of TCP that keeps its rate. */
const KEEPS_RATE = /^bbr/;

/**
 * Rate in bytes per millisecond below which an upload over HTTP is slow. Reno has 9 MB/s with a
 * round trip of 20 ms and one packet of 10,000 lost, and less with more of either.
 */
const SLOW = 9000;

/**
 * Time in milliseconds of a lane after which its rate is measured. CUBIC is fast until a window of
 * many packets has lost some.
 */
const START_TIME = 2000;

/** Time in milliseconds for which the rate of an upload is measured, by its path. */
const MEASURED_TIME = { http: 2000, webtransport: 3000 };

/** Part of the rate of HTTP below which an upload leaves WebTransport. Both rates are estimates. */
const SLOWER = 0.7;

/** Part of the time for which an upload waits for its lane if this limits the rate. */
const WAITING = 0.25;

/**
 * Time in milliseconds that an upload has to take over HTTP yet, to leave it. A move costs about one
 * second, which is lost on a path that loses nothing and is slow by its rate.
 */
const LEFT_TIME = 15_000;

/** Requests of which the fastest one is the round trip. */
const PROBES = 5;

/** Time for WebTransport to open in `auto`, in milliseconds. UDP can be blocked without an answer. */
const OPEN_TIME = 3000;

/** Status of a request whose cookie is not valid. */
const SIGNED_OUT = 401;

/** Functions that tests replace. */
const OPENERS = {
  http: HttpLane.open,
  webtransport: WebTransportLane.open,
  probe,
  isSupported: () => typeof WebTransport !== 'undefined',
  now: () => performance.now(),
};

export class LaneChooser {
  /**
   * @param {LaneSettings} settings
   * @param {typeof OPENERS} [openers]
   * @param {number} [openTime]
   */
  constructor(settings, openers = OPENERS, openTime = OPEN_TIME) {
    this.settings = settings;
    this.openers = openers;
    this.openTime = openTime;
    /** The path of the last lane. @type {Path} */
    this.path = 'http';
    /** The path of the next lane in `auto`; null before the first one. @type {Path | null} */
    this.next = null;
    /** Round trip of an upload in milliseconds, once it is known. */
    this.roundTrip = 0;
    /** Settled bytes of an upload, and the milliseconds that it waited for its lanes. */
    this.reached = { bytes: 0, waited: 0 };
    /** The time when the last lane was opened. */
    this.opened = 0;
    /**
     * What an upload had reached, and the time, when the measurement of its rate began.
     * @type {{bytes: number, waited: number, at: number} | null}
     */
    this.begin = null;
    /** Rate over HTTP after which an upload tried WebTransport. @type {number | null} */
    this.rate = null;
    /** @type {Promise<void>} */
    this.removing = Promise.resolve();
  }

  /**
   * Removes a lane of an earlier page. The first session waits for it, and tolerates a failure.
   * @param {string} [url]
   */
  remove(url) {
    if (url) {
      const headers = { 'X-Haul-CSRF': this.settings.csrf };
      this.removing = fetch(url, { method: 'DELETE', headers }).then(() => {}, () => {});
    }
  }

  /** @returns {Promise<import('./lane.js').Lane>} */
  async open() {
    await this.removing;
    const { kind } = this.settings;
    if (kind !== 'auto') {
      return this.openBy(kind);
    }
    const path = this.next ?? await this.first();
    // A lane over WebTransport that was lost, or did not open, is not tried again.
    this.next = 'http';
    if (path === 'webtransport') {
      try {
        return await this.openInTime();
      } catch (error) {
        if (error instanceof LaneRefused && error.status === SIGNED_OUT) {
          throw error;
        }
      }
    }
    return this.openBy('http');
  }

  /** Returns the path of the first lane. @returns {Promise<Path>} */
  async first() {
    const { base = '', direction, webtransport } = this.settings;
    if (!webtransport || !this.openers.isSupported()) {
      return 'http';
    }
    const probing = this.openers.probe(base, direction);
    if (direction === 'upload') {
      probing.then(({ time }) => {
        this.roundTrip = time;
      });
      return 'http';
    }
    const { time, congestion } = await probing;
    return time >= FAR && !KEEPS_RATE.test(congestion) ? 'webtransport' : 'http';
  }

  /**
   * Takes what an upload has reached. Returns true if it is to leave its lane, because `auto` has
   * another path for the next one.
   * @param {number} bytes settled bytes
   * @param {number} left bytes that are not settled; 0 if that is unknown
   * @param {number} waited milliseconds for which the job waited for its lanes
   */
  leaves(bytes, left, waited) {
    // Right after an object was settled, little is sent again.
    const isSettled = bytes > this.reached.bytes;
    this.reached = { bytes: Math.max(bytes, this.reached.bytes), waited };
    const now = this.openers.now();
    const { begin, path, settings } = this;
    if (settings.kind !== 'auto' || settings.direction !== 'upload' || !(isSettled || path === 'webtransport')) {
      return false;
    }
    if (!begin) {
      this.begin = now - this.opened >= START_TIME ? { ...this.reached, at: now } : null;
      return false;
    }
    const time = now - begin.at;
    const rate = (this.reached.bytes - begin.bytes) / time;
    if (time < MEASURED_TIME[path]) {
      return false;
    }
    if (path === 'webtransport') {
      const isSlower = this.rate !== null && rate < SLOWER * this.rate;
      this.rate = null;
      return isSlower;
    }
    if (this.roundTrip < FAR || this.rate !== null) {
      return false;
    }
    this.roundTrip = 0;
    const isSlow = rate < SLOW && left > LEFT_TIME * rate && waited - begin.waited >= WAITING * time;
    if (isSlow) {
      [this.rate, this.next] = [rate, 'webtransport'];
    }
    return isSlow;
  }

  /** @param {Path} path */
  async openBy(path) {
    const { base = '', csrf, root = 0 } = this.settings;
    return this.use(path, await this.openers[path](base, csrf, root));
  }

  /**
   * @param {Path} path
   * @param {import('./lane.js').Lane} lane
   */
  use(path, lane) {
    this.path = path;
    [this.opened, this.begin] = [this.openers.now(), null];
    return lane;
  }

  /** Opens a lane over WebTransport, or fails after a time. */
  async openInTime() {
    const { base = '', csrf, root = 0 } = this.settings;
    const opening = this.openers.webtransport(base, csrf, root);
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('WebTransport does not open')), this.openTime);
    });
    try {
      return this.use('webtransport', await Promise.race([opening, late]));
    } catch (error) {
      opening.then((lane) => lane.close(), () => {});
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/**
 * Returns the shortest time of some requests in milliseconds, and the congestion control of the
 * server's TCP. If a request fails, the time is 0. A download from a server that keeps its rate
 * does not need the time, and waits for one request only.
 * @param {string} base
 * @param {LaneSettings['direction']} direction
 */
async function probe(base, direction) {
  let time = Infinity;
  let congestion = '';
  const isKnown = () => direction === 'download' && KEEPS_RATE.test(congestion);
  for (let request = 0; request < PROBES && !isKnown(); request += 1) {
    const since = performance.now();
    try {
      const response = await fetch(`${base}/session`, { cache: 'no-store' });
      congestion = response.headers.get('X-Haul-TCP') ?? '';
      await response.arrayBuffer();
    } catch {
      return { time: 0, congestion };
    }
    time = Math.min(time, performance.now() - since);
  }
  return { time, congestion };
}
