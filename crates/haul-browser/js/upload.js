// The source of an upload: offers files, and reads them when the module asks.

import { Outcome, reason } from './core.js';
import { isOwnName, ownPart } from './own-names.js';
import { SequentialReader } from './sequential-reader.js';

/**
 * A file or a directory to send.
 * @typedef {object} Entry
 * @property {string} path beneath the destination
 * @property {() => Promise<File>} [file] returns the file as it is now; none for a directory
 * @property {boolean} [isFixed] `file` always returns the size and the time of the first moment
 * @property {string} [failure] the reason why the entry cannot be read
 */

/**
 * What the user picked or dropped. A path is one that the page knows and the file does not; without
 * a file it is that of an empty directory.
 * @typedef {File | FileSystemHandle | {file?: File, path: string}} Root
 */

/** Number of files that are opened before they are offered. */
const AHEAD = 16;

/** Time in milliseconds that an open file waits before it is opened again. */
const REOPEN = 1000;

/** Largest read that the module requests, in bytes. */
const BLOCK = 1 << 20;

/**
 * What finds changes of files whose size and time stay, in a browser that reads them all the same:
 * a module that is free, and the digests of objects that earlier runs have sent, by `versionKey`.
 * @typedef {{core: import('./core.js').Core, sent: Map<string, (string | undefined)[]>}} Reread
 */

/** @implements {import('./transfer.js').Direction} */
export class Upload {
  /**
   * @param {{job: Uint8Array, to: string, object: number, level: number, compares?: boolean}} settings
   * @param {(leaveOut: (path: string) => void) => AsyncIterable<Entry>} entries starts a walk
   * @param {(report: import('./core.js').CoreEvent) => void} report
   * @param {() => void} settle takes the events of the module
   * @param {Reread | null} [reread] null if the browser refuses to read a file that changed
   */
  constructor(settings, entries, report, settle, reread = null) {
    this.settings = settings;
    this.reread = reread;
    this.entries = entries;
    this.report = report;
    this.settle = settle;
    this.fail = (/** @type {unknown} */ _error) => {};
    /**
     * What was offered, by its number. The file of a directory is null.
     * @type {Map<number, {path: string, entry: Entry, file: File | null, reader: SequentialReader | null}>}
     */
    this.open = new Map();
    this.session = 0;
    /** Reads that are in progress. */
    this.reads = 0;
    this.wakeWalk = () => {};
  }

  /** True if the session waits for the storage of this computer. */
  get isAtStorage() {
    return this.reads > 0;
  }

  /** @param {import('./core.js').Core} core */
  start(core) {
    this.core = core;
    this.session += 1;
    core.upload(this.settings);
    this.walk(this.session).catch((error) => {
      this.report({ type: 'failed', text: `cannot continue the walk: ${reason(error)}` });
      core.stop();
      this.settle();
    }).catch((error) => this.fail(error));
  }

  async end() {
    // Reads of this session that are in progress answer to nobody.
    this.session += 1;
    this.open.forEach(({ reader }) => reader?.close());
    this.open.clear();
    this.wakeWalk();
  }

  continue() {
    if (this.core?.capacity()) {
      this.wakeWalk();
    }
  }

  /**
   * Offers the entries of the walk while the window has space.
   * @param {number} session
   */
  async walk(session) {
    const leaveOut = (/** @type {string} */ path) => this.report({ type: 'leftOut', path });
    for await (const { entry, opening } of ahead(this.entries(leaveOut), AHEAD)) {
      let file = await opening;
      const since = performance.now();
      while (session === this.session && !this.core.capacity()) {
        await new Promise((resolve) => {
          this.wakeWalk = () => resolve(undefined);
        });
      }
      if (session === this.session && performance.now() - since > REOPEN) {
        // Chromium refuses to read a file that was changed since it was opened.
        file = await open(entry);
      }
      if (session !== this.session) {
        return;
      }
      this.offer(entry, file);
      this.settle();
    }
    if (session === this.session) {
      this.core.walkEnded();
      this.settle();
    }
  }

