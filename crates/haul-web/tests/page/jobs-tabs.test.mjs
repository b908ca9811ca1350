// Two tabs with the same jobs.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inWindows, openJobs } from './jobs-world.mjs';
import { bytes, digests, launch, sha256, shot } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const inWindow = inWindows(() => browser);
const LARGE = 16_000_000;

test('a second tab shows the job of the first one, pauses it, and continues it', () =>
  inWindow({ data: {} }, async ({ visitor, server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 2;
    await page.evaluate(async (size) => {
      const { tools, jobs } = window;
      await tools.plant('large', 1, size);
      const handle = await (await tools.directory('')).getFileHandle('large');
      jobs.upload({ roots: [handle], root: 0, to: '', title: 'large' });
    }, LARGE);
    await lanes.holding();
    const second = await openJobs(visitor, server, false);
    await second.locator('.job-state', { hasText: 'Runs in another tab' }).waitFor();
    // Two runs of one job would write the same files.
    assert.equal(await second.evaluate(() => window.jobs.list[0].isActive), false);
    await shot(second, 'second-tab');
    await second.getByRole('button', { name: /^Pause/ }).click();
    assert.equal(await page.evaluate(() => window.tools.reaches(window.jobs.list[0], 'paused')), 'paused');
    lanes.release();
    await second.getByRole('button', { name: /^Resume/ }).click();
    await second.evaluate(() => window.tools.reaches(window.jobs.list[0], 'ended'));
    assert.equal(await page.evaluate(() => window.tools.reaches(window.jobs.list[0], 'ended')), 'ended');
    assert.deepEqual(digests(server.roots.data), { large: sha256(bytes(1, LARGE)) });
  }));

test('a tab that is closed leaves its job to the other one', () =>
  inWindow({ data: {} }, async ({ visitor, server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 2;
    await page.evaluate(async (size) => {
      const { tools, jobs } = window;
      await tools.plant('large', 1, size);
      const handle = await (await tools.directory('')).getFileHandle('large');
      jobs.upload({ roots: [handle], root: 0, to: '', title: 'large' });
    }, LARGE);
    await lanes.holding();
    const second = await openJobs(visitor, server, false);
    await second.locator('.job-state', { hasText: 'Runs in another tab' }).waitFor();
    await page.close();
    lanes.release();
    await second.locator('.job-state', { hasText: 'Paused: the page was closed' }).waitFor();
    await second.getByRole('button', { name: /^Resume/ }).click();
    const ended = await second.evaluate(() => window.tools.ended(window.jobs.list[0]));
    assert.equal(ended.ok, true, JSON.stringify(ended));
    assert.deepEqual(digests(server.roots.data), { large: sha256(bytes(1, LARGE)) });
  }));

test('a job that cannot run here gives its place to the next one, once', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 1;
    const found = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const upload = (title, size, root = 0) =>
        jobs.upload({ roots: [tools.file(title, size, size)], root, to: '', title });
      const busy = upload('busy', 5_000_000);
      const locked = upload('locked', 10);
      // Its worker loads its modules before it asks for the lock.
      navigator.locks.request(`haul-job-${locked.id}`, () => new Promise(() => {}));
      const next = upload('next', 10);
      const states = [next.state];
      await tools.reaches(locked, 'elsewhere');
      await tools.reaches(next, 'running', 'ended');
      states.push(locked.state, busy.state);
      return states;
    });
    assert.deepEqual(found, ['queued', 'elsewhere', 'running']);
    lanes.release();
    const started = await page.evaluate(async () => {
      const { tools, jobs } = window;
      await Promise.all(jobs.list.filter(({ title }) => title !== 'locked').map((job) => tools.reaches(job, 'ended')));
      const lost = jobs.upload({ roots: [tools.file('lost', 1, 10)], root: 99, to: '', title: 'lost' });
      const kept = jobs.upload({ roots: [tools.file('kept', 2, 10)], root: 0, to: '', title: 'kept' });
      await tools.ended(kept);
      let workers = 0;
      const { Worker } = window;
      window.Worker = class extends Worker {
        constructor(...values) {
          super(...values);
          workers += 1;
        }
      };
      // Two places are free, and the first job has lost its directory.
      lost.state = 'queued';
      kept.state = 'queued';
      jobs.released();
      await tools.ended(kept);
      return [workers, lost.state, lost.reason];
    });
    assert.deepEqual(started, [1, 'paused', 'the server has no directory  now']);
    assert.equal(Object.keys(digests(server.roots.data)).length, 3);
  }));

