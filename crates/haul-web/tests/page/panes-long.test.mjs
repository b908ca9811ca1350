// Long and hostile listings in a pane.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { folder, openPage, rowOf, waitForStatus, waitForSummary, start, stop } from "./panes-world.mjs";

before(start);
after(stop);

test("a list of 100,000 names scrolls without a long task", async (t) => {
  const count = 100_000;
  const path = folder("many");
  for (let number = 0; number < count; number += 1) {
    writeFileSync(join(path, `entry ${number}`), "");
  }
  const page = await openPage(t);
  await rowOf(page, "right", "many").dblclick();
  await page.waitForFunction(() => document.querySelector("#right .grid").ariaRowCount === "100001", null, {
    timeout: 60_000,
  });
  await waitForSummary(page, "right", "100,000 entries, 0 B");
  assert.ok((await page.locator("#right .row").count()) < 100);
  // Returns the steps of a walk through the list in which a task of more than 50 ms began.
  const walk = () =>
    page.evaluate(async () => {
      const tasks = [];
      const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries()));
      observer.observe({ type: "longtask" });
      const grid = document.querySelector("#right .grid");
      const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
      const starts = [];
      for (let step = 0; step <= 120; step += 1) {
        starts.push(performance.now());
        grid.scrollTop = ((grid.scrollHeight - grid.clientHeight) * step) / 120;
        await frame();
      }
      await frame();
      tasks.push(...observer.takeRecords());
      observer.disconnect();
      return tasks.map((task) => starts.findLastIndex((start) => start <= task.startTime));
    });
  // A busy machine stops the page anywhere; a pause of the page itself is at the same step each time.
  let steps = await walk();
  for (let attempt = 0; attempt < 5 && steps.length > 0; attempt += 1) {
    const again = new Set(await walk());
    steps = steps.filter((step) => again.has(step));
  }
  assert.deepEqual(steps, []);
  await page.waitForFunction(() =>
    [...document.querySelectorAll("#right .space .row")].some(
      (row) => row.ariaRowIndex === "100001" && row.textContent.startsWith("entry 99999"),
    ),
  );
  await page.focus("#right .grid");
  await page.keyboard.press("Control+a");
  await waitForSummary(page, "right", "100,000 of 100,000 entries selected, 0 B of 0 B");
  await page.keyboard.press("Shift+F3");
  await page.waitForSelector("#right .head [aria-sort=descending]");
  await page.keyboard.press("End");
  await page.waitForFunction(() =>
    document.querySelector("#right .row[aria-rowindex='100001']")?.textContent.startsWith("entry 0"),
  );
});

test("a hostile listing without an end stays bounded", async (t) => {
  const page = await openPage(t);
  let [pages, isStuck] = [0, false];
  await page.route(/\/tree\?/, (route) => {
    pages += 1;
    const names = isStuck
      ? []
      : Array.from({ length: 5000 }, (_, at) => ({
          name: `${pages}-${at}`,
          kind: "file",
          size: 1,
          mtime: 0,
          mode: 0,
        }));
    return route.fulfill({ json: { entries: names, next: `${pages}` } });
  });
  await page.focus("#right .grid");
  await page.keyboard.press("F9");
  const more = page.locator("#right .more");
  await more.waitFor({ timeout: 30_000 });
  assert.equal(pages, 21);
  assert.equal(await more.textContent(), "105,000 names loaded. Show more");
  await more.click();
  await page.waitForFunction(
    () => document.querySelector("#right .more").textContent.startsWith("205,000"),
    null,
    { timeout: 30_000 },
  );
  assert.equal(pages, 41);
  isStuck = true;
  await page.keyboard.press("F9");
  await waitForStatus(page, "the server sent a listing without an end");
  assert.equal(pages, 42);
});

test("a hostile answer without an end is refused", async (t) => {
  const page = await openPage(t);
  // Neither the body nor its cancellation ends.
  await page.evaluate(() => {
    const { fetch } = window;
    window.restore = () => (window.fetch = fetch);
    window.fetch = (path, options) => {
      const pull = (body) => body.enqueue(new Uint8Array(1 << 20).fill(91));
      const endless = new ReadableStream({ pull, cancel: () => new Promise(() => {}) });
      return /\/tree\?/.test(path) ? Promise.resolve(new Response(endless)) : fetch(path, options);
    };
  });
  await page.keyboard.press("F9");
  await waitForStatus(page, "the server sent an answer of more than 16777216 bytes");
  await page.evaluate(() => window.restore());
  await page.keyboard.press("F9");
  await page.waitForFunction(
    () =>
      document.querySelector("#right .grid").ariaBusy === "false" &&
      document.querySelector("#right .notice").hidden,
  );
});