  /**
   * @param {Entry} entry
   * @param {File | null | undefined} file
   */
  offer(entry, file) {
    const { path } = entry;
    if (entry.failure) {
      this.core.unread(path, entry.failure);
      this.report({ type: 'failed', path, text: `cannot read ${path}: ${entry.failure}` });
      return;
    }
    try {
      // Browsers know no time of a directory.
      const number = this.core.offer(path, file ? file.size : null, file ? file.lastModified : Date.now());
      this.open.set(number, { path, entry, file: file ?? null, reader: file ? new SequentialReader(file) : null });
    } catch (error) {
      this.report({ type: 'failed', path, text: reason(error) });
    }
  }

  /** @param {import('./core.js').CoreEvent} event */
  handle(event) {
    switch (event.type) {
      case 'read':
        this.read(event, this.session).catch((error) => this.fail(error));
        break;
      case 'check':
        this.check(event, this.session).catch((error) => this.fail(error));
        break;
      case 'hashed':
      case 'restart': {
        const { path, file } = this.open.get(event.file) ?? {};
        if (event.type === 'restart') {
          this.reread?.sent.delete(versionKey(path, file));
        } else {
          this.noteSent(path, file, event.object, event.digest);
        }
        this.report({ ...event, path, size: file?.size, mtime: file?.lastModified });
        break;
      }
      case 'fileDone': {
        const { path, file, reader } = this.open.get(event.file) ?? {};
        reader?.close();
        this.open.delete(event.file);
        this.reread?.sent.delete(versionKey(path, file));
        const digest = event.outcome === Outcome.done ? event.text : '';
        const { size, lastModified: mtime } = file ?? {};
        this.report({ ...event, path, isDirectory: file === null, size, mtime, digest });
        break;
      }
      default:
        this.report({ ...event, path: this.open.get(event.file)?.path });
    }
  }

  /**
   * @param {import('./core.js').CoreEvent} event
   * @param {number} session
   */
  async read(event, session) {
    const { path, entry, file, reader } = this.open.get(event.file) ?? {};
    const answer = (/** @type {Uint8Array | string} */ result) => {
      this.reads -= 1;
      if (session === this.session) {
        // The module gives no digest of an object that is the complete file before its end.
        if (this.reread && entry?.isFixed && typeof result !== 'string'
          && file.size <= this.settings.object && result.length === event.len) {
          const index = event.offset / BLOCK;
          this.noteSent(path, file, index, digestOf(this.reread.core, file.size, BLOCK, index, result));
        }
        this.core.readDone(event, result);
        this.settle();
      }
    };
    this.reads += 1;
    await (reader ? reader.read(event.offset, event.len, answer) : answer('the file is not open'));
  }

  /**
   * @param {import('./core.js').CoreEvent} event
   * @param {number} session
   */
  async check(event, session) {
    let found;
    try {
      const { path, entry } = this.open.get(event.file) ?? {};
      const now = await entry?.file?.();
      found = now ? { size: now.size, mtime: now.lastModified } : 'the file is not open';
      if (now && entry.isFixed && await this.isChanged(path, now)) {
        found = 'it changed while it was sent; choose it again, then upload it again';
      }
    } catch (error) {
      found = reason(error);
    }
    if (session === this.session) {
      this.core.checked(event, found);
      this.settle();
    }
  }

  /** @param {string} path @param {File} file @param {number} index @param {string} digest */
  noteSent(path, file, index, digest) {
    const sent = this.reread?.sent.get(versionKey(path, file)) ?? [];
    sent[index] = digest;
    this.reread?.sent.set(versionKey(path, file), sent);
  }