test('a job that waits for its turn in one tab cannot be resumed in another one', () =>
  inWindow({ data: {} }, async ({ visitor, server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 1;
    await page.evaluate(async () => {
      const { tools, jobs } = window;
      await tools.plant('waiting', 3, 10);
      const handle = await (await tools.directory('')).getFileHandle('waiting');
      ['one', 'two'].forEach((name, seed) => jobs.upload({ roots: [tools.file(name, seed, 5_000_000)], root: 0, to: '', title: name }));
      jobs.upload({ roots: [handle], root: 0, to: '', title: 'waiting' });
    });
    await lanes.holding();
    const second = await openJobs(visitor, server, false);
    assert.deepEqual(await second.evaluate(() => window.jobs.list.map(({ state }) => state)), ['elsewhere', 'elsewhere', 'elsewhere']);
    // Two tabs that do not know of each other still run the job once.
    await page.evaluate(() => {
      window.workers = [];
      const { Worker } = window;
      window.Worker = class extends Worker {
        postMessage(message, ...rest) {
          window.workers.push(message.job);
          super.postMessage(message, ...rest);
        }
      };
      // The running jobs keep their places until the other tab has run the third one.
      window.jobs.released = () => {};
    });
    lanes.release();
    const ended = await second.evaluate(async () => {
      const { tools, jobs } = window;
      const job = jobs.list[2];
      job.state = 'paused';
      await job.resume();
      return tools.ended(job);
    });
    assert.equal(ended.ok, true, JSON.stringify(ended));
    const found = await page.evaluate(async () => {
      const { tools, jobs } = window;
      await Promise.all(jobs.list.map((job) => tools.reaches(job, 'ended')));
      delete jobs.released;
      jobs.released();
      return [window.workers, jobs.list.map(({ state }) => state)];
    });
    assert.deepEqual(found, [[], ['ended', 'ended', 'ended']]);
    assert.equal(Object.keys(digests(server.roots.data)).length, 3);
  }));

test('a job that another tab removes while this one loads does not appear again', () =>
  inWindow({ data: {} }, async ({ visitor, server, page }) => {
    await page.evaluate(async () => {
      const { tools, jobs } = window;
      const upload = (name) => tools.ended(jobs.upload({ roots: [tools.file(name, 1, 10)], root: 0, to: '', title: name }));
      await Promise.all([upload('known'), upload('unknown'), upload('own'), upload('stays')]);
    });
    const second = await openJobs(visitor, server, false);
    await page.evaluate(async () => {
      const { jobs } = window;
      const { JobStore } = await import('/job-store.js');
      const { all } = JobStore.prototype;
      const read = new Promise((resolve) => {
        JobStore.prototype.all = async function () {
          const found = await all.call(this);
          resolve();
          await new Promise((go) => {
            window.go = go;
          });
          return found;
        };
      });
      jobs.list = jobs.list.filter(({ title }) => title !== 'unknown');
      window.loading = jobs.load();
      window.heard = new Promise((resolve) => {
        let count = 0;
        new BroadcastChannel('haul-jobs').addEventListener('message', ({ data }) => {
          count += data.removed === undefined ? 0 : 1;
          return count === 2 && resolve();
        });
      });
      await read;
    });
    await second.evaluate(() => window.jobs.list.filter(({ title }) => title.endsWith('known')).forEach((job) => job.forget()));
    const titles = await page.evaluate(async () => {
      await window.heard;
      window.jobs.list.find(({ title }) => title === 'own').forget();
      window.go();
      await window.loading;
      return window.jobs.list.map(({ title }) => title);
    });
    assert.deepEqual(titles, ['stays']);
  }));
