// Downloads into the browser's own list of downloads, without its storage.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows, startJobs } from './jobs-world.mjs';
import { ISOLATED, Server, Visitor, bytes, eventually, launch, sha256, shot, sourceOf, write } from './world.mjs';

let browser;
before(async () => {
  // Service workers need a certificate that the browser trusts, not one that the user accepted.
  browser = await launch(undefined, ['--ignore-certificate-errors']);
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

test('bytes that change on the way are sent again, and the saved file is right', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    const downloads = downloadsOf(page);
    write(join(server.roots.data, 'down'), bytes(3, LARGE));
    let isFlipped = false;
    lanes.change = async (route, method) => {
      if (method !== 'GET' || isFlipped) {
        return false;
      }
      const response = await route.fetch();
      const body = await response.body();
      if (body.length > 1 << 20) {
        isFlipped = true;
        body[body.length >> 1] ^= 1;
      }
      await route.fulfill({ response, body });
      return true;
    };
    const result = await ended(page, await start(page, 'down'));
    assert.ok(isFlipped);
    assert.equal(result.ok, true, JSON.stringify(result));
    assert.deepEqual(await contents(downloads), { down: sha256(bytes(3, LARGE)) });
  }));

/** Longer than the window of a session. */
const LONG = 100_000_000;

/**
 * Starts a download that stays in the middle, because the server gets no answers.
 * @param {any} world
 */
async function startHeld({ server, page, lanes }) {
  const downloads = downloadsOf(page);
  write(join(server.roots.data, 'long'), bytes(5, LONG));
  lanes.holds = (method, number) => method === 'PUT' && number >= 2;
  const job = await start(page, 'long');
  await eventually(() => downloads.length === 1, 'download');
  await lanes.holding();
  return { job, downloads };
}

test('a file continues after a lost connection', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    const downloads = downloadsOf(page);
    write(join(server.roots.data, 'down'), bytes(4, LARGE));
    // Two objects, and a part of the third one. The server has no such lane then.
    let left = 10 << 20;
    let lane = '';
    lanes.change = async (route, method) => {
      if (method !== 'GET') {
        return false;
      }
      const [id] = route.request().url().split('/').slice(-2);
      if (left === 0) {
        if (id === lane) {
          await route.fulfill({ status: 404, body: '{"error":"no such lane"}' });
        }
        return id === lane;
      }
      const response = await route.fetch();
      const body = (await response.body()).subarray(0, left);
      left -= body.length;
      lane = id;
      await route.fulfill({ response, body });
      return true;
    };
    const result = await ended(page, await start(page, 'down'));
    assert.equal(left, 0);
    assert.deepEqual([result.ok, result.done], [true, 1], JSON.stringify(result));
    assert.deepEqual(await contents(downloads), { down: sha256(bytes(4, LARGE)) });
    // The browser has the file once, and the server has sent its first objects once.
    assert.equal(downloads.length, 1);
    const [, kept] = await eventually(() => / ([\d.]+) MiB already transferred/.exec(server.log), 'the end in the log');
    assert.equal(kept, '8.0', server.log);
  }));

test('a download that the user cancels in the browser fails with a message', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    const { job, downloads: [download] } = await startHeld({ server, page, lanes });
    await download.cancel();
    lanes.release();
    const result = await ended(page, job);
    assert.deepEqual([result.ok, result.failed], [false, 1], JSON.stringify(result));
    assert.match(result.failures[0].text, /cannot receive long: .*its download was cancelled in the browser/);
  }, { hasFlows: false }));

test('a job that is stopped, and a page that is reloaded, make the download fail', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    const { job, downloads: [download] } = await startHeld({ server, page, lanes });
    await page.getByRole('button', { name: 'Stop: Download of long' }).click();
    const result = await ended(page, job);
    assert.deepEqual([result.ok, result.done], [false, 0], JSON.stringify(result));
    assert.notEqual(await download.failure(), null);
    lanes.release();
    const again = await startHeld({ server, page, lanes });
    await page.reload();
    assert.notEqual(await again.downloads[0].failure(), null);
    lanes.release();
    await startJobs(page);
    await page.getByText('a new run saves all files again').waitFor();
  }, { hasFlows: false }));

test('a service worker that the browser stops makes the file fail', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    const { job, downloads: [download] } = await startHeld({ server, page, lanes });
    const session = await page.context().newCDPSession(page);
    await session.send('ServiceWorker.enable');
    await session.send('ServiceWorker.stopAllWorkers');
    assert.notEqual(await download.failure(), null);
    lanes.release();
    const result = await ended(page, job);
    assert.match(result.failures[0]?.text ?? '', /cannot receive long: .*the browser stopped saving it/);
  }, { hasFlows: false }));

test('names of files stay names', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const downloads = downloadsOf(page);
    const name = "\u{1f4be} it's (100%) *.txt";
    const hostile = ['a"; filename="b.html', 'line\r\nX-Evil: 1', '%2e%2e%2fup', '<img src=x onerror=alert(1)>.html'];
    write(join(server.roots.data, 'top', name), 'x');
    for (const each of hostile) {
      write(join(server.roots.data, 'top', each), each);
    }
    const result = await ended(page, await start(page, 'top'));
    assert.equal(result.done, 5, JSON.stringify(result));
    await eventually(() => downloads.length === 5, 'five downloads');
    const found = await contents(downloads);
    // A browser replaces what its disk does not take.
    assert.ok(Object.keys(found).includes(name.replace('*', '_')) || Object.keys(found).includes(name), JSON.stringify(found));
    assert.deepEqual(Object.values(found).sort(), ['x', ...hostile].map((text) => sha256(Buffer.from(text))).sort());
    assert.ok(Object.keys(found).every((each) => !/[/\r\n]/.test(each)), JSON.stringify(found));
    assert.ok(page.frames().every((frame) => !frame.url().includes('/save/')));
  }));

