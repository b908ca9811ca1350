// The two panes of the page in a browser: keys, names, order, changes, accessibility.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { axeSource } from "./needs.mjs";
import {
  cursorOf,
  enter,
  folder,
  givePicker,
  namesIn,
  newCode,
  openAt,
  openPage,
  openPicked,
  rowOf,
  waitForCursor,
  waitForNames,
  waitForStatus,
  waitForSummary,
  world,
  start,
  stop,
} from "./panes-world.mjs";
import { shot } from "./world.mjs";

before(start);
after(stop);

test("every key of the list does what the help says", async (t) => {
  folder("keys", { "a-1": "1", "a-2": "22", "a-10": "333", b: "4444" });
  folder("keys/inner", { deep: "x" });
  const page = await openAt(t, "keys");
  await waitForNames(page, "right", ["inner", "a-1", "a-2", "a-10", "b"]);
  const press = (...keys) =>
    keys.reduce((done, key) => done.then(() => page.keyboard.press(key)), Promise.resolve());
  assert.equal(await cursorOf(page, "right"), "inner");
  for (const [key, name] of [
    ["ArrowDown", "a-1"],
    ["End", "b"],
    ["ArrowUp", "a-10"],
    ["Home", "inner"],
    ["PageDown", "b"],
    ["PageUp", "inner"],
    ["b", "b"],
  ]) {
    await press(key);
    await waitForCursor(page, "right", name);
  }
  await press("Home", "ArrowDown", "Space");
  await waitForSummary(page, "right", "1 of 5 entries selected, 1 B of 10 B");
  await press("Space", "Insert", "Insert");
  await waitForCursor(page, "right", "a-10");
  await waitForSummary(page, "right", "2 of 5 entries selected, 3 B of 10 B");
  await press("*");
  await waitForSummary(page, "right", "3 of 5 entries selected, 7 B of 10 B");
  await press("Escape");
  await waitForSummary(page, "right", "5 entries, 10 B");
  await press("Shift+ArrowDown");
  await waitForSummary(page, "right", "2 of 5 entries selected, 7 B of 10 B");
  await press("Control+a");
  await waitForSummary(page, "right", "5 of 5 entries selected, 10 B of 10 B");
  await press("Escape", "Home", "Enter");
  await waitForNames(page, "right", ["deep"]);
  await press("Backspace");
  await waitForCursor(page, "right", "inner");
  await press("/");
  await page.keyboard.type("A-1");
  await waitForNames(page, "right", ["a-1", "a-10"]);
  await press("Enter", "Escape");
  await waitForNames(page, "right", ["inner", "a-1", "a-2", "a-10", "b"]);
  await press("Control+f");
  assert.equal(await page.evaluate(() => document.activeElement.type), "search");
  await press("Escape", "Tab");
  assert.equal(await page.evaluate(() => document.activeElement.closest(".pane").id), "left");
  await press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.closest(".pane").id), "right");
  await press("Shift+Tab");
  assert.equal(await page.evaluate(() => document.activeElement.matches("#right .crumbs button")), true);
  await page.locator("#right .grid").focus();
  writeFileSync(join(world.data, "keys/new"), "");
  await press("F9");
  await waitForNames(page, "right", ["inner", "a-1", "a-2", "a-10", "b", "new"]);
  for (const key of ["?", "F1"]) {
    await press(key);
    await page.locator("dialog h2", { hasText: "Keys" }).waitFor();
    await press("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
  }
});

