// Jobs continue after a pause and after a reload of the page.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows, startJobs } from './jobs-world.mjs';
import { bytes, digests, eventually, launch, sha256, shot, write } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const inWindow = inWindows(() => browser);

/** More than one request of a lane takes, and several objects. */
const LARGE = 40_000_000;
const ARRIVED = 8 << 20;

/** More than arrives between a report of progress and the pause that follows. */
const LONG = 200_000_000;

test('an upload of a file of the disk resumes after a reload of the page', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 8;
    await page.evaluate(async ([size, arrived]) => {
      const { tools, jobs } = window;
      await tools.plant('large', 1, size);
      const handle = await (await tools.directory('')).getFileHandle('large');
      await tools.passes(jobs.upload({ roots: [handle], root: 0, to: '', title: 'large' }), arrived);
    }, [LARGE, ARRIVED]);
    await lanes.holding();
    await page.reload();
    lanes.release();
    await startJobs(page);
    const ended = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const [job] = jobs.list;
      await tools.reaches(job, 'paused');
      const { title, lost } = job;
      await job.resume();
      return { title, lost, ...await tools.ended(job) };
    });
    assert.equal(ended.ok, true, JSON.stringify(ended));
    assert.equal(ended.title, 'large');
    assert.deepEqual(ended.lost, []);
    assert.deepEqual(digests(server.roots.data), { large: sha256(bytes(1, LARGE)) });
    // Bytes that the server had verified are not sent again.
    const [, amount] = await eventually(() => / ([\d.]+) MiB already transferred/.exec(server.log), 'end of the session');
    assert.ok(Number(amount) >= 4, server.log);
  }, { hasFlows: false }));

test('an upload in flowing bodies resumes after a pause and a reload of the page', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const before = await page.evaluate(async ([size, arrived]) => {
      const { tools, jobs } = window;
      await tools.plant('long', 1, size);
      const handle = await (await tools.directory('')).getFileHandle('long');
      const job = jobs.upload({ roots: [handle], root: 0, to: '', title: 'long' });
      await tools.passes(job, arrived);
      job.pause();
      await tools.reaches(job, 'paused', 'ended');
      return { state: job.state, bytes: job.progress.bytes };
    }, [LONG, ARRIVED]);
    assert.equal(before.state, 'paused');
    assert.ok(before.bytes < LONG, before.bytes);
    await page.reload();
    await startJobs(page);
    const ended = await page.evaluate(async () => {
      const { tools, jobs: { list: [job] } } = window;
      await job.resume();
      return tools.ended(job);
    });
    assert.equal(ended.ok, true, JSON.stringify(ended));
    assert.deepEqual(digests(server.roots.data), { long: sha256(bytes(1, LONG)) });
    const [, amount] = await eventually(() => / ([\d.]+) MiB already transferred/.exec(server.log), 'end of the session');
    assert.ok(Number(amount) >= 4, server.log);
  }));

test('chosen files are asked for again after a reload, by name and size', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 2;
    await page.evaluate((size) => {
      const { tools, jobs } = window;
      jobs.upload({ roots: [tools.file('chosen', 1, size), tools.file('other', 2, 10)], root: 0, to: '', title: 'two' });
    }, LARGE);
    await lanes.holding();
    await page.reload();
    lanes.release();
    await startJobs(page);
    await page.getByRole('button', { name: /^Choose files/ }).waitFor();
    await shot(page, 'files-to-choose');
    const result = await page.evaluate(async (size) => {
      const { tools, jobs } = window;
      const [job] = jobs.list;
      await job.resume();
      const stays = job.state;
      const left = [job.supply([tools.file('chosen', 1, 5), tools.file('other', 2, 10)]), job.supply([tools.file('chosen', 1, size)])];
      await job.resume();
      return { stays, left, ended: await tools.ended(job) };
    }, LARGE);
    assert.equal(result.stays, 'paused');
    assert.deepEqual(result.left, [1, 0]);
    assert.equal(result.ended.ok, true, JSON.stringify(result.ended));
    assert.deepEqual(digests(server.roots.data), { chosen: sha256(bytes(1, LARGE)), other: sha256(bytes(2, 10)) });
  }, { hasFlows: false }));

