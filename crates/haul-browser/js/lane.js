// What a job needs of a lane, whatever carries its bytes.

/**
 * @typedef {object} Lane a byte stream in both directions
 * @property {string} [url] address of a lane over HTTP
 * @property {(bytes: Uint8Array) => number} take copies bytes as far as there is space, and returns
 *   their number
 * @property {() => Promise<void>} space waits until `take` takes something
 * @property {() => void} flush sends what `take` gathered
 * @property {() => AsyncGenerator<Uint8Array, void, void>} pieces bytes from the server, each valid
 *   until the next ones are requested
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

/**
 * Returns the error for a response that opens no lane.
 * @param {string} text
 * @param {number} status
 */
export function refusal(text, status) {
  return status >= 400 && status < 500 && status !== 408 && status !== 429
    ? new LaneRefused(text, status)
    : new LaneLost(text);
}

/**
 * Reads a stream, into a buffer of its own if the browser can. Yields bytes that are valid until
 * the next ones are requested.
 * @param {ReadableStream<Uint8Array>} stream
 * @param {number} size of the buffer in bytes
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
export async function* piecesOf(stream, size) {
  let reader;
  try {
    reader = stream.getReader({ mode: 'byob' });
  } catch {
    // Without byte streams, the browser allocates each piece.
    reader = stream.getReader();
  }
  let buffer = new ArrayBuffer(size);
  try {
    for (;;) {
      const { value, done } = await reader.read(new Uint8Array(buffer));
      if (value?.length) {
        yield value;
      }
      if (done || !value) {
        return;
      }
      buffer = value.buffer.byteLength === size ? value.buffer : buffer;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
