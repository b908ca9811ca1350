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
      roots: (await (await import('/api.js')).session()).roots.map((root) => root.name),
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

// Regression: a browser sent the cookie of the session to every other port of the host.
test('a tab gets the session of another tab, and nothing of it outlives the tabs', async (t) => {
  const own = await Server.start({ data: {} });
  t.after(() => own.close());
  const visitor = await Visitor.create(browser);
  const page = await visitor.signIn(own);
  const [address] = own.link.split('#');
  const second = await visitor.open(address);
  await second.getByRole('button', { name: 'Sign out' }).waitFor();
  const tokens = await Promise.all([page, second].map((tab) => tab.evaluate(() => sessionStorage.getItem('haul-token'))));
  assert.match(tokens[0], /^[0-9a-f]{64}$/);
  assert.equal(tokens[0], tokens[1]);
  const kept = await second.evaluate(async () => {
    const databases = await indexedDB.databases();
    const rows = await Promise.all(databases.map(({ name }) => new Promise((resolve, reject) => {
      const opening = indexedDB.open(name);
      opening.onerror = reject;
      opening.onsuccess = async () => {
        const found = [];
        for (const store of opening.result.objectStoreNames) {
          const all = opening.result.transaction(store).objectStore(store).getAll();
          await new Promise((done) => (all.onsuccess = done));
          found.push(...all.result);
        }
        opening.result.close();
        resolve(found);
      };
    })));
    return JSON.stringify([rows, { ...localStorage }, document.cookie, await caches.keys()]);
  });
  assert.ok(!kept.includes(tokens[0]), kept);
  assert.deepEqual(await visitor.context.cookies(), []);
  await page.close();
  await second.reload();
  await second.getByRole('button', { name: 'Sign out' }).waitFor();
  await second.close();
  const third = await visitor.open(address);
  await third.locator('#sign-in:not([hidden])').waitFor();
  assert.deepEqual(visitor.errors, []);
  await visitor.close();
});