test("names of all scripts and with HTML are shown as text", async (t) => {
  const names = [
    "<img src=x onerror=window.hit=1>",
    "&amp; \"quoted\" 'x'",
    "Übung",
    "Ελλάδα",
    "日本語",
    "עברית",
    "مرحبا",
    "हिन्दी",
    "👩‍🚀.png",
    "a  b",
  ];
  folder(
    "names",
    Object.fromEntries([...names, "x\u202egpj.exe", "bell\u0007", "line\nbreak"].map((name) => [name, ""])),
  );
  writeFileSync(Buffer.concat([Buffer.from(join(world.data, "names/latin-")), Buffer.from([0xe9])]), "");
  symlinkSync("/nowhere", join(world.data, "names/link"));
  const page = await openAt(t, "names");
  const expected = [...names, "x‹U+202E›gpj.exe", "bell␇", "line␊break", "latin-\ufffd", "link"];
  assert.deepEqual((await namesIn(page, "right")).sort(), expected.sort());
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assert.equal(await page.locator("#right .space img").count(), 0);
  assert.equal(await rowOf(page, "right", "link").locator(".size").textContent(), "link");
  // The bytes of a name that is not UTF-8 reach the server unchanged.
  await rowOf(page, "right", "latin-\ufffd").click();
  await page.keyboard.press("F2");
  await page.fill("dialog input", "latin");
  await page.keyboard.press("Enter");
  await waitForStatus(page, "Renamed latin-\ufffd to latin.");
  assert.ok(existsSync(join(world.data, "names/latin")));
});

test("the columns sort in both directions with folders first", async (t) => {
  folder("sorted", { n10: "1", n9: "22", N11: "333", ".dot": "" });
  folder("sorted/z");
  const page = await openAt(t, "sorted");
  await waitForNames(page, "right", ["z", "n9", "n10", "N11"]);
  const sort = (name) => page.click(`#right .head .${name} button`);
  await sort("name");
  await waitForNames(page, "right", ["z", "N11", "n10", "n9"]);
  assert.equal(await page.getAttribute("#right .head .name", "aria-sort"), "descending");
  await sort("size");
  await waitForNames(page, "right", ["z", "n10", "n9", "N11"]);
  await sort("size");
  await waitForNames(page, "right", ["z", "N11", "n9", "n10"]);
  await page.focus("#right .grid");
  await page.keyboard.press("F3");
  await page.keyboard.press("F3");
  await waitForNames(page, "right", ["z", "n9", "n10", "N11"]);
  await page.keyboard.press("F3");
  await page.keyboard.press("Shift+F3");
  await waitForNames(page, "right", ["z", "N11", "n9", "n10"]);
  await page.keyboard.press(".");
  await waitForNames(page, "right", ["z", "N11", "n9", "n10", ".dot"]);
  await page.keyboard.press(".");
  await waitForSummary(page, "right", "4 entries, 6 B · 1 not shown");
});

test("folders are created and entries are renamed and deleted at the server", async (t) => {
  const path = folder("changes", { old: "1", other: "2", "first.txt": "" });
  const page = await openAt(t, "changes");
  await page.keyboard.press("F7");
  await page.keyboard.type("a/b");
  await page.keyboard.press("Enter");
  assert.equal(
    await page.evaluate(() => document.querySelector("dialog input").validationMessage),
    "A name cannot contain a slash.",
  );
  await page.fill("dialog input", "made");
  await page.keyboard.press("Enter");
  await waitForCursor(page, "right", "made");
  assert.ok(existsSync(join(path, "made")));
  await rowOf(page, "right", "first.txt").click();
  await page.keyboard.press("F2");
  // The ending of the name is not selected, so it stays.
  await page.keyboard.type("last");
  await page.keyboard.press("Enter");
  await waitForCursor(page, "right", "last.txt");
  await page.keyboard.press("F2");
  await page.fill("dialog input", "old");
  await page.keyboard.press("Enter");
  await page.locator("#status.error").waitFor();
  assert.equal(readFileSync(join(path, "old"), "utf8"), "1", "an entry of that name stays");
  writeFileSync(join(path, "made/inside"), "");
  await page.keyboard.press("Home");
  await page.keyboard.press("Insert");
  await rowOf(page, "right", "other").click({ modifiers: ["Control"] });
  await page.keyboard.press("Delete");
  await page.locator("dialog h2", { hasText: "Delete 2 entries?" }).waitFor();
  await page.keyboard.press("Enter");
  await page.locator("dialog").waitFor({ state: "detached" });
  assert.ok(existsSync(join(path, "other")), "the first button cancels");
  await page.keyboard.press("F8");
  await page.click("dialog button.danger");
  await waitForNames(page, "right", ["last.txt", "old"]);
  assert.deepEqual(readdirSync(path).sort(), ["last.txt", "old"]);
});

