// Results of the files of one job, over all of its sessions, for the page.

import { Level, Outcome } from './core.js';

/** Failures that are kept with their reasons. */
const FAILURES_MAX = 200;

/** Names of the levels, for the page. */
const LEVELS = ['none', 'received', 'verified', 'durable', 'reread'];

/**
 * @typedef {object} Result
 * @property {number} outcome
 * @property {number} level
 * @property {number} size
 */

export class Tally {
  constructor() {
    /** @type {Map<string, Result>} */
    this.files = new Map();
    /** @type {Map<string, string>} */
    this.failures = new Map();
    this.counts = { done: 0, same: 0, failed: 0 };
    /** The lowest level of a file that is complete. */
    this.level = Level.reread;
  }

  /**
   * Takes a report of an upload or a download.
   * @param {import('./core.js').CoreEvent} report
   */
  add(report) {
    const path = report.path ?? '';
    if (report.type === 'failed') {
      this.fail(path, report.text);
    } else if (report.type === 'same') {
      this.complete(path, { outcome: Outcome.same, level: Level.received, size: report.size ?? 0 });
    } else if (report.type === 'fileDone' && report.outcome === Outcome.failed) {
      this.fail(path, report.text);
    } else if (report.type === 'fileDone' && !report.isDirectory) {
      const { outcome, level, size = 0 } = report;
      // An equal file was there before: this job did not make it durable.
      this.complete(path, { outcome, level: level || Level.received, size });
    }
  }

  /**
   * @param {string} path
   * @param {Result} result
   */
  complete(path, result) {
    const known = this.files.get(path);
    if (known && known.outcome !== Outcome.failed && result.outcome === Outcome.same) {
      // A session after a lost lane finds the file that this job has sent.
      return;
    }
    this.count(known, -1);
    this.count(result, 1);
    this.files.set(path, result);
    this.failures.delete(path);
    this.level = Math.min(this.level, result.level);
  }

  /**
   * @param {string} path empty for a failure that names its file in the text
   * @param {string} text
   */
  fail(path, text) {
    const key = path || text;
    const known = this.files.get(key);
    if (known?.outcome !== Outcome.failed) {
      const result = { outcome: Outcome.failed, level: 0, size: 0 };
      this.count(known, -1);
      this.count(result, 1);
      this.files.set(key, result);
    }
    if (this.failures.has(key) || this.failures.size < FAILURES_MAX) {
      this.failures.set(key, text);
    }
  }

  /**
   * @param {Result | undefined} result
   * @param {number} step
   */
  count(result, step) {
    if (result) {
      const name = result.outcome === Outcome.failed ? 'failed' : result.outcome === Outcome.same ? 'same' : 'done';
      this.counts[name] += step;
    }
  }

  /** Returns what the page shows. */
  summary() {
    const some = this.counts.done + this.counts.same > 0;
    return { ...this.counts, level: LEVELS[some ? this.level : 0] };
  }

  /** Returns the paths of the files that are at the target. */
  copied() {
    return [...this.files].filter(([, { outcome }]) => outcome !== Outcome.failed).map(([path]) => path);
  }

  /** Returns the first failures. */
  failed() {
    return [...this.failures].map(([path, text]) => ({ path, text }));
  }
}
