// A lane over WebTransport: one bidirectional stream of a session of its own.
//
// WebTransport sends no header of the page. `POST /lane` therefore returns a path with a token, which
// opens one session within 30 seconds, and the hash of the certificate that the server uses now.

import { LaneLost, LaneRefused, piecesOf, refusal } from './lane.js';

/**
 * Size in bytes of a write. Chromium handles each write as one task of its network process: writes
 * of 4 MiB are several times faster than small ones.
 */
const WRITE_BYTES = 4 << 20;

/** Time that a connection has to open, in milliseconds. */
const OPEN_TIME = 20_000;

/** Size in bytes of the buffer for reads. */
const READ_BYTES = 1 << 20;

/** @implements {import('./lane.js').Lane} */
export class WebTransportLane {
  /**
   * Opens a lane.
   * @param {string} base URL of the server without a trailing slash; empty for that of the page
   * @param {string} token of the session
   * @param {number} [root] number of the server's root
   * @param {typeof fetch} [fetcher]
   */
  static async open(base, token, root = 0, fetcher = (...args) => fetch(...args)) {
    if (typeof WebTransport === 'undefined') {
      throw new LaneRefused('this browser has no WebTransport');
    }
    const { lane, path, certificate } = await requestLane(base, token, root, fetcher);
    // A self-signed certificate is known by its hash, any other one by its authority.
    const options = certificate
      ? { serverCertificateHashes: [{ algorithm: 'sha-256', value: fromHex(certificate) }] }
      : {};
    let transport = null;
    let timer;
    try {
      const opening = new WebTransport((base || self.location.origin) + path, options);
      transport = opening;
      // `ready` fails when the transport is closed. `closed` fails with it, and with each loss.
      opening.closed.catch(() => {});
      timer = setTimeout(() => opening.close(), OPEN_TIME);
      await opening.ready;
      const stream = await opening.createBidirectionalStream();
      return new WebTransportLane(opening, stream);
    } catch (error) {
      // Not only when its token expires: a session has few lanes.
      fetcher(`${base}/lane/${lane}`, { method: 'DELETE', headers: { 'X-Haul-Token': token } }).catch(() => {});
      const text = `cannot open a lane over WebTransport: ${error}`;
      if (!transport) {
        throw new LaneRefused(text);
      }
      close(transport);
      throw new LaneLost(text);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * @param {WebTransport} transport
   * @param {WebTransportBidirectionalStream} stream
   */
  constructor(transport, stream) {
    this.transport = transport;
    this.writer = stream.writable.getWriter();
    this.readable = stream.readable;
    this.gathered = new Uint8Array(WRITE_BYTES);
    this.other = new Uint8Array(WRITE_BYTES);
    this.filled = 0;
    /** @type {Promise<void>} */
    this.sent = Promise.resolve();
    this.isWriting = false;
    /** @type {unknown} */
    this.failure = null;
    this.writer.closed.catch((error) => this.fail(error));
  }

  /** @param {Uint8Array} bytes */
  take(bytes) {
    if (this.failure) {
      throw this.failure;
    }
    const part = bytes.subarray(0, WRITE_BYTES - this.filled);
    this.gathered.set(part, this.filled);
    this.filled += part.length;
    if (this.filled === WRITE_BYTES) {
      this.flush();
    }
    return part.length;
  }

  async space() {
    while (this.filled === WRITE_BYTES && !this.failure) {
      await this.sent;
    }
  }

  flush() {
    if (this.filled > 0 && !this.isWriting && !this.failure) {
      this.send();
    }
  }

  /** Sends what was gathered. One write is in progress while the next one is gathered. */
  send() {
    const bytes = this.gathered.subarray(0, this.filled);
    [this.gathered, this.other] = [this.other, this.gathered];
    this.filled = 0;
    this.isWriting = true;
    // The stream has taken the bytes, and the buffer is free, when the write is done.
    this.sent = this.writer.write(bytes)
      .catch((error) => {
        this.fail(error);
      })
      .finally(() => {
        this.isWriting = false;
        this.flush();
      });
  }

  async* pieces() {
    try {
      yield* piecesOf(this.readable, READ_BYTES);
    } catch (error) {
      throw this.fail(error);
    }
  }

  /** @param {unknown} error */
  fail(error) {
    this.failure ??= new LaneLost(`the lane over WebTransport ended: ${error}`);
    return this.failure;
  }

  close() {
    this.fail('closed');
    close(this.transport);
  }

  /** Ends the direction to the server, and waits until everything is sent. */
  async finish() {
    while ((this.isWriting || this.filled > 0) && !this.failure) {
      this.flush();
      await this.sent;
    }
    await this.writer.close().catch((error) => this.fail(error));
  }
}

/**
 * Requests a lane.
 * @param {string} base
 * @param {string} token
 * @param {number} root
 * @param {typeof fetch} fetcher
 * @returns {Promise<{lane: string, path: string, certificate?: string}>}
 */
async function requestLane(base, token, root, fetcher) {
  const headers = { 'X-Haul-Token': token, 'Content-Type': 'application/json' };
  const body = JSON.stringify({ root, kind: 'webtransport' });
  const signal = AbortSignal.timeout(OPEN_TIME);
  let response;
  let answer;
  try {
    response = await fetcher(`${base}/lane`, { method: 'POST', headers, body, signal });
    answer = await response.json();
  } catch (error) {
    throw new LaneLost(`cannot open a lane: ${error}`);
  }
  const { status } = response;
  if (status === 201) {
    return answer;
  }
  throw refusal(`cannot open a lane: status ${status}: ${answer?.error}`, status);
}

/**
 * Closes a session that may have ended.
 * @param {WebTransport} transport
 */
function close(transport) {
  try {
    transport.close();
  } catch {
    // It has ended.
  }
}

/** @param {string} text */
function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (digits) => parseInt(digits, 16));
}
