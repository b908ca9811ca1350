// A flow: the body of a PUT that is written while it is sent.
//
// A browser takes a body only while the thread that sends it is idle, and the thread of a job hashes
// most of the time. So another worker sends (flow-worker.js), which does nothing else: an upload is
// a fifth faster (measured with Chromium 156 and two processors).
//
// Messages to the sender: a piece of the body; {abort}, the reason; null at the end of the body.
// Messages of the sender: a piece that the browser has copied; {failure}, the reason, or null, when
// the request has ended.

import { reason } from './core.js';
import { reason as refusal } from './requests.js';

/** Largest number of pieces that the sender has: one that it sends, and the next one. */
const PIECES = 2;

/** @typedef {{url: string, headers: Record<string, string>}} Request */

/** The worker that sends, from the first flow on. @type {Worker | null} */
let worker = null;

export class Flow {
  /**
   * Starts a request.
   * @param {Request} request
   * @param {import('./requests.js').TimeLimit} limit of the request; runs while the sender has bytes
   * @param {(piece: Uint8Array<ArrayBuffer>) => void} copied is called with each piece that the
   *   browser has copied
   * @param {typeof fetch} [fetcher] sends in this thread
   */
  constructor(request, limit, copied, fetcher) {
    /** Number of bytes so far. */
    this.bytes = 0;
    /** Number of pieces that the sender has. */
    this.pieces = 0;
    /** True when no piece follows, or the request has ended. */
    this.isOver = false;
    this.limit = limit;
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    /** Settles with the request. @type {Promise<void>} */
    this.sent = new Promise((resolve, reject) => {
      this.fail = reject;
      port1.onmessage = ({ data }) => {
        if (data instanceof Uint8Array) {
          this.pieces -= 1;
          if (this.pieces === 0 && !this.isOver) {
            limit.hold();
          }
          copied(/** @type {Uint8Array<ArrayBuffer>} */ (data));
        } else {
          data.failure === null ? resolve() : reject(new Error(data.failure));
        }
      };
    });
    this.stop = () => {
      port1.postMessage({ abort: reason(limit.signal.reason) });
      this.fail(limit.signal.reason);
    };
    this.lose = () => this.fail(new Error('the worker that sends has stopped'));
    limit.signal.addEventListener('abort', this.stop);
    this.sent.finally(() => this.end()).catch(() => {});
    if (fetcher) {
      sendFlow(port2, request, fetcher);
    } else {
      worker ??= startWorker();
      worker.addEventListener('error', this.lose);
      worker.postMessage({ ...request, port: port2 }, [port2]);
    }
  }

  /** True if the sender takes another piece. */
  get hasRoom() {
    return !this.isOver && this.pieces < PIECES;
  }

  /**
   * Adds a piece, which is the sender's until it is copied.
   * @param {Uint8Array<ArrayBuffer>} piece
   */
  add(piece) {
    this.pieces += 1;
    this.bytes += piece.length;
    this.limit.start();
    this.port.postMessage(piece, [piece.buffer]);
  }

  /** Ends the body. */
  close() {
    this.isOver = true;
    this.limit.start();
    this.port.postMessage(null);
  }

  end() {
    this.isOver = true;
    this.limit.end();
    this.limit.signal.removeEventListener('abort', this.stop);
    worker?.removeEventListener('error', this.lose);
    this.port.close();
  }
}

function startWorker() {
  const started = new Worker(new URL('flow-worker.js', import.meta.url), { type: 'module' });
  // The next flow starts another one. The error is not one of the job.
  started.addEventListener('error', (event) => {
    event.preventDefault();
    worker = null;
  });
  return started;
}

/**
 * Makes the request of a flow, whose pieces come from a port.
 * @param {MessagePort} port
 * @param {Request} request
 * @param {typeof fetch} fetcher
 */
export async function sendFlow(port, { url, headers }, fetcher) {
  const stopper = new AbortController();
  /** Pieces that the browser has not asked for; null is the end. @type {(Uint8Array<ArrayBuffer> | null)[]} */
  const pieces = [];
  /** What the browser is copying. @type {Uint8Array<ArrayBuffer> | null} */
  let lent = null;
  /** Set while the browser waits for bytes. @type {ReadableStreamDefaultController | null} */
  let controller = null;
  const give = () => {
    const piece = pieces[0];
    if (!controller || piece === undefined) {
      return;
    }
    pieces.shift();
    lent = piece;
    piece ? controller.enqueue(piece) : controller.close();
    controller = null;
  };
  // The browser asks for bytes when it has copied all earlier ones (Fetch, "incrementally read").
  const pull = (/** @type {ReadableStreamDefaultController} */ waiting) => {
    if (lent) {
      port.postMessage(lent, [lent.buffer]);
      lent = null;
    }
    controller = waiting;
    give();
  };
  port.onmessage = ({ data }) => {
    if (data?.abort !== undefined) {
      stopper.abort(new Error(data.abort));
    } else {
      pieces.push(data);
      give();
    }
  };
  let failure = null;
  try {
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const { signal } = stopper;
    const options = { method: 'PUT', headers, body, signal, duplex: 'half' };
    const response = await fetcher(url, /** @type {RequestInit} */ ({ ...options, cache: 'no-store' }));
    failure = response.ok ? null : await refusal(response);
  } catch (error) {
    failure = reason(error);
  }
  port.postMessage({ failure });
}