/** Regression: the contents of a directory that took the name of a file were deleted. */
test("F8 on this computer deletes no directory that was listed as a file", async (t) => {
  folder("remote");
  const page = await openAt(t, "remote");
  await givePicker(page, "to-delete", { x: "", y: "" });
  await openPicked(page, "to-delete");
  await page.evaluate(async () => {
    const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("to-delete");
    await top.removeEntry("x");
    await (await top.getDirectoryHandle("x", { create: true })).getFileHandle("inside", { create: true });
  });
  await rowOf(page, "left", "x").click();
  await page.keyboard.press("F8");
  await page.click("dialog button.danger");
  await page.locator("#status.error").waitFor();
  await enter(page, "left", "x");
  await waitForNames(page, "left", ["inside"]);
});

test("a wrong code is refused, and an ended session can continue", async (t) => {
  folder("session", { file: "" });
  const page = await openAt(t, "session", { isOwn: true });
  await page.evaluate(() => {
    const headers = { "X-Haul-Token": sessionStorage.getItem("haul-token") };
    return fetch("/session", { method: "DELETE", headers });
  });
  await page.keyboard.press("F9");
  await page.waitForSelector("#sign-in:not([hidden])");
  await page.fill("#code", "0".repeat(32));
  await page.keyboard.press("Enter");
  await waitForStatus(page, "the code is wrong");
  assert.ok(await page.isVisible("#sign-in"));
  const listed = page.waitForResponse((response) => response.url().includes("/tree?") && response.ok());
  await page.fill("#code", await newCode());
  await page.keyboard.press("Enter");
  await listed;
  await page.waitForSelector("#files:not([hidden])");
  await waitForNames(page, "right", ["file"]);
  await page.click("#share");
  const link = await page.inputValue("dialog input");
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  const other = await openPage(t, { link });
  await other.click("#sign-out");
  await waitForStatus(other, "Signed out.");
  await page.click("#sign-out");
  await waitForStatus(page, "Signed out.");
  assert.ok(await page.isHidden("#files"));
});

// Regression: the server delays the refusal of a wrong code, and its message replaced later ones.
test("a late refusal of a code keeps the message of the sign-out", async (t) => {
  folder("refused");
  const page = await openAt(t, "refused", { isOwn: true });
  await page.click("#sign-out");
  await waitForStatus(page, "Signed out.");
  const [wrong, right] = ["0".repeat(32), await newCode()];
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  await page.route("**/session", async (route) => {
    if (route.request().postDataJSON()?.code !== wrong) {
      return route.continue();
    }
    await released;
    await route.fulfill({ status: 403, json: { error: "the code is wrong" } });
  });
  const enterCode = async (code) => {
    const requested = page.waitForRequest(/\/session$/);
    await page.fill("#code", code);
    await page.keyboard.press("Enter");
    await requested;
  };
  await enterCode(wrong);
  await enterCode(right);
  await page.click("#sign-out");
  await waitForStatus(page, "Signed out.");
  const refused = page.waitForResponse((response) => response.status() === 403);
  release();
  await (await refused).finished();
  // The answer to a later request comes after the page has taken the refusal.
  await page.evaluate(() => fetch("/session").then((response) => response.text()));
  assert.equal(await page.locator("#status").textContent(), "Signed out.");
  assert.ok(await page.isVisible("#sign-in"));
});

