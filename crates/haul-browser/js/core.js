// The WebAssembly module of haul-browser: digests, and the client side of a session.
//
// The module decides; this file only converts. Bytes cross by the module's memory: the caller fills
// a buffer of the module, or reads from one, between two calls. `src/exports.rs` is the other side.

/** Size of the input buffer of the module, in bytes. */
export const INPUT_BYTES = 1 << 20;

/** Verification levels of a file or an object. */
export const Level = Object.freeze({ received: 1, verified: 2, durable: 3, reread: 4 });

/** Results of an uploaded file, in `fileDone` events. */
export const Outcome = Object.freeze({ done: 1, same: 2, dryRun: 3, failed: 4 });

/**
 * Names of the events by their kind: the type, the names of the numbers, and the name of the text.
 * `src/event.rs` documents them.
 * @type {Record<number, [string, string[], string?]>}
 */
const EVENTS = {
  1: ['started', ['resumes']],
  2: ['ended', ['ok', 'done', 'same', 'failed', 'unread', 'bytes', 'again'], 'text'],
  3: ['read', ['request', 'file', 'offset', 'len']],
  4: ['check', ['request', 'file']],
  5: ['synced', ['file', 'level', 'objects']],
  6: ['fileDone', ['file', 'outcome', 'level', 'here'], 'text'],
  7: ['directory', ['file'], 'path'],
  8: ['open', ['file', 'size', 'mtime', 'have'], 'path'],
  9: ['write', ['request', 'file', 'offset', 'at', 'len']],
  10: ['zeros', ['request', 'file', 'offset', 'len']],
  11: ['sync', ['file']],
  12: ['verified', ['file', 'object'], 'digest'],
  13: ['restart', ['file']],
  14: ['finish', ['file', 'size', 'mtime'], 'digest'],
  15: ['failed', ['file'], 'text'],
  16: ['abandon', ['file']],
  17: ['same', ['file'], 'path'],
  18: ['present', ['file', 'objects']],
  19: ['hashed', ['file', 'object'], 'digest'],
};

/** Number of hexadecimal digits of a version, which precede the path of an `open` event. */
const VERSION_DIGITS = 32;

/** Bytes of an object in the argument of `haul_keep`: its index and its digest. */
const KEPT_OBJECT_BYTES = 40;

/**
 * A file that the page has from an earlier run of a download.
 * @typedef {object} Kept
 * @property {string} path
 * @property {number} size in bytes
 * @property {number} mtime as in the `open` event
 * @property {string} version as in the `open` event
 * @property {boolean} complete true if the file was finished
 * @property {[number, string][]} objects index and digest of each `verified` event
 */

/**
 * An event of the session: `type`, and the fields of that type.
 * @typedef {{type: string} & Record<string, any>} CoreEvent
 */

// A module with one function that uses an instruction of SIMD. An engine without SIMD refuses it.
const SIMD_PROBE = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
]);

/** Returns true if this engine has the SIMD instructions of WebAssembly. */
export function hasSimd() {
  return WebAssembly.validate(SIMD_PROBE);
}

/**
 * Loads the module for this engine from `haul-simd.wasm` or `haul.wasm` beneath a URL.
 * @param {URL | string} base URL of the directory, with a trailing slash
 * @returns {Promise<Core>}
 */
export async function loadCore(base) {
  const url = new URL(hasSimd() ? 'haul-simd.wasm' : 'haul.wasm', base);
  const response = await fetch(url);
  if (!response.ok) {
    throw new Error(`cannot load ${url.pathname}: status ${response.status}; reload the page`);
  }
  return instantiateCore(await response.arrayBuffer());
}

/**
 * Creates a core from the bytes of a module.
 * @param {BufferSource} bytes
 * @param {() => number} [clock] milliseconds from any fixed moment
 * @returns {Promise<Core>}
 */
export async function instantiateCore(bytes, clock = () => performance.now()) {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  return new Core(/** @type {any} */ (instance.exports), clock);
}

/**
 * A file of a waybill. `isText` is false if the path is not UTF-8.
 * @typedef {{path: string, isText: boolean, size: number, mtime: number, object: number,
 *   digest: string | null}} RecordedFile
 */

