// The log of a download: which objects and files are verified and durable. A later run of the job
// fetches only the rest.
//
// Lines of JSON, appended in order. A line that is cut at the end of the log does not count.
//   {"path", "size", "mtime", "version"}  a file starts; of another version, nothing older counts
//   {"path", "object", "digest"}          an object is durable
//   {"path", "created"}                   an empty file of this name is created, or removed (false)
//   {"path", "restart": true}             nothing older of the file counts, except its version
//   {"path", "complete": digest, "modified"}  the file is finished; its time in milliseconds

/**
 * Characters from which lines are written. Each write is a call of another process of the browser,
 * and costs as much as the file of a short line.
 */
const WRITE = 1 << 16;

/** Lines that are appended to a log, many at a time. */
export class LogWriter {
  /** @param {LogFile} file */
  constructor(file) {
    this.file = file;
    /** Lines that are not written yet. */
    this.lines = '';
  }

  /** @param {any} record */
  add(record) {
    this.lines += `${JSON.stringify(record)}\n`;
    if (this.lines.length >= WRITE) {
      this.write();
    }
  }

  /** Writes the lines that were added. A page that ends before this loses them. */
  write() {
    if (this.lines) {
      this.file.append(this.lines);
      this.lines = '';
    }
  }
}

/**
 * Storage of a log.
 * @typedef {object} LogFile
 * @property {() => Iterable<string>} lines
 * @property {(lines: string) => void} append adds lines, each with its line feed
 * @property {() => void} flush
 * @property {() => void} close
 */

export class JobLog {
  /** @param {LogFile} file */
  constructor(file) {
    this.file = file;
    this.writer = new LogWriter(file);
    /** @type {Map<string, import('./core.js').Kept & {modified?: number, created?: boolean}>} */
    this.files = new Map();
    for (const line of file.lines()) {
      this.replay(line);
    }
  }

  /** @param {string} line */
  replay(line) {
    try {
      const record = JSON.parse(line);
      if (typeof record.path === 'string') {
        this.apply(record);
      }
    } catch {
      // A line that was cut: its object is fetched again.
    }
  }

  /** @param {any} record */
  apply({ path, size, mtime, version, object, digest, restart, complete, modified, created }) {
    const known = this.files.get(path);
    if (version !== undefined) {
      const isSame = known && known.size === size && known.mtime === mtime && known.version === version;
      if (!isSame) {
        this.files.set(path, { path, size, mtime, version, complete: false, objects: [] });
      }
    } else if (known && restart) {
      known.objects = [];
      known.complete = false;
    } else if (known && object !== undefined) {
      known.objects.push([object, digest]);
    } else if (known && created !== undefined) {
      known.created = created;
    } else if (known && complete !== undefined) {
      known.complete = true;
      known.modified = modified;
    }
  }

  /** @param {any} record */
  add(record) {
    this.apply(record);
    this.writer.add(record);
  }

  /** Writes what was added. Without it, a later run fetches some files again. */
  write() {
    this.writer.write();
  }

  /** @param {import('./core.js').CoreEvent} event */
  opened({ path, size, mtime, version, have }) {
    this.add({ path, size, mtime, version });
    if (have === 0) {
      this.restarted(path);
    }
  }

  /**
   * @param {string} path
   * @param {number} object
   * @param {string} digest
   */
  verified(path, object, digest) {
    this.add({ path, object, digest });
  }

  /** @param {string} path */
  restarted(path) {
    const known = this.files.get(path);
    if (known?.complete || known?.objects.length) {
      this.add({ path, restart: true });
    }
  }

  /**
   * Notes that an empty file has the name until all data arrived, or no longer.
   * @param {string} path
   * @param {boolean} created
   */
  created(path, created) {
    this.add({ path, created });
    // A run that follows a crash must find the empty file.
    this.write();
  }

  /** Returns the paths of files that can be empty, because their data did not arrive. */
  empty() {
    return [...this.files.values()].filter((file) => file.created && !file.complete).map(({ path }) => path);
  }

  /**
   * @param {string} path
   * @param {string} digest
   * @param {number} [modified] `lastModified` of the finished file
   */
  completed(path, digest, modified) {
    this.add({ path, complete: digest, modified });
  }

  flush() {
    this.write();
    this.file.flush();
  }

  /** Returns the files, and parts of files, that this job has. */
  kept() {
    return [...this.files.values()].filter((file) => file.complete || file.objects.length > 0);
  }
}
