// Chooses how the lanes of a job reach the server: over HTTP requests or over WebTransport.

import { LaneRefused } from './lane.js';
import { HttpLane } from './lane-http.js';
import { WebTransportLane } from './lane-webtransport.js';

/**
 * @typedef {object} LaneSettings
 * @property {'auto' | 'http' | 'webtransport'} kind
 * @property {string} [base] URL of the server without a trailing slash; empty for that of the page
 * @property {string} csrf token of the HTTP session
 * @property {number} [root] number of the server's root
 * @property {boolean} [webtransport] true if the server has WebTransport
 */

/**
 * Round trip in milliseconds from which on `auto` uses WebTransport. The network process of a
 * browser moves fewer bytes per second over WebTransport: HTTP is faster to a server that is near.
 * Far away, loss and round trips count more, and WebTransport is not bound to one TCP connection.
 */
const FAR = 20;

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
  roundTrip,
  isSupported: () => typeof WebTransport !== 'undefined',
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
    /** The path of the last lane. */
    this.path = 'http';
    /** True if `auto` tries WebTransport; unknown before the first lane. @type {boolean | null} */
    this.tries = null;
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
    const { kind, base = '' } = this.settings;
    if (kind === 'webtransport') {
      return this.openBy('webtransport');
    }
    if (kind === 'auto') {
      // A lane over WebTransport that was lost, or did not open, is not tried again.
      const isFirst = this.tries === null;
      this.tries = isFirst && await this.isFar(base);
    }
    if (this.tries) {
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

  /** @param {string} base */
  async isFar(base) {
    const { webtransport } = this.settings;
    return Boolean(webtransport) && this.openers.isSupported() && await this.openers.roundTrip(base) >= FAR;
  }

  /** @param {'http' | 'webtransport'} path */
  async openBy(path) {
    const { base = '', csrf, root = 0 } = this.settings;
    const lane = await this.openers[path](base, csrf, root);
    this.path = path;
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
      const lane = await Promise.race([opening, late]);
      this.path = 'webtransport';
      return lane;
    } catch (error) {
      opening.then((lane) => lane.close(), () => {});
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/**
 * Returns the shortest time of some requests in milliseconds, or 0 if one fails.
 * @param {string} base
 */
async function roundTrip(base) {
  let shortest = Infinity;
  for (let probe = 0; probe < PROBES; probe += 1) {
    const since = performance.now();
    try {
      await (await fetch(`${base}/session`, { cache: 'no-store' })).arrayBuffer();
    } catch {
      return 0;
    }
    shortest = Math.min(shortest, performance.now() - since);
  }
  return shortest;
}
