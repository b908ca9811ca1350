// Number and bytes of the files of a job, for its progress. It runs beside the job, which does not
// wait for it.

import { limitedText } from './limited-text.js';
import { walk } from './upload.js';

/** Names that are requested at a time, and requests for one job, one after the other. */
const NAMES_MAX = 5000;
const REQUESTS_MAX = 2000;

/** Largest listing that is read, in bytes: one of long names has less. */
const LISTING_MAX = 16 << 20;

/** Longest path that is requested, in its encoded form. */
const PATH_MAX = 3 * 4096;

/**
 * @typedef {object} Total
 * @property {number} files
 * @property {number} bytes
 * @property {boolean} isWhole false if there are more
 */

/**
 * Measures what an upload sends.
 * @param {import('./upload.js').Root[]} roots
 * @returns {Promise<Total>}
 */
export async function measureRoots(roots) {
  const total = { files: 0, bytes: 0, isWhole: true };
  for await (const entry of walk(roots)) {
    try {
      const file = await entry.file?.();
      total.files += file ? 1 : 0;
      total.bytes += file?.size ?? 0;
    } catch {
      // The job reports the file.
    }
  }
  return total;
}

/**
 * Counts a file of a size that the server sent. No sum is counted that a number cannot hold.
 * @param {Total} total
 * @param {unknown} size
 */
function count(total, size) {
  total.files += 1;
  const isSize = typeof size === 'number' && Number.isSafeInteger(size) && size >= 0;
  if (isSize && Number.isSafeInteger(total.bytes + size)) {
    total.bytes += size;
  } else {
    total.isWhole = false;
  }
}

/**
 * Reads a listing of at most `LISTING_MAX` bytes.
 * @param {Response} response
 */
async function listing(response) {
  const page = JSON.parse(await limitedText(response, LISTING_MAX, 'a listing'));
  if (page.entries.length > NAMES_MAX) {
    throw new Error(`the server sent more than ${NAMES_MAX} names at once`);
  }
  return page;
}

/**
 * Measures what a download fetches, by the listings of the server, which may be wrong.
 * @param {string} base URL of the server without a trailing slash
 * @param {number} root
 * @param {string[]} paths
 * @param {string} token of the session
 * @param {typeof fetch} [fetcher]
 * @returns {Promise<Total>}
 */
export async function measurePaths(base, root, paths, token, fetcher = (...args) => fetch(...args)) {
  const headers = { 'X-Haul-Token': token };
  const total = { files: 0, bytes: 0, isWhole: true };
  /** @type {string[]} */
  const directories = [];
  let requests = 0;
  const add = (/** @type {string} */ directory) => {
    // Each directory takes a request.
    if (directory.length <= PATH_MAX && requests + directories.length < REQUESTS_MAX) {
      directories.push(directory);
    } else {
      total.isWhole = false;
    }
  };
  for (const path of paths) {
    if (requests === REQUESTS_MAX) {
      return { ...total, isWhole: false };
    }
    requests += 1;
    const response = await fetcher(`${base}/file?root=${root}&path=${encodeURIComponent(path)}`, { method: 'HEAD', headers });
    if (response.ok) {
      const length = response.headers.get('Content-Length') ?? '';
      count(total, /^\d+$/.test(length) ? Number(length) : null);
    } else {
      add(encodeURIComponent(path.replace(/\/$/, '')));
    }
  }
  while (directories.length > 0) {
    const directory = directories.pop();
    for (let after = ''; after !== null;) {
      if (requests === REQUESTS_MAX) {
        return { ...total, isWhole: false };
      }
      requests += 1;
      const query = `root=${root}&path=${directory}&after=${after}&max=${NAMES_MAX}`;
      const response = await fetcher(`${base}/tree?${query}`, { headers, cache: 'no-store' });
      if (!response.ok) {
        total.isWhole = false;
        break;
      }
      const page = await listing(response);
      for (const { name, kind, size } of page.entries) {
        if (kind === 'file') {
          count(total, size);
        } else if (kind === 'directory' && name !== undefined) {
          add(directory ? `${directory}%2F${encodeURIComponent(name)}` : encodeURIComponent(name));
        }
      }
      after = typeof page.next === 'string' ? page.next : null;
    }
  }
  return total;
}
