// Chooses how the lanes of a job reach the server: over HTTP requests or over WebTransport.

import { LaneRefused } from './lane.js';
import { HttpLane } from './lane-http.js';
import { WebTransportLane } from './lane-webtransport.js';
import { TIMES } from './requests.js';

/** @typedef {'http' | 'webtransport'} Path */

/**
 * @typedef {object} LaneSettings
 * @property {'auto' | 'http' | 'webtransport'} kind
 * @property {string} [base] URL of the server without a trailing slash; empty for that of the page
 * @property {string} token of the session
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
 * The server sends by BBR over WebTransport, and tells what its TCP uses. Chromium does not send by
 * BBR over WebTransport, and no page learns what the TCP of its system uses. An upload therefore uses
 * HTTP.
 */
const FAR = 20;

/** Congestion control of TCP that keeps its rate. */
const KEEPS_RATE = /^bbr/;

/** Requests of which the fastest one is the round trip. */
const PROBES = 5;

/** Time for WebTransport to open in `auto`, in milliseconds. UDP can be blocked without an answer. */
const OPEN_TIME = 3000;

/** Status of a request whose token is not valid. */
const SIGNED_OUT = 401;

/** Functions that tests replace. */
const OPENERS = {
  http: HttpLane.open,
  webtransport: WebTransportLane.open,
  probe,
  isSupported: () => typeof WebTransport !== 'undefined',
  /** @type {typeof fetch} */
  fetch: (...args) => fetch(...args),
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
    /** Address of an earlier lane, which the server may still have. @type {string | undefined} */
    this.stale = undefined;
  }

  /**
   * Removes a lane of an earlier page before the next one is opened.
   * @param {string} [url]
   */
  remove(url) {
    this.stale = url;
  }

  /**
   * Removes the earlier lane, whose session has the job until the server has waited for a request
   * for a minute. Its own end did not reach the server if there was no connection.
   */
  async removeStale() {
    if (this.stale) {
      const headers = { 'X-Haul-Token': this.settings.token };
      const { openers, stale } = this;
      const signal = AbortSignal.timeout(TIMES.request);
      await openers.fetch(stale, { method: 'DELETE', headers, signal }).then(() => {
        this.stale = undefined;
      }, () => {});
    }
  }

  /** @returns {Promise<import('./lane.js').Lane>} */
  async open() {
    await this.removeStale();
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
    const { base = '', token, direction, webtransport } = this.settings;
    if (!webtransport || direction !== 'download' || !this.openers.isSupported()) {
      return 'http';
    }
    const { time, congestion } = await this.openers.probe(base, token);
    return time >= FAR && !KEEPS_RATE.test(congestion) ? 'webtransport' : 'http';
  }

  /** @param {Path} path */
  async openBy(path) {
    const { base = '', token, root = 0 } = this.settings;
    const lane = await this.openers[path](base, token, root);
    this.stale = /** @type {{url?: string}} */ (lane).url;
    this.path = path;
    return lane;
  }

  /** Opens a lane over WebTransport, or fails after a time. */
  async openInTime() {
    const { base = '', token, root = 0 } = this.settings;
    const opening = this.openers.webtransport(base, token, root);
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
 * Returns the shortest time of some requests in milliseconds, and the congestion control of the
 * server's TCP. If a request fails, the time is 0. To a server that keeps its rate, the time does not
 * matter, and one request is enough.
 * @param {string} base
 * @param {string} token
 */
async function probe(base, token) {
  let time = Infinity;
  let congestion = '';
  for (let request = 0; request < PROBES && !KEEPS_RATE.test(congestion); request += 1) {
    const since = performance.now();
    try {
      const response = await fetch(`${base}/session`, { headers: { 'X-Haul-Token': token }, cache: 'no-store' });
      congestion = response.headers.get('X-Haul-TCP') ?? '';
      await response.arrayBuffer();
    } catch {
      return { time: 0, congestion };
    }
    time = Math.min(time, performance.now() - since);
  }
  return { time, congestion };
}
