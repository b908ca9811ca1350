// Jobs survive a server that was killed, and one whose disk is full.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows } from './jobs-world.mjs';
import { bytes, digests, launch, sha256 } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const inWindow = inWindows(() => browser);

/** More than one request of a lane takes, and several objects. */
const LARGE = 40_000_000;
const ARRIVED = 8 << 20;

// Regression: the stop of a server by SIGTERM ended its jobs.
['SIGKILL', 'SIGTERM'].forEach((signal) => test(`a server that ended by ${signal} asks for a sign-in, and the job resumes after it`, () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    lanes.holds = (method, number) => method === 'PUT' && number >= 8;
    await page.evaluate(async ([size, arrived]) => {
      const { tools, jobs } = window;
      window.requests = 0;
      window.signedOut = new Promise((resolve) => jobs.addEventListener('signed-out', () => {
        window.requests += 1;
        resolve();
      }));
      await tools.passes(jobs.upload({ roots: [tools.file('large', 6, size)], root: 0, to: '', title: 'large' }), arrived);
    }, [LARGE, ARRIVED]);
    await lanes.holding();
    await server.kill(signal);
    await server.run();
    lanes.release();
    const paused = await page.evaluate(async () => {
      const [job] = window.jobs.list;
      await window.signedOut;
      return window.tools.reaches(job, 'paused', 'ended');
    });
    assert.equal(paused, 'paused');
    await page.locator('.job-state', { hasText: 'you are signed out' }).waitFor();
    const ended = await page.evaluate(async (code) => {
      const { tools, jobs } = window;
      const api = await import('/api.js');
      const session = await api.signIn(code);
      const [job] = jobs.list;
      // A server that was started again with other directories: none has the name of the job's.
      jobs.signedIn({ ...session, roots: [{ ...session.roots[0], name: 'other' }] });
      await tools.reaches(job, 'paused');
      const { reason } = job;
      jobs.signedIn(session);
      job.resume();
      return { ...await tools.ended(job), reason, requests: window.requests };
    }, server.link.split('/#')[1]);
    assert.equal(ended.ok, true, JSON.stringify(ended));
    assert.equal(ended.reason, 'the server has no directory data now');
    assert.equal(ended.requests, 1, 'the form for the sign-in shows once');
    assert.deepEqual(digests(server.roots.data), { large: sha256(bytes(6, LARGE)) });
  }, { hasFlows: false })));

test('a full disk of the server fails the file, and a retry succeeds when there is space', { skip: process.getuid() !== 0 && 'needs root' }, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'haul-full-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'haul-full', dir]);
  try {
    await inWindow({ data: { dir } }, async ({ page }) => {
      const upload = await page.evaluate(async (size) => {
        const { tools, jobs } = window;
        return tools.ended(jobs.upload({ roots: [tools.file('large', 9, size), tools.file('small', 1, 10)], root: 0, to: '', title: 'two' }));
      }, LARGE);
      assert.equal(upload.ok, false);
      assert.match(`${upload.text} ${upload.failures.map(({ text }) => text)}`, /space/i);
      execFileSync('mount', ['-o', 'remount,size=128m', dir]);
      await page.getByRole('button', { name: /^Try again/ }).click();
      await page.locator('.drawer-summary', { hasText: '1 complete' }).waitFor();
      assert.deepEqual(digests(dir), { large: sha256(bytes(9, LARGE)), small: sha256(bytes(1, 10)) });
    });
  } finally {
    execFileSync('umount', [dir]);
    rmdirSync(dir);
  }
});
