// Lanes with a certificate of a private CA, and with one that has expired.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inWorlds, options } from './certificate-world.mjs';
import { openJobs } from './jobs-world.mjs';
import { bytes, sha256, withClient, write } from './world.mjs';

const world = inWorlds();

const LENGTH = 8 << 20;
const FOUND = { down: sha256(bytes(3, LENGTH)) };

/** Opens a window, to which the server seems far away. */
async function farWindow(visitor, server) {
  write(`${server.roots.data}/down`, bytes(3, LENGTH));
  const page = await openJobs(visitor, server);
  await visitor.context.route(/\/session$/, async (route) => {
    const response = await route.fetch({ ignoreHTTPSErrors: true });
    await new Promise((resolve) => setTimeout(resolve, 30));
    await route.fulfill({ response, headers: { ...response.headers(), 'x-haul-tcp': 'cubic' } });
  });
  return page;
}

/** Downloads the file. Returns the path of the lane, and the files that arrived. */
const download = (page, lanes) => page.evaluate(async (lanes) => {
  const { tools, jobs } = window;
  jobs.lanes = lanes;
  const job = jobs.download({ root: 0, paths: ['down'], folder: null, title: 'down' });
  const ended = await tools.ended(job);
  const found = await tools.digests('');
  await (await navigator.storage.getDirectory()).removeEntry('down');
  return { ok: ended.ok, path: job.progress.path, found };
}, lanes);

test('automatic lanes use HTTPS if the certificate has expired for WebTransport', options, async (t) => {
  const { authority, server, visitor } = await world(t, { ignoreHTTPSErrors: true });
  const page = await farWindow(visitor, server);
  // WebTransport is tried until it fails, and not only as long as a user would wait.
  await withClient(visitor.context, 'lane-chooser.js', 'OPEN_TIME = 3000', 'OPEN_TIME = 45_000');
  let [opened, certificate] = [0, authority.sha256()];
  // As if the certificate were self-signed.
  await visitor.context.route(/\/lane$/, async (route) => {
    const response = await route.fetch();
    const lane = await response.json();
    opened += lane.path ? 1 : 0;
    await route.fulfill({ response, json: lane.path ? { ...lane, certificate } : lane });
  });
  assert.deepEqual(await download(page, 'auto'), { ok: true, path: 'webtransport', found: FOUND });
  await authority.shorten(server);
  await authority.expire(server);
  certificate = authority.sha256();
  assert.deepEqual(await download(page, 'auto'), { ok: true, path: 'http', found: FOUND });
  assert.ok(opened >= 2, 'WebTransport was tried');
});

test('a private CA serves for HTTPS and not for WebTransport', options, async (t) => {
  const { server, visitor } = await world(t);
  const page = await farWindow(visitor, server);
  const refused = await page.evaluate(async () => {
    const [{ WebTransportLane }, { token }] = await Promise.all([import('/client/lane-webtransport.js'), import('/token.js')]);
    return WebTransportLane.open('', token()).then(() => 'opened', (error) => error.message);
  });
  assert.match(refused, /^cannot open a lane over WebTransport: WebTransportError/);
  assert.deepEqual(await download(page, 'auto'), { ok: true, path: 'http', found: FOUND });
});
