// The sink of a download: writes files when the module asks, and logs what is verified.

import { Outcome, reason } from './core.js';

/**
 * A file that is being received. A method that returns a promise fails by it.
 * @typedef {object} TargetFile
 * @property {boolean} isSync true if `write` and `sync` return no promise
 * @property {(offset: number, bytes: Uint8Array) => void | Promise<void>} write
 * @property {() => number | Promise<number>} sync makes bytes durable; returns the level
 * @property {(size: number) => number | Promise<number>} finish sets size and name
 * @property {() => void | Promise<void>} close keeps what is written for a later run, if it can
 * @property {(object: number) => void} [verified] an object is verified
 * @property {() => void} [restart] the file is sent again from its first byte
 * @property {(text: string) => void} [fail] the file failed
 */

/**
 * Storage of a download.
 * @typedef {object} Target
 * @property {(path: string, isComplete: boolean) => Promise<number>} sizeOf size of the
 *   file, or of its temporary file if it is not complete; -1 if there is none
 * @property {(path: string) => Promise<number>} [modifiedAt] `lastModified` of a finished file, -1
 *   if there is none; a storage without times lacks it
 * @property {(path: string, keep: boolean, size: number) => Promise<TargetFile>} open opens the
 *   temporary file of a path
 * @property {boolean} [takesVerified] true if its files have `verified`, `restart` and `fail`
 * @property {(path: string) => Promise<void>} directory creates a directory
 */

/** Bytes of zeros that are written at a time. */
const ZEROS = new Uint8Array(256 << 10);

/** @implements {import('./transfer.js').Direction} */
export class Download {
  /**
   * @param {{job: Uint8Array, paths: string[], object: number, level: number}} settings
   * @param {Target} target
   * @param {import('./job-log.js').JobLog} log
   * @param {(report: import('./core.js').CoreEvent) => void} report
   * @param {() => void} settle takes the events of the module
   */
  constructor(settings, target, log, report, settle) {
    this.settings = settings;
    this.target = target;
    this.log = log;
    this.report = report;
    this.settle = settle;
    this.fail = (/** @type {unknown} */ _error) => {};
    /** @type {Map<number, Receiving>} */
    this.files = new Map();
    /** @type {Set<Promise<void>>} */
    this.closings = new Set();
    this.session = 0;
    /** Bytes that this session has written or found, for progress. */
    this.settledBytes = 0;
  }

  /** @param {import('./core.js').Core} core */
  async start(core) {
    this.core = core;
    this.session += 1;
    this.settledBytes = 0;
    core.download({ ...this.settings, kept: await this.kept() });
  }

  /** Returns what the log says, as far as the storage still has it. */
  async kept() {
    const { object } = this.settings;
    const found = [];
    for (const file of this.log.kept()) {
      const size = await this.target.sizeOf(file.path, file.complete);
      const isSame = size === file.size && (await this.target.modifiedAt?.(file.path)) === file.modified;
      if (file.complete ? isSame : size >= 0) {
        const objects = file.objects.filter(([index]) => Math.min(file.size, (index + 1) * object) <= size);
        found.push({ ...file, objects });
      }
    }
    return found;
  }

  continue() {}

  /** True if the session waits for the storage of this computer. */
  get isAtStorage() {
    return true;
  }

  async end() {
    this.session += 1;
    [...this.files.values()].forEach((file) => this.close(file));
    this.files.clear();
    await Promise.all(this.closings);
    this.log.flush();
  }

  /**
   * Closes a file after its work. The next session can open it when `end` has returned.
   * @param {Receiving} file
   */
  close(file) {
    const closing = file.after((open) => open.close())
      .catch(() => {})
      .finally(() => this.closings.delete(closing));
    this.closings.add(closing);
  }

  /** @param {import('./core.js').CoreEvent} event */
  handle(event) {
    const file = this.files.get(event.file);
    switch (event.type) {
      case 'open':
        this.log.opened(event);
        this.settledBytes += Math.min(event.have * this.settings.object, event.size);
        this.files.set(event.file, new Receiving(event.path, this.target.open(event.path, event.have > 0, event.size)));
        this.report(event);
        break;
      case 'directory':
        this.answer(this.target.directory(event.path).then(() => 1), (result) => this.core.finished(event, result));
        break;
      case 'write':
        this.write(event, file);
        break;
      case 'zeros':
        this.work(file, (open) => zeros(open, event), (result) => this.written(event, result));
        break;
      case 'sync':
        this.work(file, (open) => open.sync(), (result) => this.core.synced(event, result));
        break;
      case 'verified':
        this.log.verified(file?.path ?? '', event.object, event.digest);
        this.tell(file, (open) => open.verified?.(event.object));
        this.report({ ...event, ...this.version(file) });
        break;
      case 'restart':
        this.log.restarted(file?.path ?? '');
        this.tell(file, (open) => open.restart?.());
        this.report({ ...event, ...this.version(file) });
        break;
      case 'failed':
        this.tell(file, (open) => open.fail?.(event.text));
        this.report({ ...event, path: event.path ?? file?.path });
        break;
      case 'finish':
        this.finish(event, file);
        break;
      case 'abandon':
        this.files.delete(event.file);
        if (file) {
          this.close(file);
        }
        break;
      case 'same': {
        const size = this.log.files.get(event.path)?.size ?? 0;
        this.settledBytes += size;
        this.report({ ...event, size });
        break;
      }
      default:
        this.report({ ...event, path: event.path ?? file?.path });
    }
  }

