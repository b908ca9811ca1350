// The activity of the server: counters and plot.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, before, test } from 'node:test';
import { parseMetrics } from '../../page/activity.js';
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
    assert.equal(await page.locator('#activity table').isHidden(), true);
    await shot(page, 'activity');
    await toggle.click();
    assert.equal(await page.locator('#activity').isHidden(), true);
    assert.deepEqual(visitor.errors, []);
  } finally {
    await visitor.close();
    await server.close();
  }
});
