// Entries of a listing, and the interface of the sources that list them.

import { orderKey } from "./text.js";

/**
 * An entry of a directory.
 * @typedef {object} Item
 * @property {string} id unique within its directory; a source finds the entry by it
 * @property {string} name decoded text
 * @property {boolean} isText false if `name` is not exactly the name, which is not UTF-8
 * @property {"file" | "directory" | "link" | "fifo" | "socket" | "device" | "unknown"} kind
 * @property {number | null} size in bytes; null if it is not known
 * @property {number | null} time of the last change, in milliseconds since 1970
 * @property {number | null} mode permission bits
 * @property {string} key for the order by name
 * @property {string} lower for the filter
 * @property {FileSystemHandle} [handle] of an entry at the browser
 * @property {File} [file] that the user chose
 * @property {Map<string, object>} [children] of a folder that the user chose
 */

/**
 * A place that a pane can show: a root of the server, a folder, the storage of the browser.
 * `path` is the list of directories from its top to the shown one.
 * @typedef {object} Source
 * @property {string} id unique among the sources of the page
 * @property {string} title
 * @property {"server" | "peer" | "folder" | "private" | "saves" | "chosen"} kind
 * @property {string | null} unlisted the reason why there is no listing
 * @property {(path: Item[]) => AsyncIterable<Item[]>} list
 * @property {(action: Action) => string | null} refusal the reason why an action is not possible
 * @property {(path: Item[], name: string) => Promise<unknown>} createFolder
 * @property {(path: Item[], item: Item, name: string) => Promise<unknown>} rename
 * @property {(path: Item[], item: Item) => Promise<unknown>} remove deletes a directory only if it is empty
 * @property {(path: Item[], item: Item) => Promise<unknown>} removeAll deletes with all contents
 * @property {(item: Item) => Promise<void>} [detail] fills in the size and the time
 */

/** @typedef {"create" | "rename" | "remove" | "read" | "receive"} Action */

/**
 * @param {Partial<Item> & {name: string, kind: Item["kind"]}} facts
 * @returns {Item}
 */
export function makeItem({ id, name, kind, size = null, time = null, mode = null, isText = true, ...rest }) {
  const key = orderKey(name);
  return { id: id ?? name, name, isText, kind, size, time, mode, key, lower: name.toLowerCase(), ...rest };
}

/**
 * Returns the path as text, with the title of the source.
 * @param {Source} source
 * @param {Item[]} path
 */
export const placeText = (source, path) => [source.title, ...path.map((step) => step.name)].join("/");

/** Tells whether a source is a server: of the page, or another one. @param {Source} source */
export const isServer = ({ kind }) => kind === "server" || kind === "peer";

/** Tells whether two paths of one source are the same. @param {Item[]} one @param {Item[]} other */
export const isSamePath = (one, other) =>
  one.length === other.length && one.every((step, at) => step.id === other[at].id);
