// The page starts: sign-in, and the client that it loads.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Server, Visitor, launch, shot } from './world.mjs';

let browser;
let server;
before(async () => {
  browser = await launch();
  server = await Server.start({ data: {}, drop: { access: 'write' } });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

test('the page signs in and has the storage, the locks and the modules that jobs need', async () => {
  const visitor = await Visitor.create(browser);
  const page = await visitor.signIn(server);
  await shot(page, 'signed-in');
  const found = await page.evaluate(async () => {
    const { loadCore } = await import('/client/core.js');
    const core = await loadCore(new URL('/client/', location.href));
    core.hashBegin(0, 4 << 20);
    return {
      digest: core.hashEnd(),
      isolated: crossOriginIsolated,
      locks: typeof navigator.locks.request,
      roots: (await (await fetch('/session')).json()).roots.map((root) => root.name),
    };
  });
  assert.deepEqual(found, {
    digest: 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262',
    isolated: true,
    locks: 'function',
    roots: ['data', 'drop'],
  });
  assert.deepEqual(visitor.errors, []);
  await visitor.close();
});
