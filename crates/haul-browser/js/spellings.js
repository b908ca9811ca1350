// Paths that a disk can take for one path, because it ignores case or the form of accents.

/**
 * Returns the same text for all paths that a disk can take for one.
 * @param {string} path
 */
const folded = (path) => path.toUpperCase().toLowerCase().normalize('NFC');

/** @param {string} path */
const lastOf = (path) => path.slice(path.lastIndexOf('/') + 1);

export class Spellings {
  constructor() {
    /** The paths of the job by their folded path. @type {Map<string, string[]>} */
    this.known = new Map();
    /** Work in progress by the folded path. @type {Map<string, Promise<unknown>>} */
    this.working = new Map();
  }

  /**
   * Notes that the job has this path on the disk, with the directories above it.
   * @param {string} path
   */
  add(path) {
    for (let end = path.indexOf('/'); end >= 0; end = path.indexOf('/', end + 1)) {
      this.note(path.slice(0, end));
    }
    this.note(path);
  }

  /** @param {string} path */
  note(path) {
    const key = folded(path);
    const paths = this.known.get(key);
    if (paths === undefined) {
      this.known.set(key, [path]);
    } else if (!paths.includes(path)) {
      paths.push(path);
    }
  }

  /**
   * Notes that the job no longer has this path on the disk.
   * @param {string} path
   */
  forget(path) {
    const paths = this.known.get(folded(path))?.filter((other) => other !== path) ?? [];
    if (paths.length > 0) {
      this.known.set(folded(path), paths);
    } else {
      this.known.delete(folded(path));
    }
  }

  /**
   * Opens an entry, and creates it as needed.
   * @template T
   * @param {FileSystemDirectoryHandle} directory
   * @param {string} path beneath the directory of the job; its last component names the entry
   * @param {(create: boolean) => Promise<T>} open
   * @returns {Promise<T>}
   * @throws if the disk has the entry of another path of the job at this path
   */
  async open(directory, path, open) {
    const key = folded(path);
    const isAlone = (this.known.get(key) ?? []).every((other) => other === path);
    if (isAlone) {
      this.note(path);
    }
    const before = this.working.get(key) ?? Promise.resolve();
    const work = isAlone ? this.create(path, open) : before.then(() => this.compare(directory, path, open));
    const settled = Promise.allSettled([before, work]).then(() => {
      if (this.working.get(key) === settled) {
        this.working.delete(key);
      }
    });
    this.working.set(key, settled);
    return work;
  }

  /**
   * @template T
   * @param {string} path
   * @param {(create: boolean) => Promise<T>} open
   */
  async create(path, open) {
    try {
      return await open(true);
    } catch (error) {
      this.forget(path);
      throw error;
    }
  }

  /**
   * Opens an entry whose path another path of the job equals but for its spelling.
   * @template T
   * @param {FileSystemDirectoryHandle} directory
   * @param {string} path
   * @param {(create: boolean) => Promise<T>} open
   */
  async compare(directory, path, open) {
    const paths = this.known.get(folded(path)) ?? [];
    const others = paths.filter((other) => other !== path);
    const found = await open(false).catch((error) => error.name === 'NotFoundError' ? null : Promise.reject(error));
    if (found !== null && others.length > 0) {
      const names = new Set();
      for await (const name of /** @type {any} */ (directory).keys()) {
        names.add(name);
      }
      // A disk that distinguishes the paths has an entry for each.
      if ([path, ...others].some((each) => !names.has(lastOf(each)))) {
        throw new Error(`cannot write ${path}: the disk takes its name for that of ${others[0]}; `
          + 'rename one of them at the server, or download them into different folders');
      }
    }
    this.note(path);
    return found ?? open(true);
  }
}
