// Removes what a job leaves in the storage if it does not end. A page can use this too, because it
// needs no synchronous access to files.

import { JobLog } from './job-log.js';

/** Directory in OPFS for the logs of jobs. */
export const LOGS = '.haul-jobs';

/** Returns the names of the logs of a job: of a download, and of the files that arrived. */
export const logNames = (/** @type {string} */ job) => [`${job}.log`, `${job}.receipt.log`];

/**
 * Name of a file until it is complete. The module refuses names of the server that start with
 * `.haul-`, and a job never shares the file with another job.
 * @param {string} job name of the job in hexadecimal digits
 * @param {string} name
 */
export function partName(job, name) {
  return `.haul-part-${job}-${name}`;
}

/**
 * Name of the old file while a new one takes its name, in a browser that does not replace files.
 * @param {string} job
 * @param {string} name
 */
export function asideName(job, name) {
  return `.haul-old-${job}-${name}`;
}

/**
 * Returns the directory of a path and the last component, or null if there is no such directory.
 * @param {FileSystemDirectoryHandle} root
 * @param {string} path
 */
export async function existing(root, path) {
  const parts = path.split('/');
  const name = /** @type {string} */ (parts.pop());
  try {
    let directory = root;
    for (const part of parts) {
      directory = await directory.getDirectoryHandle(part);
    }
    return { directory, name };
  } catch {
    return null;
  }
}

/**
 * Removes the incomplete file of a path in OPFS. If no file has its name, the old one gets it back.
 * @param {FileSystemDirectoryHandle} root
 * @param {string} job
 * @param {string} path
 */
async function removePart(root, job, path) {
  const place = await existing(root, path);
  if (place === null) {
    return;
  }
  const { directory, name } = place;
  await directory.removeEntry(partName(job, name)).catch(() => {});
  const aside = /** @type {any} */ (await directory.getFileHandle(asideName(job, name)).catch(() => null));
  const isFree = await directory.getFileHandle(name).then(() => false, (error) => error.name === 'NotFoundError');
  if (aside !== null && isFree) {
    await aside.move(name);
  }
}

/**
 * Removes files that a job has created in a folder and that are still empty.
 * @param {FileSystemDirectoryHandle} folder
 * @param {JobLog} log
 */
export async function removeEmpty(folder, log) {
  for (const path of log.empty()) {
    const place = await existing(folder, path);
    const file = await place?.directory.getFileHandle(place.name).then((handle) => handle.getFile()).catch(() => null);
    if (file?.size === 0) {
      await place?.directory.removeEntry(place.name).catch(() => {});
    }
  }
}

/**
 * Removes what a job left. Waits while a tab runs the job.
 * @param {string} job name of the job in hexadecimal digits
 * @param {FileSystemDirectoryHandle | null} [folder] folder of a download, null for OPFS
 */
export async function removeLeftovers(job, folder) {
  await navigator.locks.request(`haul-job-${job}`, async () => {
    const root = await navigator.storage.getDirectory();
    const logs = await root.getDirectoryHandle(LOGS).catch(() => null);
    if (logs === null) {
      return;
    }
    const [name] = logNames(job);
    const text = await logs.getFileHandle(name).then(async (file) => (await file.getFile()).text(), () => '');
    const log = new JobLog({ lines: () => text.split('\n'), append() {}, flush() {}, close() {} });
    // After a reload, a browser can need a question to the user for more access.
    const permission = await /** @type {any} */ (folder)?.queryPermission?.({ mode: 'readwrite' });
    if (folder && (permission ?? 'granted') === 'granted') {
      await removeEmpty(folder, log);
    }
    for (const path of folder ? [] : log.files.keys()) {
      await removePart(root, job, path).catch(() => {});
    }
    await Promise.all(logNames(job).map((log) => logs.removeEntry(log).catch(() => {})));
  });
}
