// A lane over HTTP: a byte stream in both directions, cut into numbered pieces.
//
// Bytes to the server are bodies of `PUT /lane/ID/SEQ`, bytes from it are bodies of
// `GET /lane/ID/SEQ`. Several requests are in flight, so that a round trip does not limit the rate.
// A piece that failed is sent, or asked for, again under its number.

/**
 * @typedef {object} Lane a byte stream in both directions
 * @property {string} [url] address of a lane over HTTP
 * @property {(bytes: Uint8Array) => Promise<void>} write copies bytes; waits for space
 * @property {() => void} flush sends what `write` gathered
 * @property {() => AsyncGenerator<Uint8Array, void, void>} pieces bytes from the server
 * @property {() => Promise<void>} finish ends the direction to the server after its last bytes
 * @property {() => void} close ends both directions at once
 */

/** The lane is gone, and with it the session. A new lane resumes the job. */
export class LaneLost extends Error {}

/** The server refuses to open a lane, and would do so again. */
export class LaneRefused extends Error {
  /**
   * @param {string} text
   * @param {number} [status] of the response; 0 without one
   */
  constructor(text, status = 0) {
    super(text);
    this.status = status;
  }
}

/** Size of a full piece in bytes. The server takes at most 8 MiB. */
const PIECE_BYTES = 4 << 20;

/** Size in bytes of a piece that is sent although it is not full, while others are in flight. */
const SMALL_BYTES = 64 << 10;

/**
 * Requests in flight. A browser opens six connections to a host over HTTP/1.1, and the page needs
 * one of them. The server takes eight pieces ahead and gives four.
 */
const PUTS_MAX = 3;
const GETS_MAX = 2;

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
const TIMES = { retry: 250, retryMax: 5000, failing: 50_000, request: 60_000 };

/** A request has more time for its bytes: as at this rate, in bytes per millisecond. */
const SLOWEST = 16;

/** Size of the largest piece from the server in bytes. */
const ANSWER_BYTES = 8 << 20;

