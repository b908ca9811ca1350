// A lane over HTTP: a byte stream in both directions, cut into numbered pieces.
//
// Bytes to the server are bodies of `PUT /lane/ID/SEQ`, bytes from it are bodies of
// `GET /lane/ID/SEQ`. Several PUTs are in flight, so that a round trip does not limit the rate. A GET
// follows the end of the one before: over HTTP/2, bytes of a later body that is not read use up the
// window of the connection, and the rest of the earlier body then never comes (Chromium 156).
//
// A small piece that failed is sent, or asked for, again under its number. Bulk data flows in bodies
// that are written while they are sent, and read while they arrive: they cost a browser less, and
// it holds none of their bytes. Such a piece cannot be repeated. If it fails, the lane is lost, and
// the next lane resumes the job.

import { Flow } from './flow.js';
import { LaneLost, piecesOf, refusal } from './lane.js';
import { Requests, TIMES, TimeLimit, reason } from './requests.js';

/** Size of a full piece in bytes. */
const PIECE_BYTES = 4 << 20;

/** Size in bytes from which a flow ends. The server takes at most 64 MiB, flows and pieces alike. */
const FLOW_BYTES = 48 << 20;

/**
 * Time in milliseconds without bytes after which a flow ends. A proxy may pass on nothing of a body
 * before its end.
 */
const FLOW_IDLE = 50;

/** Size in bytes of the buffer for bodies from the server. */
const READ_BYTES = 1 << 20;

/**
 * Size in bytes from which a piece is sent, by the number of pieces in flight; there are at most
 * three. The first one is not delayed, and full ones cost the browser least.
 */
const SENT_FROM = [1, 64 << 10, PIECE_BYTES];

/** @implements {import('./lane.js').Lane} */
export class HttpLane {
  /** False once the first flow of a lane has failed: over HTTP/1.1, for example, browsers send none. */
  static hasFlows = canStreamBodies();

