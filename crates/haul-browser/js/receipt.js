// The waybill of a job: which files arrived, with their digests. Years later, `haul verify` compares
// the files with it.
//
// While the job runs, its files and objects are lines of JSON in a log, so that a job that resumes has
// those of its earlier runs. The module writes the waybill when the job ends.
//   {"path", "size", "mtime", "object", "digest"}   an object of a file of several objects
//   {"path", "size", "mtime", "restart": true}      no earlier object counts
//   {"path", "size", "mtime", "level", "digest"}    the file arrived

import { Level, Outcome } from './core.js';
import { LogWriter } from './job-log.js';

/** Maximum number of objects of a file in a waybill: 4 TiB in objects of 4 MiB. */
const OBJECTS_MAX = 1 << 20;

/** Characters of a waybill that are text at a time. */
const PART = 1 << 20;

/**
 * A file that arrived.
 * @typedef {object} ReceiptEntry
 * @property {string} path beneath the directory of the job
 * @property {number} size in bytes
 * @property {number} mtime milliseconds since 1970
 * @property {number} level level that the file reached
 * @property {string} digest BLAKE3 in hexadecimal digits; empty if only the objects have digests
 * @property {string[]} [objects] digests of all objects, if there are several
 */

export class Receipt {
  /**
   * @param {import('./job-log.js').LogFile} file
   * @param {number} object size of an object in bytes
   */
  constructor(file, object) {
    this.file = file;
    this.object = object;
    this.writer = new LogWriter(file);
  }

  /**
   * Adds the object of a `hashed` or `verified` event, and the file of a `fileDone` or `same` event
   * if it arrived. A file has no digest if the receiver had it already.
   * @param {import('./core.js').CoreEvent} event
   */
  add({ type, path, size, mtime, object, level, digest, outcome = Outcome.done, isDirectory = false }) {
    const version = { path, size, mtime };
    if (type === 'hashed' || type === 'verified') {
      this.writer.add({ ...version, object, digest });
    } else if (type === 'restart') {
      this.writer.add({ ...version, restart: true });
    } else if (type === 'same' || (type === 'fileDone' && !isDirectory)) {
      if (outcome !== Outcome.failed && outcome !== Outcome.dryRun) {
        this.writer.add({ ...version, level, digest });
      }
    }
  }

  /** Writes the files that were added. A page that is closed before this has no digests of them. */
  write() {
    this.writer.write();
  }

  /** Returns what the log has of each file, by its path. */
  files() {
    this.write();
    /** @type {Map<string, ReceiptEntry & {objects: (string | undefined)[]}>} */
    const files = new Map();
    for (const line of this.file.lines()) {
      let record;
      try {
        record = JSON.parse(line);
      } catch {
        continue; // A line that was cut.
      }
      const { path, size, mtime, object, restart, level, digest } = record;
      let known = files.get(path);
      if (!known || known.size !== size || ![undefined, known.mtime].includes(mtime)) {
        known = { path, size, mtime, level: 0, digest: '' };
        files.set(path, known);
      }
      if (restart) {
        known.objects = undefined;
      } else if (object !== undefined) {
        known.objects ??= [];
        known.objects[object] = digest;
      } else if (digest || (level && !known.digest) || known.level === 0) {
        // The receiver had the file before if no run brought it to a level. Nothing proves its objects.
        known.objects = level ? known.objects : undefined;
        known.level = level || Level.received;
        known.digest = digest || '';
      }
    }
    return files;
  }

  /**
   * Returns the files with digests, each path once, and the number of files without any.
   * @returns {{entries: ReceiptEntry[], unknown: number}}
   */
  read() {
    const entries = [];
    let unknown = 0;
    for (const entry of this.files().values()) {
      entry.objects = this.completeObjects(entry);
      if (entry.level > 0 && (entry.digest || entry.objects)) {
        entries.push(entry);
      } else {
        unknown += Number(entry.level > 0);
      }
    }
    return { entries, unknown };
  }

  /**
   * Returns the digests of the objects of a file if it has several, and all are known.
   * @param {ReceiptEntry} entry
   */
  completeObjects({ size, objects }) {
    const count = Math.ceil(size / this.object);
    const isComplete = count > 1 && count <= OBJECTS_MAX && objects?.length === count && !objects.includes(undefined);
    return isComplete ? objects : undefined;
  }
}

/**
 * Returns a log in memory.
 * @returns {import('./job-log.js').LogFile}
 */
export function memoryLog() {
  /** @type {string[]} */
  const parts = [];
  const lines = () => parts.flatMap((part) => part.split('\n'));
  return { lines, append: (part) => { parts.push(part); }, flush() {}, close() {} };
}

/**
 * Returns the waybill. It can be longer than a string.
 * @param {import('./core.js').Core} core
 * @param {{at: number, root: string, run: string}} job as for `Core.waybillBegin`
 * @param {ReceiptEntry[]} entries
 * @param {number} [object] size of an object in bytes, if entries have any
 */
export function waybill(core, job, entries, object) {
  const parts = [];
  let text = core.waybillBegin(job);
  for (const entry of entries) {
    text += core.waybillEntry(entry, object);
    if (text.length >= PART) {
      // The browser can move a Blob to the disk.
      parts.push(new Blob([text]));
      text = '';
    }
  }
  return new Blob([...parts, text, core.waybillEnd()], { type: 'text/plain' });
}