test('each file that is chosen again serves one lost file, whose size and time it has', () =>
  inWindow({ data: {} }, async ({ page }) => {
    const found = await page.evaluate(async () => {
      const { Job } = await import('/job.js');
      const job = new Job({ note() {} }, { roots: [] });
      const file = (text, lastModified) => new File([text], 'name', { lastModified });
      const lost = { path: 'name', size: 1, time: 7 };
      job.lost = [lost, lost, { ...lost, size: 2 }, { path: 'name', size: 3 }];
      const left = [job.supply([file('a', 7), file('b', 8), file('cc', 7)]), job.supply([file('d', 7), file('eee', 9)])];
      return [left, await Promise.all(job.source.roots.map((root) => root.file.text()))];
    });
    assert.deepEqual(found, [[2, 0], ['a', 'cc', 'd', 'eee']]);
  }));

test('a download to the storage of the page resumes after a pause and after a reload', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    write(join(server.roots.data, 'large'), bytes(3, LONG));
    const paused = await page.evaluate(async (arrived) => {
      const { tools, jobs } = window;
      const job = jobs.download({ root: 0, paths: ['large'], folder: null, title: 'large' });
      await tools.passes(job, arrived);
      job.pause();
      return tools.reaches(job, 'paused', 'ended');
    }, ARRIVED);
    assert.equal(paused, 'paused');
    await page.reload();
    await startJobs(page);
    const ended = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const [job] = jobs.list;
      await job.resume();
      return { ...await tools.ended(job), found: await tools.digests('') };
    });
    assert.equal(ended.ok, true, JSON.stringify(ended));
    assert.deepEqual(ended.found, { large: sha256(bytes(3, LONG)) });
    // Bytes that the page had verified are not sent again.
    const [, amount] = await eventually(() => / ([\d.]+) MiB already transferred/.exec(server.log), 'end of the session');
    assert.ok(Number(amount) >= 4, server.log);
  }));

test('a job that is removed leaves nothing in the storage, and gives an old file its name back', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    write(join(server.roots.data, 'in/large'), bytes(3, LONG));
    write(join(server.roots.data, 'in/small'), bytes(4, 10));
    const found = await page.evaluate(async (arrived) => {
      const { tools, jobs } = window;
      const entries = async () => {
        const names = [];
        for (const path of ['', 'in', '.haul-jobs']) {
          for await (const name of (await tools.directory(path)).keys()) {
            names.push(`${path}/${name}`);
          }
        }
        return names.sort();
      };
      const job = jobs.download({ root: 0, paths: ['in'], folder: null, title: 'in' });
      await tools.passes(job, arrived);
      job.pause();
      await tools.reaches(job, 'paused');
      const before = await entries();
      // The page was closed while `large` took the name of an old file, and `small` has its name.
      await tools.plant(`in/.haul-old-${job.id}-large`, 5, 20);
      await tools.plant(`in/.haul-old-${job.id}-small`, 6, 30);
      await tools.plant('in/small', 4, 10);
      // A worker that still runs the job keeps its files.
      let release;
      const running = navigator.locks.request(`haul-job-${job.id}`, () => new Promise((resolve) => {
        release = resolve;
      }));
      const removed = job.forget();
      const during = await entries();
      release();
      await running;
      await removed;
      return { id: job.id, before, during, after: await entries(), digests: await tools.digests('') };
    }, ARRIVED);
    const { id } = found;
    const logs = [`.haul-jobs/${id}.log`, `.haul-jobs/${id}.receipt.log`];
    for (const name of [`in/.haul-part-${id}-large`, ...logs]) {
      assert.ok(found.before.includes(name), JSON.stringify(found.before));
      assert.ok(found.during.includes(name), JSON.stringify(found.during));
    }
    assert.deepEqual(found.after, ['/.haul-jobs', '/in', `in/.haul-old-${id}-small`, 'in/large', 'in/small']);
    assert.deepEqual(found.digests, { 'in/large': sha256(bytes(5, 20)), 'in/small': sha256(bytes(4, 10)) });
  }));

test('a job that was interrupted and is removed leaves no empty file in the picked folder', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    write(join(server.roots.data, 'large'), bytes(3, LONG));
    await page.evaluate(async (arrived) => {
      const { tools, jobs } = window;
      await tools.plant('picked/other', 1, 0);
      await tools.passes(jobs.download({ root: 0, paths: ['large'], folder: await tools.directory('picked'), title: 'large' }), arrived);
    }, ARRIVED);
    await page.reload();
    await startJobs(page);
    const found = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const [job] = jobs.list;
      await tools.reaches(job, 'paused');
      const before = Object.keys(await tools.digests('picked'));
      await job.forget();
      return [before.sort(), Object.keys(await tools.digests('picked'))];
    });
    assert.deepEqual(found, [['large', 'other'], ['other']]);
  }));
