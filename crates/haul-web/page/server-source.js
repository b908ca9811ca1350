// A root of the server as the source of a pane.

import * as api from "./api.js";
import { makeItem } from "./item.js";

/** @typedef {import("./item.js").Item} Item */

/** @param {api.Entry} entry */
const itemOf = (entry) =>
  makeItem({
    id: entry.path,
    name: entry.text,
    isText: entry.isText,
    kind: entry.kind,
    size: entry.kind === "file" ? entry.size : null,
    time: entry.time,
    mode: entry.mode,
  });

/**
 * Returns the entries of a directory, page by page.
 * @param {(after: string) => Promise<{entries: api.Entry[], next: string | null}>} load
 */
export async function* pagesOf(load) {
  let after = "";
  while (after !== null) {
    const page = await load(after);
    if (page.next !== null && (page.entries.length === 0 || page.next === after)) {
      throw new Error("the server sent a listing without an end; try again, or restart the server");
    }
    yield page.entries.map(itemOf);
    after = page.next;
  }
}

/** @implements {import("./item.js").Source} */
export class ServerSource {
  kind = "server";

  /** @param {api.Root} root */
  constructor(root) {
    this.root = root;
    this.id = `server-${root.id}`;
    this.title = root.name;
    this.unlisted = root.read ? null : `${root.name} is for uploads only: the server does not list it.`;
  }

  /** @param {import("./item.js").Action} action */
  refusal(action) {
    const { name, read, write } = this.root;
    if (action === "read") {
      return read ? null : `${name} is for uploads only.`;
    }
    if (!write) {
      return `${name} is read-only.`;
    }
    return read || action === "create" || action === "receive" ? null : `${name} is for uploads only.`;
  }

  /** @param {Item[]} path */
  list(path) {
    return pagesOf((after) => api.list(this.root.id, ids(path), after));
  }

  /** @param {Item[]} path @param {string} name */
  createFolder(path, name) {
    return api.createFolder(this.root.id, [...ids(path), api.encodeName(name)]);
  }

  /** @param {Item[]} path @param {Item} item @param {string} name */
  rename(path, item, name) {
    return api.rename(this.root.id, [...ids(path), item.id], [...ids(path), api.encodeName(name)], false);
  }

  /**
   * Moves an entry to another directory of this root.
   * @param {Item[]} path @param {Item} item @param {Item[]} to @param {boolean} replace
   */
  moveTo(path, item, to, replace) {
    return api.rename(this.root.id, [...ids(path), item.id], [...ids(to), item.id], replace);
  }

  /** @param {Item[]} path @param {Item} item */
  remove(path, item) {
    return api.remove(this.root.id, [...ids(path), item.id], false);
  }

  /** @param {Item[]} path @param {Item} item */
  removeAll(path, item) {
    return api.remove(this.root.id, [...ids(path), item.id], item.kind === "directory");
  }

  /**
   * Verifies the files beneath a directory.
   * @param {Item[]} path
   * @param {import("./verify.js").Waybill} waybill
   * @param {AbortSignal} signal
   */
  async *verify(path, waybill, signal) {
    const isHere = waybill.source === this;
    yield* api.verify(this.root.id, ids(path), isHere ? ids(waybill.steps) : await waybill.read(), signal);
  }

  /** Returns an address of a file for a download by the browser. @param {Item[]} path @param {Item} item */
  address(path, item) {
    return api.fileAddress(this.root.id, [...ids(path), item.id]);
  }

  /** Returns the contents of a text of at most `max` bytes. @param {Item[]} path @param {Item} item @param {number} max */
  async read(path, item, max) {
    return new Blob([await api.fileText(this.root.id, [...ids(path), item.id], max)]);
  }
}

/** Returns the encoded names of a path. @param {Item[]} path */
export const ids = (path) => path.map((step) => step.id);