/** One module: one session and one file digest at a time. */
export class Core {
  /**
   * @param {Record<string, any> & {memory: WebAssembly.Memory}} wasm
   * @param {() => number} clock
   */
  constructor(wasm, clock) {
    this.wasm = wasm;
    this.now = clock;
    this.encoder = new TextEncoder();
    this.decoder = new TextDecoder();
    /** Bytes in the input buffer, and how many of them the session has taken. */
    this.filled = 0;
    this.taken = 0;
  }

  /**
   * Returns the memory of the module. A view is valid until the next call, which may move memory.
   * @param {number} pointer
   * @param {number} len
   */
  bytes(pointer, len) {
    return new Uint8Array(this.wasm.memory.buffer, pointer >>> 0, len);
  }

  /** Returns the text of the last event or failure. */
  text() {
    return this.decoder.decode(this.bytes(this.wasm.haul_text(), this.wasm.haul_text_len()));
  }

  /**
   * Puts parts one after another into the argument buffer. Returns their length.
   * @param {...(string | Uint8Array)} parts
   */
  argument(...parts) {
    const encoded = parts.map((part) => (typeof part === 'string' ? this.encoder.encode(part) : part));
    const len = encoded.reduce((sum, part) => sum + part.length, 0);
    const buffer = this.bytes(this.wasm.haul_argument(len), len);
    let at = 0;
    for (const part of encoded) {
      buffer.set(part, at);
      at += part.length;
    }
    return len;
  }

  /** @param {number} ok result of a call that sets the text if it fails */
  check(ok) {
    if (!ok) {
      throw new Error(this.text());
    }
  }

  // A session

  /**
   * Starts an upload to a directory of the server, which `compares` files that it has.
   * @param {{job: Uint8Array, to: string, object: number, level: number, compares?: boolean}} settings
   */
  upload({ job, to, object, level, compares = false }) {
    const len = this.argument(job, to);
    this.check(this.wasm.haul_upload(level, object, Number(compares), len, this.now()));
  }

  /**
   * Starts a download of paths at the server. A trailing slash means the contents of a directory.
   * @param {{job: Uint8Array, paths: string[], object: number, level: number,
   *   kept?: Kept[]}} settings
   */
  download({ job, paths, object, level, kept = [] }) {
    for (const file of kept) {
      this.keep(file);
    }
    const encoded = paths.map((path) => this.encoder.encode(path));
    const len = this.argument(job, ...encoded.flatMap((path) => [littleEndian(path.length, 4), path]));
    this.check(this.wasm.haul_download(level, object, len, this.now()));
  }

  /** @param {Kept} file */
  keep({ path, size, mtime, version, complete, objects }) {
    const name = this.encoder.encode(path);
    const list = new Uint8Array(objects.length * KEPT_OBJECT_BYTES);
    objects.forEach(([index, digest], at) => {
      list.set(littleEndian(index, 8), at * KEPT_OBJECT_BYTES);
      list.set(fromHex(digest), at * KEPT_OBJECT_BYTES + 8);
    });
    const len = this.argument(fromHex(version), name, list);
    this.wasm.haul_keep(Number(complete), size, mtime, name.length, len);
  }

  /**
   * Copies the next bytes of the lane into the input buffer. Returns how many it has space for.
   * `advance` must have taken all earlier input.
   * @param {Uint8Array} bytes
   */
  feed(bytes) {
    const len = Math.min(bytes.length, INPUT_BYTES);
    this.bytes(this.wasm.haul_input_buffer(), len).set(bytes.subarray(0, len));
    this.filled = len;
    this.taken = 0;
    return len;
  }

  /**
   * Continues with the input. Returns true if all of it is taken. Otherwise the caller takes the
   * events, carries out some of them, and calls again.
   */
  advance() {
    this.taken += this.wasm.haul_input(this.taken, this.filled - this.taken, this.now());
    return this.taken === this.filled;
  }

  /**
   * Returns bytes of the input buffer, for a `write` event.
   * @param {{at: number, len: number}} event
   */
  inputBytes({ at, len }) {
    return this.bytes(this.wasm.haul_input_buffer() + at, len);
  }

  /** Returns the next bytes to send, or null. The view is valid until `outputSent`. */
  output() {
    const pointer = this.wasm.haul_output();
    return pointer ? this.bytes(pointer, this.wasm.haul_output_len()) : null;
  }

  /** Removes the bytes that `output` returned. */
  outputSent() {
    this.wasm.haul_output_sent(this.now());
  }

