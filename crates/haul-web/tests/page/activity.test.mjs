// The activity of the server: counters and plot.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, before, test } from 'node:test';
import { parseMetrics, storageOf } from '../../page/metrics.js';
import { Server, Visitor, launch, shot } from './world.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

test('lines of OpenMetrics become values by their names and labels', () => {
  const values = parseMetrics('# TYPE a counter\na_total 7\nb{kind="x y"} 2\n# EOF\n');
  assert.deepEqual({ ...values }, { a_total: 7, 'b{kind="x y"}': 2 });
});

test('the storage of directories is read by names with any characters', () => {
  const name = 'a "b" \\ c';
  const label = name.replace(/["\\]/g, '\\$&');
  const values = parseMetrics(`haul_storage_free_bytes{root="${label}"} 7\nhaul_storage_busy_milliseconds_total{root="${label}"} 9\n`);
  assert.deepEqual([...storageOf(values)], [[name, { free_bytes: 7, busy_milliseconds: 9 }]]);
});

test('the counters of the server grow with an upload, and jobs of its user are hidden', async () => {
  const server = await Server.start({ data: {} });
  const visitor = await Visitor.create(browser);
  try {
    const page = await visitor.signIn(server);
    const toggle = page.getByRole('button', { name: 'Activity' });
    await toggle.click();
    const tile = (label) => page.locator('#activity dl div').filter({ has: page.getByText(label, { exact: true }) }).locator('dd');
    await tile('Browsers').filter({ hasText: /^1$/ }).waitFor();
    assert.equal(await tile('Verified data').textContent(), '0 B');
    await page.locator('#file-input').setInputFiles({ name: 'three', mimeType: 'text/plain', buffer: Buffer.alloc(3 << 20) });
    await page.locator('#left').getByText('three').click();
    await page.keyboard.press('F5');
    await tile('Verified data').filter({ hasText: /^3\.0 MiB$/ }).waitFor();
    await tile('Files').filter({ hasText: /^1 \(0 failed\)$/ }).waitFor();
    await page.locator('#activity .plot-figure').waitFor();
    const table = (caption) => page.locator('#activity table', { hasText: caption });
    assert.equal(await table('Jobs of this user').isHidden(), true);
    await table('Storage of the directories').getByRole('cell', { name: 'data', exact: true }).waitFor();
    assert.match(await table('Storage of the directories').innerText(), /[\d.]+ [GT]iB/);
    await shot(page, 'activity');
    await toggle.click();
    assert.equal(await page.locator('#activity').isHidden(), true);
    assert.deepEqual(visitor.errors, []);
  } finally {
    await visitor.close();
    await server.close();
  }
});
