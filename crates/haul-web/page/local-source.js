// Places at the side of the browser as sources of a pane: a folder that the user picked, the private
// storage of the browser, and files that the user chose or dropped.

import { isOwnName } from "./client/own-names.js";
import { makeItem } from "./item.js";
import { nameList } from "./text.js";
import { verifyFiles } from "./verify-files.js";

/** @typedef {import("./item.js").Item} Item */

/** Entries that a folder yields at once. */
const BATCH = 500;

/** Files that one drop of folders may contain where the browser gives no handles. */
const DROPPED_MAX = 100_000;

/** True where a user can pick a folder that the page may read and write. */
export const canPickFolder = () => typeof window.showDirectoryPicker === "function";

/** @param {FileSystemHandle} handle */
const handleItem = (handle) => makeItem({ name: handle.name, kind: handle.kind, handle });

/** @param {FileSystemDirectoryHandle} directory */
async function* listHandle(directory) {
  let batch = [];
  for await (const handle of directory.values()) {
    if (!isOwnName(handle.name)) {
      batch.push(handleItem(handle));
    }
    if (batch.length === BATCH) {
      yield batch;
      batch = [];
    }
  }
  yield batch;
}

/**
 * Opens a file beneath a directory. Returns null if there is none.
 * @param {FileSystemDirectoryHandle} directory
 * @param {string[]} names
 */
async function openBeneath(directory, names) {
  try {
    for (const name of names.slice(0, -1)) {
      directory = await directory.getDirectoryHandle(name);
    }
    return await (await directory.getFileHandle(names.at(-1))).getFile();
  } catch (error) {
    if (error.name === "NotFoundError" || error.name === "TypeMismatchError") {
      return null;
    }
    throw error;
  }
}

/** Fills in the size and the time of a file. @param {Item} item */
async function detail(item) {
  if (item.kind === "file" && item.size === null && item.handle !== undefined) {
    const file = await item.handle.getFile();
    [item.size, item.time] = [file.size, file.lastModified];
  }
}

/**
 * Tells whether an entry has a name in a directory.
 * @param {FileSystemDirectoryHandle} directory
 * @param {string} name
 */
async function has(directory, name) {
  const isMissing = (error) => {
    if (error.name === "NotFoundError") {
      return false;
    }
    return error.name === "TypeMismatchError" || Promise.reject(error);
  };
  return directory.getFileHandle(name).then(() => true, isMissing);
}

/**
 * A folder with a handle: picked by the user, or the private storage of the browser.
 * @implements {import("./item.js").Source}
 */
export class FolderSource {
  unlisted = null;

  /**
   * @param {string} id
   * @param {FileSystemDirectoryHandle} handle
   * @param {string} [title] of the private storage
   */
  constructor(id, handle, title) {
    this.id = id;
    this.handle = handle;
    this.kind = title === undefined ? "folder" : "private";
    this.title = title ?? handle.name;
  }

  /** @param {Item[]} path @returns {FileSystemDirectoryHandle} */
  directory(path) {
    return path.at(-1)?.handle ?? this.handle;
  }

  refusal() {
    return null;
  }

  /**
   * Asks the user for the permission to write, if there is none yet. Call it within a user action.
   */
  async permit() {
    const mode = { mode: "readwrite" };
    if (((await this.handle.requestPermission?.(mode)) ?? "granted") !== "granted") {
      throw new Error(`the browser does not permit changes in ${this.title}; allow them, then try again`);
    }
  }

  /** @param {Item[]} path */
  list(path) {
    return listHandle(this.directory(path));
  }

  /** @param {Item} item */
  detail(item) {
    return detail(item);
  }

  /** @param {Item[]} path @param {string} name */
  async createFolder(path, name) {
    await this.permit();
    const directory = this.directory(path);
    if (await has(directory, name)) {
      throw new Error(`cannot create ${name}: the name exists already; choose another name`);
    }
    await directory.getDirectoryHandle(name, { create: true });
  }