// Regression: the message of a request that was in progress replaced that of the sign-out.
test("a request that outlives its session keeps the message of the sign-out", async (t) => {
  folder("outlived");
  const page = await openAt(t, "outlived", { isOwn: true });
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  await page.route(/\/tree\?/, async (route) => {
    await released;
    await route.continue();
  });
  const requested = page.waitForRequest(/\/tree\?/);
  await page.keyboard.press("F9");
  await requested;
  await page.click("#sign-out");
  await waitForStatus(page, "Signed out.");
  const answered = page.waitForResponse(/\/tree\?/);
  release();
  assert.equal((await answered).status(), 401);
  await page.waitForSelector("#right .grid[aria-busy=false]", { state: "attached" });
  assert.equal(await page.locator("#status").textContent(), "Signed out.");
});

test("at 400 pixels one pane is visible and tabs change it", async (t) => {
  folder("narrow", { file: "1" });
  const page = await openAt(t, "narrow", { viewport: { width: 400, height: 800 } });
  assert.ok(await page.isHidden("#left"));
  assert.ok(await page.isVisible("#right"));
  await page.click("#tabs button:first-child");
  assert.ok(await page.isVisible("#left"));
  assert.ok(await page.isHidden("#right"));
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 400, `${width}`);
});

test("a finger opens folders and selects by the drawing of an entry", async (t) => {
  folder("touched", { a: "1", b: "22" });
  folder("touched/sub", { inside: "" });
  const page = await openPage(t, { viewport: { width: 400, height: 800 }, hasTouch: true, isMobile: true });
  await rowOf(page, "right", "touched").tap();
  await waitForNames(page, "right", ["sub", "a", "b"]);
  await rowOf(page, "right", "a").locator(".mark").tap();
  await rowOf(page, "right", "b").locator(".mark").tap();
  await waitForSummary(page, "right", "2 of 3 entries selected, 3 B of 3 B");
  await shot(page, "panes-touch");
  const { height } = await rowOf(page, "right", "a").boundingBox();
  assert.ok(height >= 40, `${height}`);
  await rowOf(page, "right", "sub").tap();
  await waitForNames(page, "right", ["inside"]);
  await page.tap("#right .crumbs button:first-child");
  await waitForCursor(page, "right", "touched");
});

for (const colorScheme of ["light", "dark"]) {
  test(`axe has no serious finding in ${colorScheme}`, async (t) => {
    folder("axe", { "file.txt": "1", "other.txt": "2", ".hidden": "" });
    folder("axe/sub");
    const page = await openAt(t, "axe", { colorScheme, reducedMotion: "reduce", isOwn: true });
    await givePicker(page, "axe-local", { "local.txt": "x", "inner/y": "" });
    const check = async (name) => {
      await shot(page, `panes-${name}-${colorScheme}`);
      await page.evaluate(axeSource());
      const { violations } = await page.evaluate(() =>
        window.axe.run(document, { resultTypes: ["violations"] }),
      );
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      assert.deepEqual(
        serious.map(({ id, nodes }) => [id, nodes[0].html, nodes[0].failureSummary]),
        [],
        name,
      );
    };
    await check("start");
    await openPicked(page, "axe-local");
    await page.keyboard.press("Insert");
    await check("selection");
    await page.keyboard.press("F1");
    await check("keys");
    await page.keyboard.press("Escape");
    await page.keyboard.press("F8");
    await check("delete");
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("nothing");
    await check("filter");
    await page.setViewportSize({ width: 400, height: 800 });
    await check("narrow");
    await page.click("#sign-out");
    await check("sign-in");
  });
}

test("the choice of colors outlives a reload", async (t) => {
  const page = await openPage(t);
  const scheme = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
  await page.click("#theme");
  assert.equal(await scheme(), "light");
  await page.click("#theme");
  assert.equal(await scheme(), "dark");
  await page.reload();
  assert.equal(await scheme(), "dark");
});