test('the service worker controls no page, and answers an address once', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const downloads = downloadsOf(page);
    write(join(server.roots.data, 'down'), 'x');
    await ended(page, await start(page, 'down'));
    await eventually(() => downloads.length === 1, 'download');
    assert.deepEqual(await contents(downloads), { down: sha256(Buffer.from('x')) });
    const { scopes, hasController, status } = await page.evaluate(async (address) => ({
      scopes: (await navigator.serviceWorker.getRegistrations()).map(({ scope }) => new URL(scope).pathname),
      hasController: navigator.serviceWorker.controller !== null,
      status: (await fetch(address)).status,
    }), downloads[0].url());
    // The server has nothing there, and the request has no token.
    assert.deepEqual([scopes, hasController, status], [['/save/'], false, 401]);
  }));

/** Returns a heap snapshot of a page. @param {import('playwright-core').Page} page */
async function heapOfPage(page) {
  const session = await page.context().newCDPSession(page);
  let text = '';
  session.on('HeapProfiler.addHeapSnapshotChunk', ({ chunk }) => {
    text += chunk;
  });
  await session.send('HeapProfiler.takeHeapSnapshot');
  await session.detach();
  return text;
}

/** Returns a heap snapshot of the only service worker. */
async function heapOfServiceWorker() {
  const session = await browser.newBrowserCDPSession();
  const { targetInfos } = await session.send('Target.getTargets');
  const [{ targetId }, ...others] = targetInfos.filter(({ type }) => type === 'service_worker');
  assert.deepEqual(others, []);
  const { sessionId } = await session.send('Target.attachToTarget', { targetId, flatten: false });
  let text = '';
  const isTaken = new Promise((resolve) => session.on('Target.receivedMessageFromTarget', ({ message }) => {
    const { id, method, params } = JSON.parse(message);
    text += method === 'HeapProfiler.addHeapSnapshotChunk' ? params.chunk : '';
    if (id === 1) {
      resolve(undefined);
    }
  }));
  const message = JSON.stringify({ id: 1, method: 'HeapProfiler.takeHeapSnapshot' });
  await session.send('Target.sendMessageToTarget', { sessionId, message });
  await isTaken;
  await session.detach();
  return text;
}

test('the service worker holds no token of a session', () =>
  inWindow({ data: {} }, async (world) => {
    const { page, lanes } = world;
    const { job } = await startHeld(world);
    const token = await page.evaluate(() => sessionStorage.getItem('haul-token'));
    assert.match(token, /^[0-9a-f]{64}$/);
    const [ofPage, ofWorker] = [await heapOfPage(page), await heapOfServiceWorker()];
    // A snapshot has the texts of its thread.
    assert.ok(ofPage.includes(token) && ofWorker.includes('long'));
    assert.ok(!ofWorker.includes(token));
    const kept = await page.evaluate(async () => JSON.stringify([await caches.keys(), { ...localStorage }]));
    assert.ok(!kept.includes(token), kept);
    await page.evaluate((job) => job.pause(), job);
    lanes.release();
    await ended(page, job);
  }));

test('without folders and storage, F5 adds files to the downloads of the browser', async () => {
  const server = await Server.start({ data: {} });
  const visitor = await Visitor.create(browser);
  try {
    await withoutStorage(visitor.context);
    await visitor.context.addInitScript(() => {
      delete window.showDirectoryPicker;
      delete Window.prototype.showDirectoryPicker;
    });
    write(join(server.roots.data, 'photo.jpg'), bytes(6, 1000));
    const page = await visitor.signIn(server);
    const downloads = downloadsOf(page);
    await page.locator('#right .row', { hasText: 'photo.jpg' }).click();
    await page.keyboard.press('F5');
    await page.locator('#left .crumbs', { hasText: 'Browser downloads' }).waitFor();
    await page.locator('#status', { hasText: 'The download of photo.jpg to Browser downloads is complete: 1 file copied.' }).waitFor();
    await eventually(() => downloads.length === 1, 'download');
    assert.deepEqual(await contents(downloads), { 'photo.jpg': sha256(bytes(6, 1000)) });
    await shot(page, 'saved');
    // Without a service worker, as with a certificate that the browser does not trust, there is no place.
    await page.evaluate(() => navigator.serviceWorker.getRegistrations().then((all) => Promise.all(all.map((each) => each.unregister()))));
    await visitor.context.addInitScript(() => {
      navigator.serviceWorker.register = () => Promise.reject(new Error('made by the test'));
    });
    await page.reload();
    await page.locator('#right .row', { hasText: 'photo.jpg' }).click();
    await page.keyboard.press('F5');
    await page.locator('#status', { hasText: 'this browser can store no downloads' }).waitFor();
    await page.locator('#left select').selectOption('saves');
    await page.locator('#right .row', { hasText: 'photo.jpg' }).click();
    await page.keyboard.press('F5');
    await page.locator('#status', { hasText: 'the browser cannot save files of this page: made by the test' }).waitFor();
    assert.deepEqual(visitor.errors, []);
  } finally {
    await visitor.close();
    await server.close();
  }
});
