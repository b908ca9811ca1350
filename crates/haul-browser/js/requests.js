// Requests of a lane over HTTP: their time limits, and which of them are made again.

import { LaneLost } from './lane.js';
import { limitedText } from './limited-text.js';

/**
 * Times in milliseconds.
 * @typedef {object} Times
 * @property {number} retry delay before the second try of a request; it doubles
 * @property {number} retryMax the longest such delay
 * @property {number} failing time for which a request is made again after its first failure; the
 *   server keeps a lane for 60 seconds without requests
 * @property {number} request time that a request has, besides that for its bytes
 */

/** @type {Times} */
export const TIMES = { retry: 250, retryMax: 5000, failing: 50_000, request: 60_000 };

/** A request has more time for its bytes: as at this rate, in bytes per millisecond. */
const SLOWEST = 16;

/** Largest answer with the reason for a failure, in bytes. */
const REASON_MAX = 1 << 16;

/** A response with another status than success. */
class Failed extends Error {
  /**
   * @param {string} text
   * @param {number} status
   */
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

export class Requests {
  /**
   * @param {string} url of the lane
   * @param {Record<string, string>} headers of all requests
   * @param {typeof fetch} fetcher
   * @param {Times} times
   */
  constructor(url, headers, fetcher, times) {
    this.url = url;
    this.headers = headers;
    this.fetcher = fetcher;
    this.times = times;
    this.stopper = new AbortController();
  }

  /** Ends all requests. */
  stop() {
    this.stopper.abort();
  }

  /**
   * Returns the time limit of a request.
   * @param {number} [bytes] of its body
   */
  limit(bytes = 0) {
    return new TimeLimit(this.times.request + bytes / SLOWEST, this.stopper.signal);
  }

  /**
   * Makes a request once. Fails unless the status is one of success.
   * @param {TimeLimit} limit
   * @param {'GET' | 'PUT'} method
   * @param {number} number
   * @param {RequestInit} [options]
   */
  async once(limit, method, number, { headers, ...options } = {}) {
    const all = { ...this.headers, ...headers };
    const { signal } = limit;
    const response = await this.fetcher(`${this.url}/${number}`, { method, headers: all, signal, cache: 'no-store', ...options });
    if (!response.ok) {
      throw new Failed(await reason(response), response.status);
    }
    return response;
  }

  /**
   * Sends a body, several times if the network or the server is the cause of a failure.
   * @param {number} number
   * @param {Record<string, string>} headers
   * @param {Uint8Array<ArrayBuffer>} [body]
   */
  async put(number, headers, body) {
    const retries = this.retries('PUT', number);
    for (;;) {
      const limit = this.limit(body?.length);
      try {
        // The body of the answer is part of it: a connection can fail after the head.
        await (await this.once(limit, 'PUT', number, { headers, body })).arrayBuffer();
        return;
      } catch (error) {
        await retries.after(error);
      } finally {
        limit.end();
      }
    }
  }

  /**
   * Waits for the response with a piece. Its time limit continues.
   * @param {number} number
   * @param {Retries} retries
   */
  async get(number, retries) {
    for (;;) {
      const limit = this.limit();
      try {
        const response = await this.once(limit, 'GET', number);
        if (response.status !== 204) {
          return { response, limit };
        }
        limit.end();
      } catch (error) {
        limit.end();
        await retries.after(error);
      }
    }
  }

  /**
   * @param {'GET' | 'PUT'} method
   * @param {number} number
   */
  retries(method, number) {
    return new Retries(this, method, number);
  }
}

/** The failures of one request, and the delays after them. */
export class Retries {
  /**
   * @param {Requests} requests
   * @param {'GET' | 'PUT'} method
   * @param {number} number
   */
  constructor({ times, stopper }, method, number) {
    this.times = times;
    this.signal = stopper.signal;
    this.method = method;
    this.number = number;
    this.pause = times.retry;
    /** When the request is given up; unknown before its first failure. */
    this.end = Infinity;
  }

  /**
   * Waits before the next attempt. Fails if there is none.
   * @param {unknown} error
   */
  async after(error) {
    const status = error instanceof Failed ? error.status : 0;
    // 409: too far ahead of a piece that is being sent again.
    let isOver = status > 0 && status < 500 && ![408, 409, 429].includes(status);
    if (!isOver && !this.signal.aborted) {
      // 503: the server has the lane, and asks for the request again.
      const isPatient = this.method === 'PUT' && status === 503;
      this.end = isPatient ? Infinity : Math.min(this.end, Date.now() + this.times.failing);
      await delay(this.pause, this.signal);
      this.pause = Math.min(2 * this.pause, this.times.retryMax);
      isOver = Date.now() >= this.end;
    }
    if (this.signal.aborted) {
      throw new LaneLost('the lane is closed');
    }
    if (isOver) {
      const text = error instanceof Failed ? error.message : String(error);
      throw new LaneLost(`cannot ${this.method} piece ${this.number} of the lane: ${text}`);
    }
  }
}

/** A signal that aborts after a time, or with another signal. */
export class TimeLimit {
  /**
   * @param {number} ms
   * @param {AbortSignal} [other]
   */
  constructor(ms, other) {
    const controller = new AbortController();
    this.signal = controller.signal;
    this.other = other;
    this.ms = ms;
    this.stop = () => controller.abort();
    this.expire = () => controller.abort(new Error(`no answer within ${Math.round(this.ms / 1000)} seconds`));
    if (other?.aborted) {
      controller.abort();
    }
    other?.addEventListener('abort', this.stop);
    this.start(ms);
  }

  /**
   * Starts the time again.
   * @param {number} [ms]
   */
  start(ms = this.ms) {
    clearTimeout(this.timer);
    this.ms = ms;
    this.timer = setTimeout(this.expire, ms);
  }

  /** Stops the time until the next start. */
  hold() {
    clearTimeout(this.timer);
  }

  end() {
    clearTimeout(this.timer);
    this.other?.removeEventListener('abort', this.stop);
  }
}

/** @param {Response} response */
export async function reason(response) {
  const body = (await limitedText(response, REASON_MAX).catch(() => '')).slice(0, 1000);
  let text = body;
  try {
    text = String(JSON.parse(body).error);
  } catch {
    // Not an answer of this server: a proxy, for example.
  }
  return text ? `status ${response.status}: ${text}` : `status ${response.status}`;
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 */
function delay(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve(undefined);
    };
    const timer = setTimeout(done, signal.aborted ? 0 : ms);
    signal.addEventListener('abort', done);
  });
}
