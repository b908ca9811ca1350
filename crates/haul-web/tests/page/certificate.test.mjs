// Certificates of a private CA that expire and are renewed while the server runs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Proxy, inWorlds, options } from './certificate-world.mjs';
import { enter, givePicker, openPicked, rowOf, waitForStatus } from './panes-world.mjs';
import { bytes, digests, eventually, sha256, shot, write } from './world.mjs';

const world = inWorlds();

const LARGE = 40_000_000;
const ARRIVED = 8 << 20;

test('with an expired certificate the page says why it cannot connect, and its job continues once it is renewed', options, async (t) => {
  const proxy = await Proxy.start();
  t.after(() => proxy.close());
  const { authority, server, visitor } = await world(t, proxy.options);
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
