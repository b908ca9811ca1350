// Jobs copy files both ways, with equal bytes.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inWindows } from './jobs-world.mjs';
import { bytes, digests, launch, sha256, shot, write } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const inWindow = inWindows(() => browser);

const LARGE = 9_000_001;

test('an upload of files and of a folder arrives with equal bytes, durable, and with a receipt', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const result = await page.evaluate(async (large) => {
      const { tools, jobs } = window;
      await tools.plant('album/deep/one', 1, 70_000);
      await tools.plant('album/two', 2, 0);
      await tools.directory('album/empty');
      const roots = [await tools.directory('album'), tools.file('single', 3, large), { file: tools.file('x', 4, 10), path: 'dropped/<b>x</b>' }];
      const ended = await tools.ended(jobs.upload({ roots, root: 0, to: 'in', title: 'three' }));
      const [job] = jobs.list;
      return { ended, total: job.total, bytes: job.progress.bytes, receipt: await job.receipt.text() };
    }, LARGE);
    assert.deepEqual(result.ended, { ok: true, done: 4, same: 0, failed: 0, level: 'durable', text: '', failures: [] });
    const expected = {
      'in/album/deep/one': sha256(bytes(1, 70_000)),
      'in/album/two': sha256(bytes(2, 0)),
      'in/dropped/<b>x</b>': sha256(bytes(4, 10)),
      'in/single': sha256(bytes(3, LARGE)),
    };
    assert.deepEqual(digests(server.roots.data), expected);
    assert.deepEqual(result.total, { files: 4, bytes: 70_000 + LARGE + 10, isWhole: true });
    assert.equal(result.bytes, 70_000 + LARGE + 10);
    const waybill = join(server.home, 'job.waybill');
    write(waybill, result.receipt);
    const verify = () => spawnSync(process.env.HAUL_BIN, ['verify', waybill, join(server.roots.data, 'in')], { env: { ...process.env, XDG_STATE_HOME: join(server.home, 'verify') }, encoding: 'utf8' });
    const intact = verify();
    assert.equal(intact.status, 0, intact.stdout + intact.stderr);
    assert.match(result.receipt, / files=4 bytes=9070011 /);
    write(join(server.roots.data, 'in/dropped/<b>x</b>'), bytes(5, 10));
    assert.equal(verify().status, 1);
    await page.locator('.job-state', { hasText: 'Complete' }).waitFor();
    await shot(page, 'upload-complete');
  }));

test('a download arrives in a picked folder and in the storage of the page', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    write(join(server.roots.data, 'tree/large'), bytes(5, LARGE));
    write(join(server.roots.data, 'tree/deep/ü <i>'), bytes(6, 100));
    write(join(server.roots.data, 'tree/empty'), '');
    write(join(server.roots.data, 'alone'), bytes(7, 65_536));
    const expected = digests(server.roots.data);
    const result = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const what = { root: 0, paths: ['tree', 'alone'] };
      const picked = jobs.download({ ...what, folder: await tools.directory('picked'), title: 'to a folder' });
      const own = jobs.download({ ...what, folder: null, title: 'to the page' });
      const ended = [await tools.ended(picked), await tools.ended(own)];
      const inPicked = await tools.digests('picked');
      await (await navigator.storage.getDirectory()).removeEntry('picked', { recursive: true });
      return { ended, inPicked, own: await tools.digests(''), total: own.total, bytes: own.progress.bytes };
    });
    assert.deepEqual(result.ended.map(({ ok, failed, level }) => ({ ok, failed, level })), [
      { ok: true, failed: 0, level: 'verified' },
      { ok: true, failed: 0, level: 'durable' },
    ]);
    assert.deepEqual(result.inPicked, expected);
    assert.deepEqual(result.own, expected);
    assert.deepEqual(result.total, { files: 4, bytes: LARGE + 100 + 65_536, isWhole: true });
    assert.equal(result.bytes, LARGE + 100 + 65_536);
  }));

test('names that the server must not create fail alone, and are shown as text', () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const { failures, ...ended } = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const named = (path) => ({ file: tools.file('x', 1, 10), path });
      const roots = ['../up', '/top', 'a/../../b', '.haul-x', 'good <img src=x onerror=alert(1)>', 'n'.repeat(300)].map(named);
      return tools.ended(jobs.upload({ roots, root: 0, to: '', title: '<script>alert(1)</script>' }));
    });
    assert.deepEqual(Object.keys(digests(server.home)).filter((path) => path.endsWith('/up') || path.endsWith('/b')), []);
    assert.deepEqual(digests(server.roots.data), { 'good <img src=x onerror=alert(1)>': sha256(bytes(1, 10)) });
    assert.equal(ended.ok, false);
    assert.equal(ended.done, 1);
    assert.equal(ended.failed, 4);
    assert.equal(failures.length, 4);
    await page.locator('summary').click();
    await page.locator('.job-failures li').nth(3).waitFor();
    assert.equal(await page.locator('.job-failures li').count(), 4);
    assert.match(await page.locator('.job-left-out').textContent(), /^\.haul-x: .* left out$/);
    assert.equal(await page.locator('.job strong').first().textContent(), '<script>alert(1)</script>');
    assert.equal(await page.locator('.job img, .job script').count(), 0);
    await shot(page, 'hostile-names');
  }));

