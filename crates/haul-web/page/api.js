// Requests to the server. docs/formats/web.md describes them.

import { jsonLines } from "./client/json-lines.js";
import { limitedText } from "./client/limited-text.js";
import { timeText } from "./text.js";
import { askOtherTabs, setToken, token } from "./token.js";

/**
 * @typedef {{id: number, name: string, read: boolean, write: boolean, quota: number | null}} Root
 */
/**
 * @typedef {{certificate: string, certificate_expires: number, version: string,
 *   roots: Root[], jobs: boolean}} Session
 */

/**
 * An entry of a listing. `path` is the name as the server needs it: bytes in percent-encoding, since
 * a name need not be UTF-8; `isText` is false then. `time` is in milliseconds since 1970.
 * @typedef {{text: string, path: string, isText: boolean, kind: string, size: number, time: number,
 *   mode: number}} Entry
 */

/** Largest JSON body that is read: a page of 5,000 long names has less. */
const BODY_MAX = 16 << 20;

/** Entries of one page of a listing. */
const PAGE_ENTRIES_MAX = 5000;

const KINDS = ["file", "directory", "link", "fifo", "socket", "device"];

/** A request that the server refused. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {boolean} isLate */
  constructor(status, message, isLate) {
    super(message);
    this.status = status;
    /** True for a request of a session that was followed by a sign-out or by another session. */
    this.isLate = isLate;
  }
}

/** Expiry of the certificate at the last sign-in or load, in milliseconds since 1970. */
let expires = Infinity;

/**
 * Sends a request and returns the JSON value of the response, or null without a body.
 * @param {string} method @param {string} path @param {unknown} [body]
 */
async function request(method, path, body) {
  const text = await requestText(method, path, body);
  return text === "" ? null : JSON.parse(text);
}

/** Sends a request and returns the body. @param {string} method @param {string} path @param {unknown} [body] */
async function requestText(method, path, body) {
  const json = body === undefined ? {} : { body: JSON.stringify(body), type: "application/json" };
  return limitedText(await send(method, path, json), BODY_MAX);
}

/**
 * Sends a request and returns the response, if the server accepts it.
 * @param {string} method @param {string} path
 * @param {{body?: BodyInit, type?: string, signal?: AbortSignal}} content
 */
async function send(method, path, { body, type, signal }) {
  const sent = token();
  const headers = {
    ...(sent === "" ? {} : { "X-Haul-Token": sent }),
    ...(type === undefined ? {} : { "Content-Type": type }),
  };
  const options = { method, headers, body, signal, cache: "no-store" };
  const response = await fetch(path, options).catch(() => {
    throw new Error(`cannot reach the server; ${certificateHint() || "check that it runs, then try again"}`);
  });
  if (!response.ok) {
    let message = response.statusText || `status ${response.status}`;
    try {
      message = JSON.parse(await limitedText(response, BODY_MAX)).error ?? message;
    } catch {
      // The response is not from this server's code: its status is all there is.
    }
    const isLate = response.status === 401 && sent !== token();
    if (response.status === 401 && !isLate) {
      // Other tabs must not get it.
      setToken("");
    }
    throw new ApiError(response.status, message, isLate);
  }
  return response;
}

/** @param {Session} session @returns {Session} */
function keep(session) {
  expires = session.certificate_expires * 1000;
  return session;
}

/**
 * Returns a hint for a failed connection if the certificate that the server had has expired. A
 * browser refuses such a certificate for new connections, and does not tell a page the reason.
 */
export function certificateHint() {
  if (Date.now() < expires) {
    return "";
  }
  const until = timeText(expires);
  return `the server's certificate was valid until ${until}: renew it, or check that the server runs, then try again`;
}

/** Signs in with a one-time code. @param {string} code */
export async function signIn(code) {
  const { token: given, ...session } = await request("POST", "/session", { code });
  setToken(given);
  return keep(session);
}

/** Returns the session of this tab, or of another tab. */
export async function session() {
  if (token() === "") {
    setToken(await askOtherTabs());
  }
  return keep(await request("GET", "/session"));
}

/** Returns a one-time code for another browser, with the same rights. @returns {Promise<string>} */
export const newCode = async () => (await request("POST", "/code")).code;

export async function signOut() {
  await request("DELETE", "/session");
  setToken("");
}

/** Encodes a text for a path of this module. @param {string} text */
export const encodeName = (text) => encodeURIComponent(text);

/** Joins encoded names. @param {string[]} names */
const joined = (names) => names.join("%2F");

