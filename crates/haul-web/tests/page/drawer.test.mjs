// The queue, the drawer, and the choice of the connection.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows } from './jobs-world.mjs';
import { axeSource } from './needs.mjs';
import { bytes, digests, launch, sha256, shot, write } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const inWindow = inWindows(() => browser);
const LARGE = 16_000_000;

test('two jobs run at a time, the others wait, and the drawer shows each', () =>
  inWindow({ data: {} }, async ({ server, page, lanes }) => {
    write(join(server.roots.data, 'old'), 'x');
    lanes.holds = (method, number) => method === 'PUT' && number >= 1;
    await page.evaluate(() => {
      const { tools, jobs } = window;
      ['a', 'b', 'c', 'd'].forEach((name, seed) => jobs.upload({ roots: [tools.file(name, seed, 5_000_000)], root: 0, to: 'in', title: name }));
    });
    await lanes.holding();
    const states = () => page.evaluate(() => window.jobs.list.map((job) => job.result?.text || job.state));
    assert.deepEqual(await states(), ['running', 'running', 'queued', 'queued']);
    await page.locator('.drawer-summary', { hasText: '2 running \u00b7 2 waiting' }).waitFor();
    assert.equal(await page.getByRole('progressbar').count(), 4);
    // The browser asks before the window is closed.
    assert.equal(await page.evaluate(() => !window.dispatchEvent(new Event('beforeunload', { cancelable: true }))), true);
    await page.getByRole('button', { name: 'Pause: Upload of d' }).click();
    assert.deepEqual(await states(), ['running', 'running', 'queued', 'paused']);
    for (const scheme of ['light', 'dark']) {
      // A color in the middle of its transition has another contrast.
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
      await page.evaluate(axeSource());
      const { violations } = await page.evaluate(() => window.axe.run());
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
      await shot(page, `drawer-${scheme}`);
    }
    lanes.release();
    await page.evaluate(() => Promise.all(window.jobs.list.slice(0, 3).map((job) => window.tools.reaches(job, 'ended'))));
    await page.getByRole('button', { name: 'Remove: Upload of d' }).click();
    await page.locator('.drawer-summary', { hasText: '3 complete' }).waitFor();
    await page.locator('summary').first().click();
    await page.getByRole('button', { name: 'Remove complete jobs' }).click();
    assert.equal(await page.locator('.job').count(), 0);
    assert.deepEqual(Object.keys(digests(join(server.roots.data, 'in'))), ['a', 'b', 'c']);
    // Nothing of removed jobs comes back.
    assert.equal(await page.evaluate(async () => (await (await (await import('/job-store.js')).JobStore.open()).all()).length), 0);
    assert.equal(await page.evaluate(() => !window.dispatchEvent(new Event('beforeunload', { cancelable: true }))), false);
  }));

test('a job over WebTransport arrives', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    write(join(server.roots.data, 'down'), bytes(3, LARGE));
    const result = await page.evaluate(async (size) => {
      const { tools, jobs } = window;
      jobs.lanes = 'webtransport';
      const up = jobs.upload({ roots: [tools.file('up', 2, size)], root: 0, to: '', title: 'up' });
      const down = jobs.download({ root: 0, paths: ['down'], folder: null, title: 'down' });
      const ended = [await tools.ended(up), await tools.ended(down)];
      return { ended, paths: [up.progress.path, down.progress.path], found: await tools.digests('') };
    }, LARGE);
    assert.deepEqual(result.ended.map(({ ok, text }) => [ok, text]), [[true, ''], [true, '']]);
    assert.deepEqual(result.paths, ['webtransport', 'webtransport']);
    assert.deepEqual(result.found, { down: sha256(bytes(3, LARGE)) });
    assert.equal(digests(server.roots.data).up, sha256(bytes(2, LARGE)));
  }));