// Regression: such an upload failed.
test("an upload leaves out Surehaul's own files, and says so once", () =>
  inWindow({ data: {} }, async ({ server, page }) => {
    const { ended, leftOut, total } = await page.evaluate(async () => {
      const { tools, jobs } = window;
      for (const own of ['.haul/sums/one', '.haul-part-x', 'deep/.Haul/sums/x', 'deep/.HAUL-x/y', 'only/.haul/sums/z']) {
        await tools.plant(`album/${own}`, 1, 10);
      }
      await tools.plant('album/deep/.haulier', 2, 20);
      const named = (path) => ({ file: tools.file('x', 1, 10), path });
      const roots = [await tools.directory('album'), named('dropped/.haul/sums/x'), named('dropped/x'), { path: 'dropped/.haul-y' }, named('.haul-x')];
      const job = jobs.upload({ roots, root: 0, to: 'in', title: 'album' });
      const texts = [];
      job.addEventListener('change', () => texts.push(job.leftOut));
      return { ended: await tools.ended(job), leftOut: [...new Set(texts)], total: job.total };
    });
    assert.deepEqual(ended, { ok: true, done: 2, same: 0, failed: 0, level: 'durable', text: '', failures: [] });
    assert.deepEqual(digests(server.roots.data), { 'in/album/deep/.haulier': sha256(bytes(2, 20)), 'in/dropped/x': sha256(bytes(1, 10)) });
    assert.deepEqual(total, { files: 2, bytes: 30, isWhole: true });
    // A folder without anything else is created.
    assert.deepEqual(readdirSync(join(server.roots.data, 'in/album')).sort(), ['deep', 'only']);
    const [named] = leftOut.filter((path) => path !== '');
    assert.match(named, /^album\/(.*\/)?\.haul/i);
    assert.equal(leftOut.filter((path) => path !== '').length, 1);
    // The row is drawn after the job has ended.
    await page.locator('.job-left-out:not(:empty)').waitFor();
    assert.equal(await page.locator('.job-left-out').textContent(), `${named}: Surehaul's own files (.haul and .haul-*) are left out`);
    await shot(page, 'left-out');
  }));

// Regression: files were 0644 and folders 0700, whatever the umask of the server.
for (const umask of ['027', '002', '077']) {
  test(`files and folders of an upload follow the umask ${umask} of the server`, () =>
    inWindow({ data: {} }, async ({ server, page }) => {
      const ended = await page.evaluate(async () => {
        const { tools, jobs } = window;
        await tools.plant('album/deep/one', 1, 10);
        await tools.directory('album/empty');
        return tools.ended(jobs.upload({ roots: [await tools.directory('album'), tools.file('single', 2, 5_000_000)], root: 0, to: 'in/new', title: 'modes' }));
      });
      assert.equal(ended.ok, true, JSON.stringify(ended));
      const found = Object.fromEntries(readdirSync(server.roots.data, { recursive: true }).map((name) => [name, statSync(join(server.roots.data, name)).mode & 0o7777]));
      const [folder, file] = [0o777, 0o666].map((mode) => mode & ~Number.parseInt(umask, 8));
      assert.deepEqual(found, {
        in: folder,
        'in/new': folder,
        'in/new/album': folder,
        'in/new/album/deep': folder,
        'in/new/album/deep/one': file,
        'in/new/album/empty': folder,
        'in/new/single': file,
      });
    }, { side: { within: ['sh', '-c', `umask ${umask} && exec "$@"`, 'sh'] } }));
}

test('a root for writing takes uploads, and a root for reading refuses them', () =>
  inWindow({ drop: { access: 'write' }, shelf: { access: 'read' } }, async ({ server, page }) => {
    write(join(server.roots.shelf, 'book'), bytes(2, 1000));
    const ended = await page.evaluate(async () => {
      const { tools, jobs } = window;
      const upload = (root) => tools.ended(jobs.upload({ roots: [tools.file('new', 1, 100)], root, to: '', title: 'new' }));
      const download = (root, path) => tools.ended(jobs.download({ root, paths: [path], folder: null, title: path }));
      return { toDrop: await upload(0), toShelf: await upload(1), ofShelf: await download(1, 'book'), ofDrop: await download(0, 'new') };
    });
    assert.equal(ended.toDrop.ok, true);
    assert.equal(ended.ofShelf.ok, true);
    assert.equal(ended.toShelf.ok, false);
    assert.match(ended.toShelf.text, /refuse/);
    assert.equal(ended.ofDrop.ok, false);
    assert.match(ended.ofDrop.text, /refuse/);
    assert.deepEqual(digests(server.roots.drop), { new: sha256(bytes(1, 100)) });
    assert.deepEqual(Object.keys(digests(server.roots.shelf)), ['book']);
  }));

test('a server without space fails the file with a reason, and a retry sends it when there is space', () =>
  inWindow({ data: { quota: '4M' } }, async ({ server, page }) => {
    const ended = await page.evaluate(async () => {
      const { tools, jobs } = window;
      return tools.ended(jobs.upload({ roots: [tools.file('small', 1, 1000), tools.file('large', 2, 9_000_000)], root: 0, to: '', title: 'two' }));
    });
    assert.equal(ended.ok, false);
    assert.match(`${ended.text} ${ended.failures.map(({ text }) => text)}`, /quota/);
    assert.ok(!Object.keys(digests(server.roots.data)).includes('large'));
    await page.getByRole('button', { name: /^Try again/ }).waitFor();
  }));
