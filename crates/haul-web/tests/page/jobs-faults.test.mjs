// Jobs survive a lost connection and bytes that change on the way.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows } from './jobs-world.mjs';
import { bytes, digests, launch, sha256, withClient, write } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const inWindow = inWindows(() => browser);

/** More than one request of a lane takes, and several objects. */
const LARGE = 24_000_000;
const PIECE = 4 << 20;

test('jobs survive a network that fails for a while', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    write(join(server.roots.data, 'down'), bytes(4, LARGE));
    let [requests, failures] = [0, 0];
    lanes.change = async (route) => {
      // After the first requests of both jobs, all of them fail for a while, repetitions too.
      requests += 1;
      const fails = requests > 6 && failures < 12;
      failures += fails ? 1 : 0;
      if (fails) {
        await route.abort('internetdisconnected');
      }
      return fails;
    };
    const ended = await page.evaluate(async (size) => {
      const { tools, jobs } = window;
      const up = jobs.upload({ roots: [tools.file('up', 5, size)], root: 0, to: '', title: 'up' });
      const down = jobs.download({ root: 0, paths: ['down'], folder: null, title: 'down' });
      return { up: await tools.ended(up), down: await tools.ended(down), found: await tools.digests('') };
    }, LARGE);
    assert.equal(failures, 12);
    assert.equal(ended.up.ok, true, JSON.stringify(ended));
    assert.equal(ended.down.ok, true, JSON.stringify(ended));
    assert.deepEqual(ended.found, { down: sha256(bytes(4, LARGE)) });
    assert.equal(digests(server.roots.data).up, sha256(bytes(5, LARGE)));
  }));

/** Uploads a file of LARGE bytes, and checks that it arrived. */
async function uploads({ server, page }) {
  const ended = await page.evaluate((size) => {
    const { tools, jobs } = window;
    return tools.ended(jobs.upload({ roots: [tools.file('up', 5, size)], root: 0, to: '', title: 'up' }));
  }, LARGE);
  assert.deepEqual([ended.ok, digests(server.roots.data).up], [true, sha256(bytes(5, LARGE))], JSON.stringify(ended));
}

test('another worker sends the bytes of an upload', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const workers = [];
    page.on('worker', (worker) => workers.push(new URL(worker.url()).pathname));
    await uploads({ server, page });
    assert.ok(workers.includes('/client/flow-worker.js'), String(workers));
  }));

test('an upload ends well if the worker that sends does not start', () =>
  inWindow({ data: {} }, async ({ server, visitor, page }) => {
    await withClient(visitor.context, 'flow.js', '\'flow-worker.js\'', '\'none.js\'');
    let opened = 0;
    page.on('request', (request) => {
      opened += Number(request.method() === 'POST' && request.url().endsWith('/lane'));
    });
    await uploads({ server, page });
    assert.equal(opened, 2, 'the first lane was lost');
  }));

test('bytes that change on the way are found, and transferred again', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    write(join(server.roots.data, 'down'), bytes(7, LARGE));
    const flipped = [];
    /** Changes the first large body in each direction. */
    const flip = (method, data) => {
      const changed = Buffer.from(data);
      if (changed.length > PIECE / 2 && !flipped.includes(method)) {
        flipped.push(method);
        changed[changed.length >> 1] ^= 1;
      }
      return changed;
    };
    lanes.change = async (route, method) => {
      if (flipped.includes(method)) {
        return false;
      }
      if (method === 'GET') {
        const response = await route.fetch();
        await route.fulfill({ response, body: flip(method, await response.body()) });
      } else {
        await route.continue({ postData: flip(method, route.request().postDataBuffer() ?? '') });
      }
      return true;
    };
    const down = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const job = jobs.download({ root: 0, paths: ['down'], folder: null, title: 'down' });
      return { ended: await tools.ended(job), found: await tools.digests('') };
    });
    assert.deepEqual(flipped, ['GET']);
    assert.equal(down.ended.ok, true, JSON.stringify(down));
    assert.deepEqual(down.found, { down: sha256(bytes(7, LARGE)) });
    const up = await page.evaluate(async (size) => {
      const { tools, jobs } = window;
      return tools.ended(jobs.upload({ roots: [tools.file('up', 8, size)], root: 0, to: '', title: 'up' }));
    }, LARGE);
    assert.ok(flipped.includes('PUT'));
    assert.equal(up.ok, true, JSON.stringify(up));
    assert.equal(digests(server.roots.data).up, sha256(bytes(8, LARGE)));
  }, { hasFlows: false }));
