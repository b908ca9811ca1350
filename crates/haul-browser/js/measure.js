// Number and bytes of the files of a job, for its progress. It runs beside the job, which does not
// wait for it.

import { walk } from './upload.js';

/** Names that are requested at a time, and requests for one job. */
const NAMES_MAX = 5000;
const REQUESTS_MAX = 2000;

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
 * Measures what a download fetches, by the listings of the server.
 * @param {string} base URL of the server without a trailing slash
 * @param {number} root
 * @param {string[]} paths
 * @param {typeof fetch} [fetcher]
 * @returns {Promise<Total>}
 */
export async function measurePaths(base, root, paths, fetcher = (...args) => fetch(...args)) {
  const total = { files: 0, bytes: 0, isWhole: true };
  const directories = [];
  let requests = 0;
  for (const path of paths) {
    requests += 1;
    const response = await fetcher(`${base}/file?root=${root}&path=${encodeURIComponent(path)}`, { method: 'HEAD' });
    if (response.ok) {
      total.files += 1;
      total.bytes += Number(response.headers.get('Content-Length') ?? 0);
    } else {
      directories.push(encodeURIComponent(path.replace(/\/$/, '')));
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
      const response = await fetcher(`${base}/tree?${query}`, { cache: 'no-store' });
      if (!response.ok) {
        total.isWhole = false;
        break;
      }
      const page = await response.json();
      for (const { name, kind, size } of page.entries) {
        if (kind === 'file') {
          total.files += 1;
          total.bytes += size;
        } else if (kind === 'directory' && name !== undefined) {
          directories.push(directory ? `${directory}%2F${encodeURIComponent(name)}` : encodeURIComponent(name));
        }
      }
      after = page.next;
    }
  }
  return total;
}