  /**
   * Takes the next event, or returns null.
   * @returns {CoreEvent | null}
   */
  nextEvent() {
    const kind = this.wasm.haul_next_event();
    if (!kind) {
      return null;
    }
    const [type, numbers, text] = EVENTS[kind];
    const values = new Float64Array(this.wasm.memory.buffer, this.wasm.haul_record(), numbers.length);
    /** @type {CoreEvent} */
    const event = { type };
    numbers.forEach((name, index) => {
      event[name] = values[index];
    });
    if (text) {
      event[text] = this.text();
    }
    if (type === 'open') {
      event.version = event.path.slice(0, VERSION_DIGITS);
      event.path = event.path.slice(VERSION_DIGITS);
    }
    return event;
  }

  /** Reports the time: at least once a second. */
  tick() {
    this.wasm.haul_tick(this.now());
  }

  /** Reports that the lane is lost. */
  laneLost() {
    this.wasm.haul_lane_lost(this.now());
  }

  /** Stops the job at the request of the user. */
  stop() {
    this.wasm.haul_stop(this.now());
  }

  // An upload

  /** Returns the number of files that can be offered now. */
  capacity() {
    return this.wasm.haul_capacity();
  }

  /**
   * Offers a file, or a directory if `size` is null. Returns its number.
   * @param {string} path
   * @param {number | null} size
   * @param {number} mtime milliseconds since 1970
   */
  offer(path, size, mtime) {
    const number = this.wasm.haul_offer(size ?? -1, mtime, this.argument(path), this.now());
    this.check(Number(number >= 0));
    return number;
  }

  /**
   * Reports an entry that the page cannot read.
   * @param {string} path
   * @param {string} reason
   */
  unread(path, reason) {
    const name = this.encoder.encode(path);
    this.wasm.haul_unread(name.length, this.argument(name, reason), this.now());
  }

  /** Ends the walk: nothing more is offered. */
  walkEnded() {
    this.wasm.haul_walk_ended(this.now());
  }

  /**
   * Answers a `read` event with its bytes, or with the reason why there are none.
   * @param {{request: number, len: number}} event
   * @param {Uint8Array | string} result
   */
  readDone({ request, len }, result) {
    const ok = typeof result !== 'string' && result.length === len;
    if (ok) {
      this.bytes(this.wasm.haul_read_buffer(request), len).set(result);
    }
    const reason = typeof result === 'string' ? result : 'the file is shorter than before';
    this.wasm.haul_read_done(request, Number(ok), ok ? 0 : this.argument(reason), this.now());
  }

  /**
   * Answers a `check` event with size and time of the file, or with the reason why it has none.
   * @param {{request: number}} event
   * @param {{size: number, mtime: number} | string} found
   */
  checked({ request }, found) {
    if (typeof found === 'string') {
      this.wasm.haul_checked(request, 0, 0, 0, this.argument(found), this.now());
    } else {
      this.wasm.haul_checked(request, 1, found.size, found.mtime, 0, this.now());
    }
  }

  /** Returns the number of bytes that the server has verified. */
  settledBytes() {
    return this.wasm.haul_settled_bytes();
  }

  // A download

  /**
   * Answers a `write` or a `zeros` event.
   * @param {{request: number}} event
   * @param {string} [failure] the reason why the bytes are not written
   */
  written({ request }, failure) {
    const len = failure === undefined ? 0 : this.argument(failure);
    this.wasm.haul_written(request, Number(failure === undefined), len, this.now());
  }

  /**
   * Answers a `sync` event with the level that was reached, or with the reason why not.
   * @param {{file: number}} event
   * @param {number | string} result
   */
  synced({ file }, result) {
    const failed = typeof result === 'string';
    this.wasm.haul_synced(file, failed ? 0 : result, failed ? this.argument(result) : 0, this.now());
  }

  /**
   * Answers a `finish` or a `directory` event with the level that was reached, or with the reason
   * why not.
   * @param {{file: number}} event
   * @param {number | string} result
   */
  finished({ file }, result) {
    const failed = typeof result === 'string';
    this.wasm.haul_finished(file, failed ? 0 : result, failed ? this.argument(result) : 0, this.now());
  }

  // The waybill of a job. Each call returns the lines that it adds.