  /** @param {Item[]} path @param {Item} item @param {string} name */
  async rename(path, item, name) {
    await this.permit();
    if (await has(this.directory(path), name)) {
      throw new Error(`cannot rename ${item.name}: ${name} exists already; choose another name`);
    }
    if (item.kind === "directory" || item.handle.move === undefined) {
      const what = item.kind === "directory" ? "a folder" : "a file";
      throw new Error(
        `cannot rename ${item.name}: this browser cannot rename ${what}; rename it outside the browser`,
      );
    }
    await item.handle.move(name);
  }

  /** @param {Item[]} path @param {Item} item */
  async remove(path, item) {
    await this.permit();
    await this.directory(path).removeEntry(item.name);
  }

  /** @param {Item[]} path @param {Item} item */
  async removeAll(path, item) {
    await this.permit();
    await this.directory(path).removeEntry(item.name, { recursive: item.kind === "directory" });
  }

  /** Returns what a job sends for an entry. @param {Item} item */
  uploadRoots(item) {
    return [item.handle];
  }

  /** Opens a file beneath a folder. Returns null if there is none. @param {Item[]} path @param {string[]} names */
  open(path, names) {
    return openBeneath(this.directory(path), names);
  }

  /**
   * Verifies the files beneath a folder.
   * @param {Item[]} path
   * @param {import("./verify.js").Waybill} waybill
   * @param {AbortSignal} signal
   */
  verify(path, waybill, signal) {
    return verifyFiles((names) => this.open(path, names), waybill, signal);
  }
}

/**
 * A file that the user chose or dropped, or an empty folder, which has no `file`.
 * @typedef {{file?: File, path: string}} Chosen
 * @typedef {{name: string, handle?: FileSystemHandle, file?: File, children?: Map<string, Node>}} Node
 */

/**
 * Files and folders that the user chose or dropped.
 * @implements {import("./item.js").Source}
 */
export class ChosenSource {
  id = "chosen";
  title = "Chosen files";
  kind = "chosen";
  unlisted = null;
  /** @type {Map<string, Node>} */
  #nodes = new Map();

  get isEmpty() {
    return this.#nodes.size === 0;
  }

  /** @param {import("./item.js").Action} action */
  refusal(action) {
    return action === "read" || action === "remove"
      ? null
      : "Chosen files can only be read. Open a folder to change files.";
  }

  /** Takes an entry off the list. The file stays where it is. @param {Item} item */
  forget(item) {
    this.#nodes.delete(item.id);
  }

  /**
   * Adds what the user chose or dropped. An entry stays if another one has its name.
   * @param {Iterable<Chosen>} files
   * @param {Iterable<FileSystemHandle>} [handles]
   * @throws if there are entries with used names, after all others are added
   */
  async add(files, handles = []) {
    const refused = [...files].filter(({ file, path }) => !this.#add(path, file)).map(({ path }) => path);
    for (const handle of handles) {
      const { name } = handle;
      const known = this.#nodes.get(name);
      if (known === undefined || (await known.handle?.isSameEntry(handle))) {
        this.#nodes.set(name, { name, handle });
      } else {
        refused.push(name);
      }
    }
    if (refused.length > 0) {
      const what = refused.length === 1 ? "an entry of this name" : "entries of these names";
      throw new Error(
        `cannot add ${nameList(refused)}: the list has ${what}; copy it, remove it from the list with F8, then add again`,
      );
    }
  }

  /** Returns false if another entry has the path. @param {string} path @param {File} [file] none for a folder */
  #add(path, file) {
    const names = path.split("/").filter((name) => name !== "");
    const last = file === undefined ? undefined : names.pop();
    let nodes = this.#nodes;
    for (const name of names) {
      const node = nodes.get(name) ?? { name, children: new Map() };
      if (node.children === undefined) {
        return false;
      }
      nodes.set(name, node);
      nodes = node.children;
    }
    if (file === undefined) {
      return true;
    }
    if (nodes.has(last)) {
      // Equal sizes and times do not make it the same file.
      return false;
    }
    nodes.set(last, { name: last, file });
    return true;
  }

