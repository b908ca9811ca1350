// A lane over WebTransport: one bidirectional stream of a session of its own.

import { LaneLost } from './lane-http.js';

/**
 * Size in bytes of a write. Chromium handles each write as one task of its network process: writes
 * of 4 MiB are several times faster than small ones.
 */
const WRITE_BYTES = 4 << 20;

/** Time that a connection has to open, in milliseconds. */
const OPEN_TIME = 60_000;

/** Size in bytes of the buffer for reads. */
const READ_BYTES = 1 << 20;

/** @implements {import('./lane-http.js').Lane} */
export class WebTransportLane {
  /**
   * Opens a lane.
   * @param {string} url of the server, with what it needs to know the HTTP session
   * @param {Uint8Array} [certificateHash] SHA-256 of a self-signed certificate of at most 14 days
   */
  static async open(url, certificateHash) {
    const options = certificateHash
      ? { serverCertificateHashes: [{ algorithm: 'sha-256', value: certificateHash }] }
      : {};
    const transport = new WebTransport(url, options);
    // `ready` fails when the transport is closed.
    const timer = setTimeout(() => transport.close(), OPEN_TIME);
    try {
      await transport.ready;
      const stream = await transport.createBidirectionalStream();
      return new WebTransportLane(transport, stream);
    } catch (error) {
      transport.close();
      throw new LaneLost(`cannot open a lane over WebTransport: ${error}`);
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
    this.filled = 0;
    /** @type {Promise<void>} */
    this.sent = Promise.resolve();
    this.isWriting = false;
    /** @type {unknown} */
    this.failure = null;
    this.writer.closed.catch((error) => this.fail(error));
  }

  /** @param {Uint8Array} bytes */
  async write(bytes) {
    for (let at = 0; at < bytes.length;) {
      const part = bytes.subarray(at, at + WRITE_BYTES - this.filled);
      this.gathered.set(part, this.filled);
      this.filled += part.length;
      at += part.length;
      if (this.filled === WRITE_BYTES) {
        // One write is in progress while the next one is gathered.
        await this.sent;
        this.send();
      }
      if (this.failure) {
        throw this.failure;
      }
    }
  }

  flush() {
    if (this.filled > 0 && !this.isWriting) {
      this.send();
    }
  }

  send() {
    const bytes = this.gathered.subarray(0, this.filled);
    // The stream keeps the buffer of a write.
    this.gathered = new Uint8Array(WRITE_BYTES);
    this.filled = 0;
    this.isWriting = true;
    this.sent = this.writer.write(bytes)
      .catch((error) => this.fail(error))
      .finally(() => {
        this.isWriting = false;
        if (!this.failure) {
          this.flush();
        }
      });
  }

  async* pieces() {
    let buffer = new ArrayBuffer(READ_BYTES);
    const reader = this.readable.getReader({ mode: 'byob' });
    try {
      for (;;) {
        const { value, done } = await reader.read(new Uint8Array(buffer));
        if (value?.length) {
          yield value;
        }
        if (done || !value) {
          return;
        }
        buffer = value.buffer;
      }
    } catch (error) {
      throw this.fail(error);
    } finally {
      reader.releaseLock();
    }
  }

  /** @param {unknown} error */
  fail(error) {
    this.failure ??= new LaneLost(`the lane over WebTransport ended: ${error}`);
    return this.failure;
  }

  close() {
    this.fail('closed');
    this.transport.close();
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
