// Where a download writes if the browser saves its files: each file is a stream into the list of
// downloads of the browser. Only verified objects are passed on, in order.
//
// The other end of the port of a file is in the page first, then in its service worker. Messages:
//   to it     {bytes}, then {end: true}; or {error}, which makes the download of the browser fail
//   from it   {isRegistered: true} from the service worker; {wants: true, spare} for each {bytes} or {end},
//             where `spare` is the buffer of earlier bytes; then {done: true}; or {error}, if the browser
//             saves no more
// No browser tells a port that its other end is gone. Each side sees it by a lock of the other one:
// `haul-save-ID` of the job, and `haul-saved-ID` of the service worker, which lets go of it last.

import { Level } from './core.js';

/** Bytes that wait for the browser, from which on a write waits too. */
const QUEUE_MAX = 8 << 20;

/**
 * Bytes of objects that wait for an earlier one. A server sends at most the window of a session
 * ahead, 64 MiB (link.rs).
 */
const HELD_MAX = (64 + 16) << 20;

/** Buffers that are kept for later objects: a browser frees what is not used only after a while. */
const SPARES_MAX = 4;

/** @implements {import('./download.js').Target} */
export class SaveTarget {
  takesVerified = true;

  /**
   * @param {number} object size of an object in bytes
   * @param {(file: {id: string, path: string, size: number, port: MessagePort}) => void} save
   *   starts to save a file
   */
  constructor(object, save) {
    this.object = object;
    this.save = save;
    /** Files in progress, and those that failed. @type {Map<string, SavedFile>} */
    this.files = new Map();
    /** Sizes of complete files. @type {Map<string, number>} */
    this.complete = new Map();
    /** @type {ArrayBuffer[]} */
    this.spares = [];
    this.held = 0;
    this.queued = 0;
    /** @type {(() => void)[]} */
    this.waiting = [];
    /** The browser starts one file at a time. */
    this.starting = Promise.resolve();
  }

  /**
   * @param {string} path
   * @param {boolean} isComplete
   */
  async sizeOf(path, isComplete) {
    const file = this.files.get(path);
    // A file in progress has all objects that the log of the job has.
    return isComplete ? this.complete.get(path) ?? -1 : file?.error === null ? file.size : -1;
  }

  /**
   * @param {string} path
   * @param {boolean} keep
   * @param {number} size
   */
  async open(path, keep, size) {
    let file = this.files.get(path);
    if (file === undefined || (!keep && file.next === 0 && file.error === null)) {
      file?.drop(() => true);
      file = new SavedFile(this, path, size);
      this.files.set(path, file);
    } else if (!keep) {
      file.restart();
    }
    file.check();
    return file;
  }

  /** The browser saves files only: it creates no folders. */
  async directory() {}

  /** Ends all files that are not complete. @param {string} text the reason */
  end(text) {
    this.files.forEach((file) => file.fail(text));
  }

  /** Returns a buffer for an object, with any contents. @param {number} length */
  buffer(length) {
    const spare = this.spares.pop();
    return spare !== undefined && spare.byteLength >= length ? new Uint8Array(spare, 0, length) : new Uint8Array(length);
  }

  /** Waits until something has changed. */
  change() {
    return new Promise((resolve) => this.waiting.push(() => resolve(undefined)));
  }

  wake() {
    this.waiting.splice(0).forEach((resolve) => resolve());
  }
}

/** @implements {import('./download.js').TargetFile} */
class SavedFile {
  isSync = false;
  /**
   * Objects that arrived, by their number.
   * @type {Map<number, {bytes: Uint8Array, isVerified: boolean}>}
   */
  parts = new Map();
  /** Number of the first object that is not passed on. */
  next = 0;
  /** Verified objects for the browser. @type {Uint8Array[]} */
  queue = [];
  /** @type {MessagePort | null} */
  port = null;
  isStarted = false;
  wants = false;
  /** True if all objects are in the queue. */
  isFinished = false;
  /** True if the browser has taken all of it. Nothing confirms that it stores the last bytes. */
  isSaved = false;
  /** @type {Error | null} */
  error = null;

  /**
   * @param {SaveTarget} target
   * @param {string} path
   * @param {number} size in bytes
   */
  constructor(target, path, size) {
    this.target = target;
    this.path = path;
    this.size = size;
  }

  check() {
    if (this.error !== null) {
      throw this.error;
    }
  }