  /**
   * Reads what was sent once more. Returns true if anything differs.
   * @param {string} path
   * @param {File} file
   */
  async isChanged(path, file) {
    const sent = this.reread?.sent.get(versionKey(path, file)) ?? [];
    const { size } = file;
    const unit = size > this.settings.object ? this.settings.object : BLOCK;
    const reader = new SequentialReader(file);
    let isChanged = false;
    try {
      for (let index = 0; index < sent.length && !isChanged; index += 1) {
        const length = Math.min(unit, size - index * unit);
        await (sent[index] && reader.read(index * unit, length, (bytes) => {
          isChanged = typeof bytes === 'string' || bytes.length !== length || digestOf(this.reread.core, size, unit, index, bytes) !== sent[index];
        }));
      }
    } finally {
      reader.close();
    }
    return isChanged;
  }
}

/**
 * Returns the key of a version of a file.
 * @param {string} path
 * @param {{size: number, lastModified: number} | null} [file] null for a directory
 */
export const versionKey = (path, file) => `${file?.size} ${file?.lastModified} ${path}`;

/**
 * Returns the digest of an object of a file.
 * @param {import('./core.js').Core} core @param {number} size of the file
 * @param {number} unit size of an object @param {number} index @param {Uint8Array} bytes
 */
function digestOf(core, size, unit, index, bytes) {
  core.hashBegin(size, unit);
  core.hashObject(index);
  core.hashUpdate(bytes);
  return core.hashObjectEnd();
}

/**
 * Opens the files of entries before they are needed, because each takes a round trip to another
 * process of the browser.
 * @param {AsyncIterable<Entry>} entries
 * @param {number} count
 */
async function* ahead(entries, count) {
  const opened = [];
  for await (const entry of entries) {
    opened.push({ entry, opening: open(entry) });
    if (opened.length === count) {
      yield /** @type {typeof opened[0]} */ (opened.shift());
    }
  }
  yield* opened;
}

/**
 * Returns the file of an entry. A failure is noted in the entry.
 * @param {Entry} entry
 */
async function open(entry) {
  try {
    return entry.failure ? null : await entry.file?.();
  } catch (error) {
    entry.failure = reason(error);
    return null;
  }
}

/**
 * Walks files and directories that the user picked or dropped. A directory is an entry of its own
 * only if it is empty: the server creates the others with their files. Surehaul's own files are
 * left out.
 * @param {Root[]} roots
 * @param {(path: string) => void} [leaveOut] takes the path of what is left out
 * @returns {AsyncGenerator<Entry, void, void>}
 */
export async function* walk(roots, leaveOut = () => {}) {
  for (const root of roots) {
    const path = root instanceof File ? root.webkitRelativePath || root.name : 'path' in root ? root.path : root.name;
    const own = ownPart(path);
    if (own !== null) {
      leaveOut(own);
    } else if (root instanceof File) {
      yield { path, file: async () => root, isFixed: true };
    } else if ('file' in root) {
      yield { path, file: async () => root.file, isFixed: true };
    } else if ('path' in root) {
      yield { path };
    } else {
      yield* walkHandle(root, path, leaveOut);
    }
  }
}

/**
 * @param {FileSystemHandle} handle
 * @param {string} path
 * @param {(path: string) => void} leaveOut
 * @returns {AsyncGenerator<Entry, void, void>}
 */
async function* walkHandle(handle, path, leaveOut) {
  if (handle.kind === 'file') {
    yield { path, file: () => /** @type {FileSystemFileHandle} */ (handle).getFile() };
    return;
  }
  let isEmpty = true;
  try {
    for await (const child of /** @type {FileSystemDirectoryHandle} */ (handle).values()) {
      const inside = `${path}/${child.name}`;
      if (isOwnName(child.name)) {
        leaveOut(inside);
      } else {
        isEmpty = false;
        yield* walkHandle(child, inside, leaveOut);
      }
    }
  } catch (error) {
    yield { path, failure: reason(error) };
    return;
  }
  if (isEmpty) {
    yield { path };
  }
}
