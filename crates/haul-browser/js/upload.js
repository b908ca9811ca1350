// The source of an upload: offers files, and reads them when the module asks.

import { Outcome, reason } from './core.js';
import { SequentialReader } from './sequential-reader.js';

/**
 * A file or a directory to send.
 * @typedef {object} Entry
 * @property {string} path beneath the destination
 * @property {() => Promise<File>} [file] returns the file as it is now; none for a directory
 * @property {string} [failure] the reason why the entry cannot be read
 */

/**
 * What the user picked or dropped. A path is one that the page knows and the file does not.
 * @typedef {File | FileSystemHandle | {file: File, path: string}} Root
 */

/** Number of files that are opened before they are offered. */
const AHEAD = 16;

/** Time in milliseconds that an open file waits before it is opened again. */
const REOPEN = 1000;

/** @implements {import('./transfer.js').Direction} */
export class Upload {
  /**
   * @param {{job: Uint8Array, to: string, object: number, level: number, compares?: boolean}} settings
   * @param {() => AsyncIterable<Entry>} entries starts a walk
   * @param {(report: import('./core.js').CoreEvent) => void} report
   * @param {() => void} settle takes the events of the module
   */
  constructor(settings, entries, report, settle) {
    this.settings = settings;
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
    for await (const { entry, opening } of ahead(this.entries(), AHEAD)) {
      let file = await opening;
      const since = performance.now();
      while (session === this.session && !this.core.capacity()) {
        await new Promise((resolve) => {
          this.wakeWalk = () => resolve(undefined);
        });
      }
      if (session === this.session && performance.now() - since > REOPEN) {
        // A browser refuses to read a file that was changed since it was opened.
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
        this.report({ ...event, path, size: file?.size, mtime: file?.lastModified });
        break;
      }
      case 'fileDone': {
        const { path, file, reader } = this.open.get(event.file) ?? {};
        reader?.close();
        this.open.delete(event.file);
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
    const reader = this.open.get(event.file)?.reader;
    const answer = (/** @type {Uint8Array | string} */ result) => {
      this.reads -= 1;
      if (session === this.session) {
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
      const now = await this.open.get(event.file)?.entry.file?.();
      found = now ? { size: now.size, mtime: now.lastModified } : 'the file is not open';
    } catch (error) {
      found = reason(error);
    }
    if (session === this.session) {
      this.core.checked(event, found);
      this.settle();
    }
  }
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
 * only if it is empty: the server creates the others with their files.
 * @param {Root[]} roots
 * @returns {AsyncGenerator<Entry, void, void>}
 */
export async function* walk(roots) {
  for (const root of roots) {
    if (root instanceof File) {
      yield { path: root.webkitRelativePath || root.name, file: async () => root };
    } else if ('file' in root) {
      yield { path: root.path, file: async () => root.file };
    } else {
      yield* walkHandle(root, root.name);
    }
  }
}

/**
 * @param {FileSystemHandle} handle
 * @param {string} path
 * @returns {AsyncGenerator<Entry, void, void>}
 */
async function* walkHandle(handle, path) {
  if (handle.kind === 'file') {
    yield { path, file: () => /** @type {FileSystemFileHandle} */ (handle).getFile() };
    return;
  }
  let isEmpty = true;
  try {
    for await (const child of /** @type {FileSystemDirectoryHandle} */ (handle).values()) {
      isEmpty = false;
      yield* walkHandle(child, `${path}/${child.name}`);
    }
  } catch (error) {
    yield { path, failure: reason(error) };
    return;
  }
  if (isEmpty) {
    yield { path };
  }
}