/** @implements {Lane} */
export class HttpLane {
  /**
   * Opens a lane.
   * @param {string} base URL of the server without a trailing slash; empty for that of the page
   * @param {string} csrf token of the HTTP session
   * @param {number} [root] number of the server's root
   * @param {typeof fetch} [fetcher]
   * @param {Times} [times]
   */
  static async open(base, csrf, root = 0, fetcher = (...args) => fetch(...args), times = TIMES) {
    const headers = { 'X-Haul-CSRF': csrf };
    const json = { ...headers, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ root });
    const limit = new TimeLimit(times.request);
    try {
      const { signal } = limit;
      const response = await fetcher(`${base}/lane`, { method: 'POST', headers: json, body, signal });
      if (response.status !== 201) {
        const text = `cannot open a lane: ${await reason(response)}`;
        const { status } = response;
        throw status >= 400 && status < 500 && status !== 408 && status !== 429
          ? new LaneRefused(text, status)
          : new LaneLost(text);
      }
      const { lane } = await response.json();
      return new HttpLane(`${base}/lane/${encodeURIComponent(lane)}`, headers, fetcher, times);
    } finally {
      limit.end();
    }
  }

  /**
   * @param {string} url
   * @param {Record<string, string>} headers
   * @param {typeof fetch} fetcher
   * @param {Times} [times]
   */
  constructor(url, headers, fetcher, times = TIMES) {
    this.url = url;
    this.headers = headers;
    this.fetcher = fetcher;
    this.times = times;
    this.stopper = new AbortController();
    this.isClosed = false;
    /** Piece that is being filled, and the buffers that can be filled next. */
    this.piece = new Uint8Array(PIECE_BYTES);
    this.filled = 0;
    /** @type {Uint8Array[]} */
    this.spare = [];
    this.puts = 0;
    this.nextPut = 0;
    /** @type {unknown} */
    this.failure = null;
    /** @type {(() => void)[]} */
    this.waiting = [];
  }

  /** @param {Uint8Array} bytes */
  async write(bytes) {
    for (let at = 0; at < bytes.length;) {
      if (this.failure) {
        throw this.failure;
      }
      const part = bytes.subarray(at, at + PIECE_BYTES - this.filled);
      this.piece.set(part, this.filled);
      this.filled += part.length;
      at += part.length;
      if (this.filled === PIECE_BYTES) {
        while (this.puts >= PUTS_MAX && !this.failure) {
          await new Promise((resolve) => this.waiting.push(() => resolve(undefined)));
        }
        this.put();
      }
    }
  }

  flush() {
    if (this.filled > 0 && !this.failure && (this.puts === 0 || (this.puts === 1 && this.filled >= SMALL_BYTES))) {
      this.put();
    }
  }

  put() {
    if (this.failure) {
      return;
    }
    this.send({});
  }

  /**
   * Sends the piece that was filled.
   * @param {Record<string, string>} headers
   */
  send(headers) {
    const { piece, filled, nextPut: number } = this;
    this.piece = this.spare.pop() ?? new Uint8Array(PIECE_BYTES);
    this.filled = 0;
    this.nextPut += 1;
    this.puts += 1;
    this.request('PUT', number, headers, piece.subarray(0, filled))
      .then(() => this.spare.push(piece))
      .catch((error) => this.fail(error))
      .finally(() => {
        this.puts -= 1;
        this.waiting.splice(0).forEach((wake) => wake());
        this.flush();
      });
  }

  async* pieces() {
    /** @type {Promise<{bytes: Uint8Array, isLast: boolean}>[]} */
    const asked = [];
    let number = 0;
    const ask = () => {
      const piece = this.get(number);
      // The loop below sees the failure; an earlier one ends it before that.
      piece.catch(() => {});
      asked.push(piece);
      number += 1;
    };
    while (!this.failure) {
      while (asked.length < GETS_MAX) {
        ask();
      }
      const piece = await /** @type {NonNullable<typeof asked[0]>} */ (asked.shift()).catch((error) => {
        this.fail(error);
        throw error;
      });
      if (piece.bytes.length > 0) {
        yield piece.bytes;
      }
      if (piece.isLast) {
        return;
      }
    }
    throw this.failure;
  }

  /** @param {number} number */
  async get(number) {
    for (;;) {
      const { response, bytes } = await this.request('GET', number);
      if (response.status !== 204) {
        return { bytes, isLast: response.headers.get('X-Haul-End') === '1' };
      }
    }
  }

  /**
   * Makes a request, several times if the network or the server is the cause of a failure. The
   * body of the answer is part of it: a connection can fail after the head of an answer.
   * @param {string} method
   * @param {number} number
   * @param {Record<string, string>} [more] headers
   * @param {Uint8Array} [body]
   */
  async request(method, number, more = {}, body = undefined) {
    const { retry, retryMax, failing } = this.times;
    let cause = 'no answer';
    /** When this request is given up; unknown before its first failure. */
    let end = Infinity;
    for (let pause = retry; Date.now() < end; pause = Math.min(2 * pause, retryMax)) {
      if (this.stopper.signal.aborted) {
        throw new LaneLost('the lane is closed');
      }
      const limit = new TimeLimit(this.times.request + (body?.length ?? 0) / SLOWEST, this.stopper.signal);
      try {
        const { signal } = limit;
        const headers = method === 'GET' ? {} : { ...this.headers, ...more };
        const response = await this.fetcher(`${this.url}/${number}`, { method, headers, body, signal, cache: 'no-store' });
        limit.start(this.times.request + ANSWER_BYTES / SLOWEST);
        if (response.ok) {
          return { response, bytes: new Uint8Array(await response.arrayBuffer()) };
        }
        cause = await reason(response);
        // 409: too far ahead of a piece that is being sent again.
        if (response.status < 500 && ![408, 409, 429].includes(response.status)) {
          break;
        }
        // 503: the server has the lane, and asks for the request again.
        end = method === 'PUT' && response.status === 503 ? Infinity : Math.min(end, Date.now() + failing);
      } catch (error) {
        if (this.stopper.signal.aborted) {
          throw new LaneLost('the lane is closed');
        }
        cause = String(error);
        end = Math.min(end, Date.now() + failing);
      } finally {
        limit.end();
      }
      await delay(pause, this.stopper.signal);
    }
    throw new LaneLost(`cannot ${method} piece ${number} of the lane: ${cause}`);
  }

  /** @param {unknown} error */
  fail(error) {
    this.failure ??= error;
    this.stopper.abort();
    this.waiting.splice(0).forEach((wake) => wake());
  }

  close() {
    if (this.isClosed) {
      return;
    }
    this.isClosed = true;
    this.fail(new LaneLost('the lane is closed'));
    // The server also ends a lane without requests, so that a failure is harmless.
    this.fetcher(this.url, { method: 'DELETE', headers: this.headers, keepalive: true }).catch(() => {});
  }

  /** Ends the direction to the server, and waits until everything is sent. */
  async finish() {
    await this.sent();
    if (!this.failure) {
      this.send({ 'X-Haul-End': '1' });
    }
    await this.sent();
  }

  async sent() {
    while ((this.puts > 0 || this.filled > 0) && !this.failure) {
      this.flush();
      await new Promise((resolve) => this.waiting.push(() => resolve(undefined)));
    }
  }
}

/** A signal that aborts after a time, or with another signal. */
class TimeLimit {
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
    other?.addEventListener('abort', this.stop);
    this.start(ms);
  }

  /**
   * Starts the time again.
   * @param {number} ms
   */
  start(ms) {
    clearTimeout(this.timer);
    this.ms = ms;
    this.timer = setTimeout(this.expire, ms);
  }

  end() {
    clearTimeout(this.timer);
    this.other?.removeEventListener('abort', this.stop);
  }
}

/** @param {Response} response */
async function reason(response) {
  const body = (await response.text().catch(() => '')).slice(0, 1000);
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
