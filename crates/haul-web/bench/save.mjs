// Measures downloads of one file by Chromium: into a folder of the disk (File System Access API), into
// the storage of the browser (OPFS), and into its list of downloads (service worker).
//
//   HAUL_BIN=.../haul node crates/haul-web/bench/save.mjs [--size=MiB] [--rounds=N] [SIDE...]
//
// Sides: folder, storage, downloads. The file is sparse at the server, so the target is the limit.
// The report has the time of the job, the part of it after the last byte was written (the final
// sync), and the largest memory of the tab and its workers without the pages of files. No window asks
// for access to the folder: the profile of the browser has the grant already, as after "Allow on
// every visit".

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Server, eventually } from '../tests/page/world.mjs';
import { Chromium } from './chromium.mjs';
import { tree } from './processes.mjs';

const words = process.argv.slice(2);
const options = Object.fromEntries(words.filter((word) => word.startsWith('--')).map((word) => word.slice(2).split('=')));
const SIZE = Number(options.size ?? 1024) * 2 ** 20;
const chosen = words.filter((word) => !word.startsWith('--'));
const SIDES = chosen.length > 0 ? chosen : ['folder', 'storage', 'downloads'];

/**
 * Returns the preferences of a profile in which a site has access to a folder.
 * @param {string} origin
 * @param {string} path
 */
function grantOf(origin, path) {
  const last_modified = '13400000000000000';
  const object = { 'display-name': 'target', path, 'is-directory': true, readable: true, writable: true };
  const exceptions = {
    file_system_access_extended_permission: { [`${origin},*`]: { last_modified, setting: 1 } },
    file_system_access_chooser_data: { [`${origin},*`]: { last_modified, setting: { 'chosen-objects': [object] } } },
  };
  return { profile: { content_settings: { exceptions } } };
}

/**
 * Drops a folder on the page, which keeps its handle.
 * @param {Chromium} browser
 * @param {string} path
 */
async function dropFolder(browser, path) {
  await browser.run(() => {
    document.addEventListener('dragover', (event) => event.preventDefault());
    document.addEventListener('drop', (event) => {
      event.preventDefault();
      event.stopPropagation();
      window.benchFolder = event.dataTransfer.items[0].getAsFileSystemHandle();
    }, true);
  });
  const data = { items: [], files: [path], dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'drop']) {
    await browser.call('Input.dispatchDragEvent', { type, x: 300, y: 300, data });
  }
}

/** Runs a job in the page. Returns its time, and that of its last byte, in milliseconds. */
async function runJob(side, size) {
  const [{ Jobs }, api] = await Promise.all([import('/jobs.js'), import('/api.js')]);
  const jobs = new Jobs(await api.session());
  jobs.lanes = 'http';
  const folder = side === 'folder' ? await window.benchFolder : null;
  const job = jobs.download({ root: 0, paths: ['large'], folder, saves: side === 'downloads', title: 'large' });
  const since = performance.now();
  let written = 0;
  await new Promise((resolve) => job.addEventListener('change', () => {
    written ||= job.progress.bytes >= size ? performance.now() - since : 0;
    if (job.state === 'ended' || job.state === 'paused') {
      resolve(undefined);
    }
  }));
  const { ok, level, text } = job.result ?? {};
  return { ok, level, text, failures: job.failures, written, total: performance.now() - since };
}

/** @param {Server} server @param {string} side */
async function run(server, side) {
  const target = join(server.home, 'target');
  mkdirSync(target);
  execFileSync('sync');
  const browser = await Chromium.start(undefined, grantOf(new URL(server.link).origin, target));
  let memory = 0;
  const looks = setInterval(() => {
    const renderers = tree(browser.child.pid).filter(({ type }) => type === 'renderer');
    memory = Math.max(memory, ...renderers.map((process) => process.memory));
  }, 500);
  try {
    await browser.call('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: target });
    await browser.open(server.link);
    await browser.run(async () => {
      while (document.querySelector('#right .grid')?.ariaBusy !== 'false') {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    });
    if (side === 'folder') {
      await dropFolder(browser, target);
    }
    const result = await browser.run(runJob, side, SIZE);
    assert.equal(result.ok, true, JSON.stringify(result));
    const since = performance.now();
    if (side !== 'storage') {
      // A browser renames a download after its end.
      await eventually(() => readdirSync(target).includes('large') && statSync(join(target, 'large')).size === SIZE, 'file');
    }
    const renamed = (performance.now() - since) / 1000;
    const synced = performance.now();
    execFileSync('sync');
    const sync = (performance.now() - synced) / 1000;
    const [total, written] = [result.total / 1000, result.written / 1000];
    console.log(`${side}: ${(SIZE / 1e6 / total).toFixed(0)} MB/s, ${total.toFixed(1)} s, ${(total - written).toFixed(1)} s of them after the last byte, ` +
      `file after ${renamed.toFixed(1)} s more, sync after it ${sync.toFixed(1)} s, ${memory.toFixed(0)} MiB, ${result.level}`);
  } finally {
    clearInterval(looks);
    await browser.close();
    rmSync(target, { recursive: true });
  }
}

const server = await Server.start();
process.once('exit', () => server.child.kill('SIGKILL'));
const source = join(server.roots.data, 'large');
writeFileSync(source, '');
truncateSync(source, SIZE);
try {
  for (let round = 0; round < Number(options.rounds ?? 1); round += 1) {
    for (const side of SIDES) {
      await server.kill();
      await server.run();
      await run(server, side);
    }
  }
} finally {
  await server.close();
}