/** Returns the bytes of an encoded path. @param {string} path */
function decoded(path) {
  const bytes = [];
  for (let at = 0; at < path.length; at += 1) {
    if (path[at] === "%") {
      bytes.push(parseInt(path.slice(at + 1, at + 3), 16));
      at += 2;
    } else {
      bytes.push(path.charCodeAt(at));
    }
  }
  return Uint8Array.from(bytes);
}

/** Returns a path for a JSON body: text, or base64 if it is not UTF-8. @param {string[]} names */
export function forJson(names) {
  const bytes = decoded(joined(names));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return { base64: btoa(String.fromCharCode(...bytes)) };
  }
}

/** @param {Uint8Array} bytes */
const encodeBytes = (bytes) => Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");

/** Returns a whole number that is not negative. @param {unknown} value */
const whole = (value) => (Number.isSafeInteger(value) && value >= 0 ? value : 0);

/** @returns {Entry} */
function entry({ name, name64, kind, size, mtime, mtime_ns, mode }) {
  const facts = {
    kind: KINDS.includes(kind) ? kind : "unknown",
    size: whole(size),
    time: (Number.isSafeInteger(mtime) ? mtime : 0) * 1000 + Math.floor(whole(mtime_ns) / 1e6),
    mode: whole(mode),
  };
  if (typeof name === "string") {
    // JSON can have half surrogates, which no name has.
    const text = name.toWellFormed();
    return { text, path: encodeName(text), isText: text === name, ...facts };
  }
  const bytes = Uint8Array.from(atob(name64), (char) => char.charCodeAt(0));
  return { text: new TextDecoder().decode(bytes), path: encodeBytes(bytes), isText: false, ...facts };
}

/**
 * Lists a page of a directory. `after` is the `next` of the page before.
 * @param {number} root @param {string[]} names @param {string} after
 * @returns {Promise<{entries: Entry[], next: string | null}>}
 */
export const list = async (root, names, after) =>
  pageOf(await request("GET", `/tree?root=${root}&path=${joined(names)}&after=${after}`));

/**
 * Lists a page of a directory of another server, as `list`.
 * @param {string} ticket @param {string[]} names @param {string} after
 */
export const listPeer = async (ticket, names, after) =>
  pageOf(await request("POST", "/peer/tree", { ticket, path: forJson(names), after: forJson([after]) }));

function pageOf(page) {
  if (page.entries.length > PAGE_ENTRIES_MAX) {
    throw new Error(`the server sent more than ${PAGE_ENTRIES_MAX} names at once`);
  }
  return { entries: page.entries.map(entry), next: page.next };
}

/** @param {number} root @param {string[]} names */
export const createFolder = (root, names) => request("POST", "/tree/folder", { root, path: forJson(names) });

/** @param {number} root @param {string[]} from @param {string[]} to @param {boolean} replace */
export const rename = (root, from, to, replace) =>
  request("POST", "/tree/move", { root, from: forJson(from), to: forJson(to), replace });

/** @param {number} root @param {string[]} names @param {boolean} recursive */
export const remove = (root, names, recursive) =>
  request("POST", "/tree/delete", { root, path: forJson(names), recursive });

/**
 * Verifies a directory of the server. Returns the events as they arrive: docs/formats/web.md.
 * @param {number} root @param {string[]} names of the directory
 * @param {Blob | string[]} waybill the waybill, or the names of its file beneath the same root
 * @param {AbortSignal} signal
 */
export async function* verify(root, names, waybill, signal) {
  const isSent = waybill instanceof Blob;
  const query = `root=${root}&path=${joined(names)}${isSent ? "" : `&waybill=${joined(waybill)}`}`;
  const content = isSent ? { body: waybill, type: "text/plain" } : {};
  const response = await send("POST", `/verify?${query}`, { ...content, signal });
  yield* jsonLines(response.body);
}

/** Returns the counters of the server as OpenMetrics text. */
export const metrics = () => requestText("GET", "/metrics");

/**
 * A job of the user who runs the server, as in `haul jobs --json`.
 * @typedef {{id: string, status: string, words?: string[], trouble?: string, begun?: string,
 *   files_done?: number, bytes_done?: number, bytes_found?: number}} UserJob
 */

/** Returns the jobs of the user who runs the server. @returns {Promise<UserJob[]>} */
export const jobs = async () => (await request("GET", "/jobs")).jobs;

/**
 * Returns an address of a file for a download by the browser, which sends no header of the page.
 * @param {number} root @param {string[]} names @returns {Promise<string>}
 */
export const fileAddress = async (root, names) =>
  (await request("POST", "/file", { root, path: forJson(names) })).address;

/** Returns the contents of a text of at most `max` bytes. @param {number} root @param {string[]} names @param {number} max */
export const fileText = async (root, names, max) =>
  limitedText(await send("GET", `/file?root=${root}&path=${joined(names)}`, {}), max, "a file");
