// The waybill of a job: which files arrived, with their digests. Years later, `haul verify` compares
// the files with it.
//
// While the job runs, its files are lines of JSON in a log, so that a job that resumes has the files
// of its earlier runs. The module writes the waybill when the user saves it.

import { Outcome } from './core.js';
import { LogWriter } from './job-log.js';

/** Characters of a waybill that are text at a time. */
const PART = 1 << 20;

/**
 * A file that arrived.
 * @typedef {object} ReceiptEntry
 * @property {string} path beneath the directory of the job
 * @property {number} size in bytes
 * @property {number} mtime milliseconds since 1970
 * @property {number} level level that the file reached
 * @property {string} digest BLAKE3 in hexadecimal digits
 */

export class Receipt {
  /** @param {import('./job-log.js').LogFile} file */
  constructor(file) {
    this.file = file;
    this.writer = new LogWriter(file);
  }

  /**
   * Adds the file of a `fileDone` event, if it arrived. A file has no digest if an earlier run sent
   * a part of it, or if the receiver had it already.
   * @param {import('./core.js').CoreEvent} event
   */
  add({ path, size, mtime, level, digest, outcome = Outcome.done }) {
    if (outcome !== Outcome.failed && outcome !== Outcome.dryRun) {
      this.writer.add({ path, size, mtime, level, digest });
    }
  }

  /** Writes the files that were added. A page that is closed before this has no digests of them. */
  write() {
    this.writer.write();
  }

  /**
   * Returns the files with a digest, each path once, and the number of files without one.
   * @returns {{entries: ReceiptEntry[], unknown: number}}
   */
  read() {
    this.write();
    /** @type {Map<string, ReceiptEntry>} */
    const files = new Map();
    for (const line of this.file.lines()) {
      let entry;
      try {
        entry = JSON.parse(line);
      } catch {
        continue; // A line that was cut.
      }
      const known = files.get(entry.path);
      const isSame = known?.size === entry.size && [undefined, known?.mtime].includes(entry.mtime);
      if (entry.digest || !isSame) {
        files.set(entry.path, entry);
      }
    }
    const entries = [...files.values()].filter((entry) => entry.digest);
    return { entries, unknown: files.size - entries.length };
  }
}

/**
 * Returns a log in memory.
 * @returns {import('./job-log.js').LogFile}
 */
export function memoryLog() {
  /** @type {string[]} */
  const lines = [];
  return { lines: () => lines, append: (line) => { lines.push(line); }, flush() {}, close() {} };
}

/**
 * Returns the waybill. It can be longer than a string.
 * @param {import('./core.js').Core} core
 * @param {{at: number, root: string, run: string}} job as for `Core.waybillBegin`
 * @param {ReceiptEntry[]} entries
 */
export function waybill(core, job, entries) {
  const parts = [];
  let text = core.waybillBegin(job);
  for (const entry of entries) {
    text += core.waybillEntry(entry);
    if (text.length >= PART) {
      // The browser can move a Blob to the disk.
      parts.push(new Blob([text]));
      text = '';
    }
  }
  return new Blob([...parts, text, core.waybillEnd()], { type: 'text/plain' });
}