  /**
   * Starts a waybill.
   * @param {{at: number, root: string, run: string}} job start in milliseconds since 1970, the
   *   directory that paths are relative to, and a description
   */
  waybillBegin({ at, root, run }) {
    const directory = this.encoder.encode(root);
    this.check(this.wasm.haul_waybill_begin(at, directory.length, this.argument(directory, run)));
    return this.text();
  }

  /**
   * Adds a file. Its objects give its digest if that is empty.
   * @param {import('./receipt.js').ReceiptEntry} entry
   * @param {number} [object] size of an object in bytes
   */
  waybillEntry({ path, size, mtime, level, digest, objects = [] }, object = 0) {
    const name = this.encoder.encode(path);
    const len = this.argument(name, fromHex(digest + objects.join('')));
    const divided = objects.length > 0 ? object : 0;
    this.check(this.wasm.haul_waybill_entry(size, mtime, level, divided, name.length, len));
    return this.text();
  }

  /** Closes the waybill. */
  waybillEnd() {
    this.check(this.wasm.haul_waybill_end());
    return this.text();
  }

  // A waybill that is read

  /**
   * Starts to read a waybill, of at most 64 MiB.
   * @param {Uint8Array} waybill
   */
  waybillOpen(waybill) {
    this.wasm.haul_waybill_open(this.argument(waybill));
  }

  /**
   * Returns the next item: a file, the start of a section, damage, or null at the end. `digest` is
   * null where the waybill has none by BLAKE3, and `object` is 0 without digests of objects. Other
   * entries than files are left out.
   * @returns {RecordedFile | 'section' | {flaw: string} | null}
   */
  waybillNext() {
    switch (this.wasm.haul_waybill_next()) {
      case 0:
        return null;
      case 1: {
        const path = this.text();
        const [size, mtime, object, isText] = new Float64Array(this.wasm.memory.buffer, this.wasm.haul_record(), 4);
        return { path, isText: isText === 1, size, mtime, object, digest: this.waybillDigest(-1) };
      }
      case 2:
        return 'section';
      default:
        return { flaw: this.text() };
    }
  }

  /**
   * Returns the digest of an object of the last file, or null.
   * @param {number} index
   */
  waybillDigest(index) {
    return this.wasm.haul_waybill_digest(index) ? this.text() : null;
  }

  // BLAKE3 of a file, from its objects in any order

  /**
   * Starts the digest of a file.
   * @param {number} size
   * @param {number} object size of the objects
   */
  hashBegin(size, object) {
    this.check(this.wasm.haul_hash_begin(size, object));
  }

  /** @param {number} index */
  hashObject(index) {
    return Boolean(this.wasm.haul_hash_object(index));
  }

  /** @param {Uint8Array} bytes the next bytes of the object */
  hashUpdate(bytes) {
    for (let at = 0; at < bytes.length; at += INPUT_BYTES) {
      const part = bytes.subarray(at, at + INPUT_BYTES);
      this.bytes(this.wasm.haul_input_buffer(), part.length).set(part);
      this.wasm.haul_hash_update(part.length);
    }
  }

  /** Ends the object. Returns its digest, which another core can merge. */
  hashObjectEnd() {
    this.check(this.wasm.haul_hash_object_end());
    return this.text();
  }

  /**
   * Adds an object that another core hashed.
   * @param {number} index
   * @param {string} digest
   */
  hashMerge(index, digest) {
    this.argument(fromHex(digest));
    return Boolean(this.wasm.haul_hash_merge(index));
  }

  /** Returns the digest of the file. */
  hashEnd() {
    this.check(this.wasm.haul_hash_end());
    return this.text();
  }
}

/**
 * @param {number} value below 2^53
 * @param {number} len
 */
function littleEndian(value, len) {
  const bytes = new Uint8Array(len);
  for (let at = 0; at < len; at += 1) {
    bytes[at] = value % 256;
    value = Math.floor(value / 256);
  }
  return bytes;
}

/** @param {string} digits */
export function fromHex(digits) {
  const bytes = new Uint8Array(digits.length / 2);
  for (let at = 0; at < bytes.length; at += 1) {
    bytes[at] = Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16);
  }
  return bytes;
}

/** @param {Uint8Array} bytes */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Returns the text of a failure. @param {unknown} error */
export function reason(error) {
  return error instanceof Error ? error.message || error.name : String(error);
}
