// Certificates of a private CA that expire and are renewed while the server runs.

import assert from 'node:assert/strict';
import process from 'node:process';
import { after, before, test } from 'node:test';
import { Authority, Proxy } from './certificate-world.mjs';
import { openJobs } from './jobs-world.mjs';
import { enter, givePicker, openPicked, rowOf, waitForStatus } from './panes-world.mjs';
import { Server, Visitor, bytes, digests, eventually, sha256, shot, write } from './world.mjs';

// Policies of Chromium are in a directory of root.
const options = { skip: process.getuid?.() !== 0 && 'needs root' };

/** @type {import('playwright-core').Browser | undefined} */
let browser;
/** @type {Authority} */
let authority;
before(async () => {
  if (!options.skip) {
    authority = new Authority();
    browser = await authority.launch();
  }
});
after(async () => {
  await browser?.close();
  authority?.close();
});

/** Starts a server with a certificate that is valid, and its visitor. */
async function world(t, context = {}) {
  authority.issue(3600);
  const server = await Server.start({ data: {} }, { settings: authority.settings });
  const visitor = await Visitor.create(browser, { ignoreHTTPSErrors: false, ...context });
  t.after(async () => {
    await visitor.close();
    await server.close();
  });
  return { server, visitor };
}

const LARGE = 40_000_000;
const ARRIVED = 8 << 20;

test('with an expired certificate the page says why it cannot connect, and its job continues once it is renewed', options, async (t) => {
  const proxy = await Proxy.start();
  t.after(() => proxy.close());
  const { server, visitor } = await world(t, proxy.options);
  write(`${server.roots.data}/in/old`, 'x');
  const page = await visitor.signIn(server);
  await givePicker(page, 'to-send');
  await page.evaluate(async (chunks) => {
    const directory = await (await navigator.storage.getDirectory()).getDirectoryHandle('to-send');
    const stream = await (await directory.getFileHandle('large', { create: true })).createWritable();
    for (const chunk of chunks) {
      await stream.write(Uint8Array.from(atob(chunk), (char) => char.charCodeAt(0)));
    }
    await stream.close();
  }, [bytes(6, LARGE).toString('base64')]);
  await openPicked(page, 'to-send');
  await enter(page, 'right', 'in');
  await rowOf(page, 'left', 'large').click();
  await authority.shorten(server);
  // As a page that was loaded with this certificate.
  await page.evaluate(async () => (await import('/api.js')).session());
  proxy.limit = proxy.sent + 2 * ARRIVED;
  await page.keyboard.press('F5');
  await eventually(() => proxy.sent >= proxy.limit, 'bytes of the upload');
  await page.locator('.job', { hasText: /[1-9][\d.]* MiB of/ }).waitFor();
  await authority.expire(server);
  const failure = page.waitForEvent('requestfailed', (request) => request.failure()?.errorText === 'net::ERR_CERT_DATE_INVALID');
  proxy.cut();
  await page.keyboard.press('Tab');
  await page.keyboard.press('F9');
  await waitForStatus(page, 'the server\'s certificate was valid until');
  await failure;
  await page.locator('.job-state', { hasText: 'the server\'s certificate was valid until' }).waitFor();
  await shot(page, 'certificate-expired');
  const before = proxy.sent;
  await authority.renew(server);
  await page.locator('.drawer-summary', { hasText: '1 complete' }).waitFor();
  assert.deepEqual(digests(server.roots.data), { 'in/large': sha256(bytes(6, LARGE)), 'in/old': sha256(Buffer.from('x')) });
  assert.ok(proxy.sent - before < LARGE, 'what had arrived is kept');
  await page.keyboard.press('F9');
  await rowOf(page, 'right', 'large').waitFor();
});

test('automatic lanes use HTTPS if the certificate has expired for WebTransport', options, async (t) => {
  const { server, visitor } = await world(t, { ignoreHTTPSErrors: true });
  write(`${server.roots.data}/down`, bytes(3, ARRIVED));
  const page = await openJobs(visitor, server);
  let opened = 0;
  // As if the server knew the certificate by its hash, and far away.
  await visitor.context.route(/\/lane$/, async (route) => {
    const response = await route.fetch();
    const lane = await response.json();
    opened += lane.path ? 1 : 0;
    await route.fulfill({ response, json: lane.path ? { ...lane, certificate: authority.sha256() } : lane });
  });
  await visitor.context.route(/\/session$/, async (route) => {
    const response = await route.fetch();
    await new Promise((resolve) => setTimeout(resolve, 30));
    await route.fulfill({ response, headers: { ...response.headers(), 'x-haul-tcp': 'cubic' } });
  });
  const download = (/** @type {string} */ lanes) => page.evaluate(async (lanes) => {
    const { tools, jobs } = window;
    jobs.lanes = lanes;
    const job = jobs.download({ root: 0, paths: ['down'], folder: null, title: 'down' });
    const ended = await tools.ended(job);
    const found = await tools.digests('');
    await (await navigator.storage.getDirectory()).removeEntry('down');
    return { ok: ended.ok, path: job.progress.path, found };
  }, lanes);
  const found = { down: sha256(bytes(3, ARRIVED)) };
  assert.deepEqual(await download('auto'), { ok: true, path: 'webtransport', found });
  await authority.shorten(server);
  await authority.expire(server);
  assert.deepEqual(await download('auto'), { ok: true, path: 'http', found });
  assert.ok(opened >= 2, 'WebTransport was tried');
});