  /**
   * Returns path, size and time of a file.
   * @param {Receiving | undefined} file
   */
  version({ path } = { path: '' }) {
    const { size, mtime } = this.log.files.get(path) ?? {};
    return { path, size, mtime };
  }

  /**
   * Tells a file something after its earlier work, if the target wants to know.
   * @param {Receiving | undefined} file
   * @param {(open: TargetFile) => void} tell
   */
  tell(file, tell) {
    if (this.target.takesVerified) {
      // The next write fails if this did.
      file?.after(tell).catch(() => {});
    }
  }

  /**
   * Writes bytes of the input buffer. They are copied unless they are written at once.
   * @param {import('./core.js').CoreEvent} event
   * @param {Receiving | undefined} file
   */
  write(event, file) {
    const view = this.core.inputBytes(/** @type {any} */ (event));
    const bytes = file?.isReady ? view : view.slice();
    this.work(file, (open) => open.write(event.offset, bytes), (result) => this.written(event, result));
  }

  /**
   * Does work on a file: at once if it is ready, else after all earlier work.
   * @param {Receiving | undefined} file
   * @param {(open: TargetFile) => any} work
   * @param {(result: any) => void} tell gets the result, or a reason as a string
   */
  work(file, work, tell) {
    if (!file?.isReady) {
      this.answer(file?.after(work), tell);
      return;
    }
    let result;
    try {
      result = work(/** @type {TargetFile} */ (file.open));
    } catch (error) {
      result = reason(error);
    }
    tell(result);
  }

  /**
   * @param {import('./core.js').CoreEvent} event
   * @param {unknown} result
   */
  written(event, result) {
    const failure = typeof result === 'string' ? result : undefined;
    this.settledBytes += failure === undefined ? event.len : 0;
    this.core.written(event, failure);
  }

  /**
   * @param {import('./core.js').CoreEvent} event
   * @param {Receiving | undefined} file
   */
  finish(event, file) {
    const finishing = file?.after(async (open) => {
      const level = await open.finish(event.size);
      this.log.completed(file.path, event.digest, await this.target.modifiedAt?.(file.path));
      return level;
    });
    this.answer(finishing, (result) => {
      this.files.delete(event.file);
      this.core.finished(event, result);
      if (typeof result === 'number') {
        this.report({ ...event, type: 'fileDone', outcome: Outcome.done, path: file?.path, level: result });
      }
    });
  }

  /**
   * Passes a result to the module, or the reason why there is none as a string.
   * @param {void | Promise<any> | undefined} work
   * @param {(result: any) => void} tell
   */
  answer(work, tell) {
    const { session } = this;
    const told = (/** @type {any} */ result) => {
      if (session === this.session) {
        tell(result);
        this.settle();
      }
    };
    (work ?? Promise.reject(new Error('the file is not open')))
      .then(told, (error) => told(reason(error)))
      .catch((error) => this.fail(error));
  }
}

/** A file that opens, with its work in order. */
class Receiving {
  /**
   * @param {string} path
   * @param {Promise<TargetFile>} opening
   */
  constructor(path, opening) {
    this.path = path;
    /** @type {TargetFile | null} */
    this.open = null;
    this.works = 1;
    this.last = opening.then((open) => {
      this.open = open;
      return open;
    }).finally(() => {
      this.works -= 1;
    });
    this.last.catch(() => {});
    this.opening = this.last;
  }

  /** True if no work is in progress, and work is done without waiting. */
  get isReady() {
    return this.works === 0 && this.open?.isSync === true;
  }

  /**
   * Does work after all earlier work. Work fails if the file cannot be opened.
   * @template T
   * @param {(open: TargetFile) => T | Promise<T>} work
   * @returns {Promise<T>}
   */
  after(work) {
    this.works += 1;
    const done = this.last.catch(() => {}).then(() => this.opening).then(work);
    /** @type {Promise<any>} */
    this.last = done.finally(() => {
      this.works -= 1;
    });
    this.last.catch(() => {});
    return done;
  }
}

/**
 * Writes zeros. Returns a promise unless the file writes without waiting.
 * @param {TargetFile} file
 * @param {import('./core.js').CoreEvent} event
 */
function zeros(file, { offset, len }) {
  let done;
  for (let at = 0; at < len; at += ZEROS.length) {
    const part = ZEROS.subarray(0, Math.min(ZEROS.length, len - at));
    const write = () => file.write(offset + at, part);
    done = file.isSync ? write() : (done ?? Promise.resolve()).then(write);
  }
  return done;
}