  /** @param {Item[]} path */
  async *list(path) {
    const top = path.at(-1);
    if (top?.handle !== undefined) {
      yield* listHandle(top.handle);
      return;
    }
    const nodes = [...(top?.children ?? this.#nodes).values()];
    for (let at = 0; at < nodes.length; at += BATCH) {
      yield nodes.slice(at, at + BATCH).map(nodeItem);
    }
  }

  /** @param {Item} item */
  detail(item) {
    return detail(item);
  }

  /** The same as for a folder. @param {Item[]} path @param {string[]} names */
  async open(path, names) {
    const top = path.at(-1);
    if (top?.handle !== undefined) {
      return openBeneath(top.handle, names);
    }
    let nodes = top?.children ?? this.#nodes;
    for (const [at, name] of names.entries()) {
      const node = nodes.get(name);
      const rest = names.slice(at + 1);
      if (node?.handle?.kind === "directory" && rest.length > 0) {
        return openBeneath(node.handle, rest);
      }
      if (rest.length === 0) {
        return node?.file ?? (node?.handle?.kind === "file" ? node.handle.getFile() : null);
      }
      nodes = node?.children ?? new Map();
    }
    return null;
  }

  /** The same as for a folder. @param {Item[]} path @param {import("./verify.js").Waybill} waybill @param {AbortSignal} signal */
  verify(path, waybill, signal) {
    return verifyFiles((names) => this.open(path, names), waybill, signal);
  }

  /** Returns what a job sends for an entry. @param {Item} item */
  uploadRoots(item) {
    return item.handle === undefined ? [...filesOf(item, item.name)] : [item.handle];
  }
}

/** @param {Node} node */
function nodeItem({ name, handle, file, children }) {
  const kind = handle?.kind ?? (file === undefined ? "directory" : "file");
  const facts = file === undefined ? {} : { size: file.size, time: file.lastModified };
  return makeItem({ name, kind, handle, file, children, ...facts });
}

/**
 * @param {Node | Item} node
 * @param {string} path
 * @returns {Generator<Chosen>}
 */
function* filesOf(node, path) {
  if (node.file !== undefined) {
    yield { file: node.file, path };
  }
  if (node.children?.size === 0) {
    yield { path };
  }
  for (const child of node.children?.values() ?? []) {
    yield* filesOf(child, `${path}/${child.name}`);
  }
}

/**
 * Takes files and folders from a drop. Call it within the event, because the browser empties the
 * list of items when the event ends.
 * @param {DataTransfer} transfer
 * @returns {Promise<{handles: FileSystemHandle[], files: Chosen[]}>}
 */
export async function takeDrop(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  // All of these calls come before the first pause.
  const taken = items.map((item) => ({
    handle: item.getAsFileSystemHandle?.().catch(() => null),
    entry: item.webkitGetAsEntry?.(),
    file: item.getAsFile(),
  }));
  const [handles, files] = [[], []];
  for (const { handle, entry, file } of taken) {
    const found = await handle;
    if (found) {
      handles.push(found);
    } else if (entry) {
      await walkEntry(entry, entry.name, files);
    } else if (file !== null) {
      files.push({ file, path: file.name });
    }
  }
  return { handles, files };
}

/**
 * Returns a path that two dropped entries have, or undefined.
 * @param {FileSystemHandle[]} handles
 * @param {{path: string}[]} files
 */
export function sharedPath(handles, files) {
  const paths = [...handles.map(({ name }) => name), ...files.map(({ path }) => path)];
  const seen = new Set();
  return paths.find((path) => seen.has(path) || !seen.add(path));
}

/**
 * @param {FileSystemEntry} entry
 * @param {string} path
 * @param {Chosen[]} files
 */
async function walkEntry(entry, path, files) {
  if (files.length === DROPPED_MAX) {
    throw new Error(
      `cannot take more than ${DROPPED_MAX.toLocaleString("en")} files from one drop; drop fewer folders`,
    );
  }
  if (entry.isFile) {
    files.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path });
    return;
  }
  const reader = entry.createReader();
  const next = () => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
  let isEmpty = true;
  for (let children = await next(); children.length > 0; children = await next()) {
    isEmpty = false;
    for (const child of children) {
      await walkEntry(child, `${path}/${child.name}`, files);
    }
  }
  if (isEmpty) {
    files.push({ path });
  }
}