  /**
   * Opens a lane.
   * @param {string} base URL of the server without a trailing slash; empty for that of the page
   * @param {string} token of the session
   * @param {number} [root] number of the server's root
   * @param {typeof fetch} [fetcher]
   * @param {import('./requests.js').Times} [times]
   */
  static async open(base, token, root = 0, fetcher = undefined, times = TIMES) {
    const headers = { 'X-Haul-Token': token };
    const json = { ...headers, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ root });
    const limit = new TimeLimit(times.request);
    try {
      const { signal } = limit;
      const response = await (fetcher ?? fetch)(`${base}/lane`, { method: 'POST', headers: json, body, signal });
      if (response.status !== 201) {
        throw refusal(`cannot open a lane: ${await reason(response)}`, response.status);
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
   * @param {typeof fetch} [fetcher] makes all requests, also those of flows
   * @param {import('./requests.js').Times} [times]
   */
  constructor(url, headers, fetcher, times = TIMES) {
    this.url = url;
    this.ownFetcher = fetcher;
    this.requests = new Requests(url, headers, fetcher ?? ((...args) => fetch(...args)), times);
    this.isClosed = false;
    /** Piece that is being filled, and the buffers that can be filled next. */
    this.piece = new Uint8Array(PIECE_BYTES);
    this.filled = 0;
    /** @type {Uint8Array<ArrayBuffer>[]} */
    this.spare = [];
    /** @type {Flow | null} */
    this.flow = null;
    /** Number of flows that arrived. */
    this.flows = 0;
    this.puts = 0;
    this.nextPut = 0;
    /** @type {unknown} */
    this.failure = null;
    /** @type {(() => void)[]} */
    this.waiting = [];
  }

  /** @param {Uint8Array} bytes */
  take(bytes) {
    if (this.failure) {
      throw this.failure;
    }
    let at = 0;
    while (at < bytes.length && !this.isFull) {
      const part = bytes.subarray(at, at + PIECE_BYTES - this.filled);
      this.piece.set(part, this.filled);
      this.filled += part.length;
      at += part.length;
      if (this.isFull) {
        this.flush();
      }
    }
    return at;
  }

  /** True if the piece is full, and waits for its turn. */
  get isFull() {
    return this.filled === PIECE_BYTES;
  }

  async space() {
    while (this.isFull && !this.failure) {
      await this.change();
    }
  }

  /** Waits until a request has ended, or a flow has taken bytes. */
  change() {
    return new Promise((resolve) => this.waiting.push(() => resolve(undefined)));
  }

  flush() {
    if (this.failure || this.filled === 0) {
      return;
    }
    if (this.isFull && !this.flow && HttpLane.hasFlows) {
      this.startFlow();
    }
    if (this.flow) {
      this.offer(this.flow);
    } else if (this.filled >= (SENT_FROM[this.puts] ?? Infinity)) {
      this.send({});
    }
  }

  /**
   * Takes the piece that was filled.
   * @returns {Uint8Array<ArrayBuffer>}
   */
  cut() {
    const bytes = this.piece.subarray(0, this.filled);
    this.piece = this.spare.pop() ?? new Uint8Array(PIECE_BYTES);
    this.filled = 0;
    return bytes;
  }

  /**
   * Makes the buffer of a piece available again.
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  reuse(bytes) {
    this.spare.push(new Uint8Array(bytes.buffer));
  }

  /**
   * Sends the piece that was filled.
   * @param {Record<string, string>} headers
   */
  send(headers) {
    const bytes = this.cut();
    this.track(this.requests.put(this.nextPut, headers, bytes).then(() => this.reuse(bytes)));
  }

  /** Sends the following bytes as one piece. */
  startFlow() {
    const { url, headers } = this.requests;
    const request = { url: `${url}/${this.nextPut}`, headers };
    const copied = (/** @type {Uint8Array<ArrayBuffer>} */ piece) => this.continueFlow(flow, piece);
    const flow = new Flow(request, this.requests.limit(PIECE_BYTES), copied, this.ownFetcher);
    this.flow = flow;
    const sending = flow.sent.then(() => {
      this.flows += 1;
    }, (error) => {
      HttpLane.hasFlows &&= this.flows > 0 || this.failure !== null;
      throw new LaneLost(`cannot send to the lane: ${error instanceof Error ? error.message : error}`);
    });
    this.track(sending.finally(() => this.leaveFlow(flow)));
  }

  /**
   * Adds a full piece to the flow, or what was gathered if the browser waits for bytes.
   * @param {Flow} flow
   */
  offer(flow) {
    if (flow.bytes < FLOW_BYTES && (this.isFull ? flow.hasRoom : flow.pieces === 0)) {
      clearTimeout(this.idle);
      flow.add(this.cut());
    }
  }

  /**
   * @param {Flow} flow
   * @param {Uint8Array<ArrayBuffer>} piece that the browser has copied
   */
  continueFlow(flow, piece) {
    this.reuse(piece);
    if (flow === this.flow && flow.pieces === 0) {
      if (flow.bytes < FLOW_BYTES) {
        this.idle = setTimeout(() => this.closeFlow(flow), FLOW_IDLE);
      } else {
        this.closeFlow(flow);
      }
    }
    this.flush();
    this.wake();
  }

  /**
   * Ends the body of a flow. The bytes that follow are another piece.
   * @param {Flow} flow
   */
  closeFlow(flow) {
    this.leaveFlow(flow);
    flow.close();
    this.flush();
  }

  /** @param {Flow} flow */
  leaveFlow(flow) {
    if (flow === this.flow) {
      clearTimeout(this.idle);
      this.flow = null;
    }
  }

  /**
   * Counts the request with the next number as in flight until it ends.
   * @param {Promise<unknown>} request
   */
  track(request) {
    this.nextPut += 1;
    this.puts += 1;
    request.catch((error) => this.fail(error)).finally(() => {
      this.puts -= 1;
      this.flush();
      this.wake();
    });
  }

  wake() {
    this.waiting.splice(0).forEach((wake) => wake());
  }

  async* pieces() {
    try {
      for (let number = 0; !(yield* this.bytesOf(number)); number += 1);
    } catch (error) {
      this.fail(error);
      throw this.failure;
    }
  }

  /**
   * Yields the bytes of a piece as they arrive. Returns true if it is the last one.
   * @param {number} number
   */
  async* bytesOf(number) {
    const retries = this.requests.retries('GET', number);
    for (let done = 0; ;) {
      const { response, limit } = await this.requests.get(number, retries);
      let failure;
      let at = 0;
      try {
        limit.start();
        for await (const bytes of response.body ? piecesOf(response.body, READ_BYTES) : []) {
          limit.hold();
          // A piece that is asked for again starts with the bytes that arrived before.
          const fresh = bytes.subarray(Math.min(Math.max(done - at, 0), bytes.length));
          at += bytes.length;
          done = Math.max(done, at);
          if (fresh.length > 0) {
            yield fresh;
          }
          limit.start();
        }
        if (at >= done) {
          return response.headers.get('X-Haul-End') === '1';
        }
        failure = new Error('the piece is shorter than before');
      } catch (error) {
        failure = error;
      } finally {
        limit.end();
      }
      await retries.after(failure);
    }
  }

  /** @param {unknown} error */
  fail(error) {
    this.failure ??= error;
    this.requests.stop();
    this.wake();
  }

  close() {
    if (this.isClosed) {
      return;
    }
    this.isClosed = true;
    this.fail(new LaneLost('the lane is closed'));
    // The server also ends a lane without requests, so that a failure is harmless.
    const { fetcher, headers } = this.requests;
    fetcher(this.url, { method: 'DELETE', headers, keepalive: true }).catch(() => {});
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
      await this.change();
    }
  }
}

/** Returns true if this browser sends bodies that are written while they are sent. */
function canStreamBodies() {
  let isRead = false;
  try {
    const request = new Request('https://localhost', {
      method: 'PUT',
      body: new ReadableStream(),
      // @ts-expect-error: the types lack this option
      get duplex() {
        isRead = true;
        return 'half';
      },
    });
    // Other browsers convert the stream to a text.
    return isRead && !request.headers.has('Content-Type');
  } catch {
    return false;
  }
}
