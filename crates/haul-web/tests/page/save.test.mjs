// Downloads into the browser's own list of downloads, without its storage.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows } from './jobs-world.mjs';
import { ISOLATED, bytes, eventually, launch, sha256, sourceOf, write } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** Makes the private storage unavailable, as in private windows of some browsers. */
const WITHOUT_STORAGE = `Object.defineProperty(navigator.storage, 'getDirectory', {
  value: async () => { throw new DOMException('no storage', 'SecurityError'); },
});`;

/** @param {import('playwright-core').BrowserContext} context */
async function withoutStorage(context) {
  await context.addInitScript(WITHOUT_STORAGE);
  // That script does not run in workers.
  await context.route(/\/client\/worker\.js$/, async (route) => {
    const body = WITHOUT_STORAGE + readFileSync(sourceOf('/client/worker.js'), 'utf8');
    await route.fulfill({ body, contentType: 'text/javascript', headers: ISOLATED });
  });
}

const inWindow = inWindows(() => browser, { prepare: withoutStorage });

/** Several objects, and more than one request of a lane takes. */
const LARGE = 24_000_001;

/** Starts to save paths of the first root. Returns the job for `page.evaluate`. */
const start = (page, ...paths) => page.evaluateHandle((paths) =>
  window.jobs.download({ root: 0, paths, folder: null, saves: true, title: paths.join(' ') }), paths);

const ended = (page, job) => page.evaluate((job) => window.tools.ended(job), job);

/** Returns the downloads of a page as they begin. @param {import('playwright-core').Page} page */
function downloadsOf(page) {
  /** @type {import('playwright-core').Download[]} */
  const list = [];
  page.on('download', (download) => list.push(download));
  return list;
}

/** Returns the contents of complete downloads by their names. */
async function contents(downloads) {
  const entries = downloads.map(async (download) => [download.suggestedFilename(), sha256(readFileSync(await download.path()))]);
  return Object.fromEntries((await Promise.all(entries)).sort(([one], [other]) => (one < other ? -1 : 1)));
}

test('files and folders arrive in the list of downloads, and are verified', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const downloads = downloadsOf(page);
    const files = { large: bytes(1, LARGE), 'folder/deep/small': bytes(2, 10), 'folder/empty': Buffer.alloc(0) };
    for (const [path, data] of Object.entries(files)) {
      write(join(server.roots.data, path), data);
    }
    const result = await ended(page, await start(page, 'large', 'folder'));
    assert.deepEqual([result.ok, result.done, result.failed, result.level], [true, 3, 0, 'verified'], JSON.stringify(result));
    await eventually(() => downloads.length === 3, 'three downloads');
    const expected = Object.entries(files).map(([path, data]) => [path.split('/').pop(), sha256(data)]);
    assert.deepEqual(await contents(downloads), Object.fromEntries(expected.sort()));
  }));