  /**
   * Takes bytes of an object.
   * @param {number} offset
   * @param {Uint8Array} bytes
   */
  async write(offset, bytes) {
    const { target } = this;
    this.check();
    const index = Math.floor(offset / target.object);
    const start = index * target.object;
    let part = this.parts.get(index);
    if (part === undefined) {
      const length = Math.min(target.object, this.size - start);
      if (target.held + length > HELD_MAX) {
        throw new Error('too many bytes arrived before an earlier part of the file');
      }
      part = { bytes: target.buffer(length), isVerified: false };
      target.held += length;
      this.parts.set(index, part);
    }
    part.bytes.set(bytes, offset - start);
    while (this.error === null && target.queued > QUEUE_MAX) {
      await target.change();
    }
    this.check();
  }

  /** Takes note that an object is verified. @param {number} index */
  verified(index) {
    const part = this.parts.get(index);
    if (part !== undefined && this.error === null) {
      part.isVerified = true;
      this.advance();
    }
  }

  /** Passes on the verified objects that are next. */
  advance() {
    const { target, parts } = this;
    for (let part = parts.get(this.next); part?.isVerified; part = parts.get(this.next)) {
      parts.delete(this.next);
      this.next += 1;
      target.held -= part.bytes.length;
      target.queued += part.bytes.length;
      this.queue.push(part.bytes);
      this.start();
    }
    this.send();
  }

  /** Starts to save the file. */
  start() {
    if (this.isStarted) {
      return;
    }
    this.isStarted = true;
    const id = crypto.randomUUID();
    const begin = () => new Promise((answered) => {
      navigator.locks.request(`haul-save-${id}`, async () => {
        const { port1, port2 } = new MessageChannel();
        this.port = port1;
        port1.onmessage = ({ data }) => {
          if (data.isRegistered) {
            // Free before the end only if the service worker is gone.
            navigator.locks.request(`haul-saved-${id}`, () => this.fail('the browser stopped saving it'));
          } else {
            this.told(data);
            answered(undefined);
          }
        };
        this.target.save({ id, path: this.path, size: this.size, port: port2 });
        await this.ended();
        answered(undefined);
      });
    });
    this.target.starting = this.target.starting.then(() => (this.error === null ? begin() : undefined));
  }

  /** Waits until the browser has the file, or it failed. */
  async ended() {
    while (this.error === null && !this.isSaved) {
      await this.target.change();
    }
  }

  /** @param {{wants?: boolean, spare?: ArrayBuffer, done?: boolean, error?: string}} message */
  told({ wants, spare, done, error }) {
    const { spares } = this.target;
    if (spare !== undefined && spares.length < SPARES_MAX) {
      spares.push(spare);
    }
    if (wants) {
      this.wants = true;
      this.send();
    } else if (done) {
      this.isSaved = true;
      this.target.wake();
    } else {
      this.fail(error ?? 'the browser does not save it');
    }
  }

  /** Sends an object that the browser wants, or the end. */
  send() {
    const bytes = this.queue[0];
    if (!this.wants || this.error !== null || (bytes === undefined && !this.isFinished)) {
      return;
    }
    this.wants = false;
    if (bytes === undefined) {
      this.port?.postMessage({ end: true });
    } else {
      this.queue.shift();
      this.target.queued -= bytes.length;
      this.port?.postMessage({ bytes }, [bytes.buffer]);
    }
    this.target.wake();
  }

  /** The level of an object that the browser has taken. It confirms nothing that is durable. */
  sync() {
    return Level.verified;
  }

  /** Passes on the rest, which is verified, and waits until the browser has taken it. */
  async finish() {
    this.parts.forEach((part) => {
      part.isVerified = true;
    });
    this.isFinished = true;
    this.start();
    this.advance();
    await this.ended();
    this.check();
    this.target.files.delete(this.path);
    this.target.complete.set(this.path, this.size);
    return Level.verified;
  }

  /** Starts again from the first byte, which is possible until an object is passed on. */
  restart() {
    if (this.next > 0) {
      this.fail('the browser has a part of it, and the server sends another version; try again');
    }
    this.drop(() => true);
  }

  /**
   * Makes the download of the browser fail.
   * @param {string} text
   */
  fail(text) {
    if (this.error === null && !this.isSaved) {
      this.error = new Error(text);
      this.port?.postMessage({ error: text });
      this.drop(() => true);
      this.target.queued -= this.queue.splice(0).reduce((sum, bytes) => sum + bytes.length, 0);
      this.target.wake();
    }
  }

  /**
   * Drops objects that are not passed on.
   * @param {(part: {isVerified: boolean}) => boolean} isDropped
   */
  drop(isDropped) {
    for (const [index, part] of this.parts) {
      if (isDropped(part)) {
        this.parts.delete(index);
        this.target.held -= part.bytes.length;
      }
    }
  }

  /** Ends a session. The next one continues after the verified objects. */
  close() {
    this.drop((part) => !part.isVerified);
  }
}
