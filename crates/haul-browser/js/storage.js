// Where a download writes: the private file system of the origin (OPFS), or a folder that the user
// picked. Only for workers: synchronous access to files is not available in a page.

import { Level } from './core.js';
import { LOGS, asideName, existing, partName } from './leftovers.js';
import { Spellings } from './spellings.js';

/** Bytes of a log that are read at a time. A log can be longer than a string. */
const LOG_PART = 1 << 20;

const LINE_FEED = 10;

/**
 * Returns the directory of a path beneath `root`, created as needed, and the last component. Paths
 * come from the module, which checks them: no component is empty, `.` or `..`.
 * @param {FileSystemDirectoryHandle} root
 * @param {string} path
 */
async function place(root, path) {
  const parts = path.split('/');
  const name = /** @type {string} */ (parts.pop());
  let directory = root;
  for (const part of parts) {
    directory = await directory.getDirectoryHandle(part, { create: true });
  }
  return { directory, name };
}

/**
 * Returns what is known of a file, or null if there is none.
 * @param {FileSystemDirectoryHandle} root
 * @param {string} path
 * @param {(name: string) => string} [rename] gives the name of the file in its directory
 */
async function find(root, path, rename = (name) => name) {
  const place = await existing(root, path);
  try {
    const file = await place?.directory.getFileHandle(rename(place.name));
    const { size, lastModified } = /** @type {File} */ (await file?.getFile());
    return { size, lastModified };
  } catch {
    return null;
  }
}

/**
 * Returns the directory of a path like `place`. Fails if the disk takes one of its directories for
 * that of another path of the job.
 * @param {FileSystemDirectoryHandle} root
 * @param {string} path
 * @param {Spellings} spellings
 */
async function placeSpelled(root, path, spellings) {
  const parts = path.split('/');
  const name = /** @type {string} */ (parts.pop());
  let directory = root;
  for (const [index, part] of parts.entries()) {
    const above = directory;
    directory = await spellings.open(above, parts.slice(0, index + 1).join('/'), (create) =>
      above.getDirectoryHandle(part, { create }));
  }
  return { directory, name };
}

/**
 * Starts to replace a file. An empty one has its name until then if there was none.
 * @param {FileSystemDirectoryHandle} root
 * @param {string} path
 * @param {Spellings} spellings
 * @param {(path: string, created: boolean) => void} note
 */
async function createFile(root, path, spellings, note) {
  const { directory, name } = await placeSpelled(root, path, spellings);
  let isNew = false;
  const file = await spellings.open(directory, path, (create) =>
    directory.getFileHandle(name).catch((error) => {
      if (error.name !== 'NotFoundError' || !create) {
        throw error;
      }
      isNew = true;
      // If the browser stops, the next run removes the file.
      note(path, true);
      return directory.getFileHandle(name, { create });
    }));
  try {
    const stream = await file.createWritable({ keepExistingData: false });
    return { directory, name, isNew, stream };
  } catch (error) {
    if (isNew) {
      await directory.removeEntry(name).then(() => note(path, false)).catch(() => {});
      spellings.forget(path);
    }
    throw error;
  }
}

/**
 * Gives a complete file its name. If that fails, the file that had the name has it still, or is
 * aside if the browser refuses to move it back.
 * @param {FileSystemFileHandle} file
 * @param {FileSystemDirectoryHandle} directory
 * @param {string} name
 * @param {string} aside
 */
async function replace(file, directory, name, aside) {
  const moving = /** @type {any} */ (file);
  try {
    await moving.move(name);
    return;
  } catch (error) {
    // Without an old file, the browser has another reason. An entry of another kind stays.
    const old = /** @type {any} */ (await directory.getFileHandle(name).catch(() => null));
    if (old === null) {
      throw error;
    }
    // A run that was interrupted here has left it. The file of this name is newer.
    await directory.removeEntry(aside).catch(() => {});
    await old.move(aside);
    try {
      await moving.move(name);
    } catch (second) {
      await old.move(name).catch(() => {
        throw new Error(`cannot replace ${name}: ${second.message}; the old file is ${aside}`);
      });
      throw second;
    }
  }
  await directory.removeEntry(aside).catch(() => {});
}

/**
 * A directory of OPFS. Files are written by a synchronous handle, without a copy, and resume.
 * @implements {import('./download.js').Target}
 */
export class PrivateTarget {
  /**
   * @param {FileSystemDirectoryHandle} root
   * @param {string} job name of the job in hexadecimal digits
   */
  constructor(root, job) {
    this.root = root;
    this.job = job;
  }

  /**
   * @param {string} path
   * @param {boolean} isComplete
   */
  async sizeOf(path, isComplete) {
    const rename = isComplete ? undefined : (/** @type {string} */ name) => partName(this.job, name);
    return (await find(this.root, path, rename))?.size ?? -1;
  }

  /** @param {string} path */
  async modifiedAt(path) {
    return (await find(this.root, path))?.lastModified ?? -1;
  }

  /**
   * @param {string} path
   * @param {boolean} keep
   */
  async open(path, keep) {
    const { directory, name } = await place(this.root, path);
    const file = await directory.getFileHandle(partName(this.job, name), { create: true });
    const access = await file.createSyncAccessHandle();
    if (!keep) {
      access.truncate(0);
    }
    return {
      isSync: true,
      write: (/** @type {number} */ at, /** @type {Uint8Array} */ bytes) => {
        const written = access.write(bytes, { at });
        if (written !== bytes.length) {
          throw new Error(`cannot write at byte ${at}: the storage is full`);
        }
      },
      sync: () => {
        access.flush();
        return Level.durable;
      },
      finish: async (/** @type {number} */ size) => {
        try {
          access.truncate(size);
          access.flush();
        } finally {
          access.close();
        }
        await replace(file, directory, name, asideName(this.job, name));
        return Level.durable;
      },
      close: () => access.close(),
    };
  }

  /** @param {string} path */
  async directory(path) {
    const { directory, name } = await place(this.root, path);
    await directory.getDirectoryHandle(name, { create: true });
  }
}

/**
 * A folder that the user picked. The browser writes into a copy and replaces the file at its end.
 * An interrupted file therefore starts again.
 * @implements {import('./download.js').Target}
 */
export class FolderTarget {
  /**
   * @param {FileSystemDirectoryHandle} root
   * @param {(path: string, created: boolean) => void} [note] gets the paths of empty files
   */
  constructor(root, note = () => {}) {
    this.root = root;
    this.note = note;
    this.spellings = new Spellings();
  }

  /**
   * @param {string} path
   * @param {boolean} isComplete
   */
  async sizeOf(path, isComplete) {
    const found = isComplete ? await find(this.root, path) : null;
    if (found === null) {
      return -1;
    }
    this.spellings.add(path);
    return found.size;
  }

  /** @param {string} path */
  async modifiedAt(path) {
    return (await find(this.root, path))?.lastModified ?? -1;
  }

  /**
   * Opens a file. It gets its name with its first bytes, and loses it if they are not all.
   * @param {string} path
   */
  async open(path) {
    /** @type {ReturnType<typeof createFile> | null} */
    let creating = null;
    const create = () => {
      creating ??= createFile(this.root, path, this.spellings, this.note);
      return creating;
    };
    let isClosed = false;
    const discard = async () => {
      isClosed = true;
      const created = await creating?.catch(() => null);
      if (created) {
        await created.stream.abort().catch(() => {});
        if (created.isNew && (await find(created.directory, created.name))?.size === 0) {
          // Not if another job or program has written the file meanwhile.
          await created.directory.removeEntry(created.name).then(() => this.note(path, false)).catch(() => {});
          this.spellings.forget(path);
        }
      }
    };
    return {
      isSync: false,
      write: async (/** @type {number} */ position, /** @type {Uint8Array} */ data) =>
        (await create()).stream.write({ type: 'write', position, data }),
      // Nothing is durable before the browser has replaced the file.
      sync: () => Level.verified,
      finish: async (/** @type {number} */ size) => {
        try {
          const { stream } = await create();
          await stream.truncate(size);
          await stream.close();
        } catch (error) {
          await discard();
          throw error;
        }
        isClosed = true;
        return Level.verified;
      },
      close: async () => {
        if (!isClosed) {
          await discard();
        }
      },
    };
  }

  /** @param {string} path */
  async directory(path) {
    const { directory, name } = await placeSpelled(this.root, path, this.spellings);
    await this.spellings.open(directory, path, (create) => directory.getDirectoryHandle(name, { create }));
  }
}

/**
 * Opens a log of a job in OPFS.
 * @param {string} name one of `logNames`
 * @returns {Promise<import('./job-log.js').LogFile>}
 */
export async function openLogFile(name) {
  const logs = await (await navigator.storage.getDirectory()).getDirectoryHandle(LOGS, { create: true });
  const file = await logs.getFileHandle(name, { create: true });
  const access = await file.createSyncAccessHandle();
  let end = access.getSize();
  const append = (/** @type {string} */ text) => {
    const bytes = new TextEncoder().encode(text);
    if (access.write(bytes, { at: end }) !== bytes.length) {
      throw new Error('cannot write the log of the job: the storage is full');
    }
    end += bytes.length;
  };
  const last = new Uint8Array(1);
  if (end > 0 && access.read(last, { at: end - 1 }) === 1 && last[0] !== LINE_FEED) {
    // The end of a line that was cut.
    append('\n');
  }
  return {
    append,
    lines: function* () {
      const decoder = new TextDecoder();
      let rest = '';
      for (let at = 0; at < end; at += LOG_PART) {
        const bytes = new Uint8Array(Math.min(LOG_PART, end - at));
        access.read(bytes, { at });
        const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
        rest = /** @type {string} */ (lines.pop());
        yield* lines;
      }
    },
    flush: () => access.flush(),
    close: () => access.close(),
  };
}

/**
 * Removes a log of a job that is done.
 * @param {string} name
 */
export async function removeLogFile(name) {
  const logs = await (await navigator.storage.getDirectory()).getDirectoryHandle(LOGS, { create: true });
  await logs.removeEntry(name).catch(() => {});
}
