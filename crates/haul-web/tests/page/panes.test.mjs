// The two panes of the page in a browser, on a real server.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, existsSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { axeSource } from "./needs.mjs";
import { Server, Visitor, launch, shot } from "./world.mjs";

let browser;
let server;
/** Session that gives codes and a cookie to the visitors of all tests. */
let first;
let data;
before(async () => {
  browser = await launch();
  server = await Server.start({ data: {}, inbox: { access: "write" } });
  mkdirSync(join(server.roots.data, "folder"));
  data = server.roots.data;
  first = await Visitor.create(browser);
  await first.signIn(server);
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Returns a one-time code. */
const newCode = () =>
  first.context.pages()[0].evaluate(async () => {
    const { csrf } = await (await fetch("/session")).json();
    return (await (await fetch("/code", { method: "POST", headers: { "X-Haul-CSRF": csrf } })).json()).code;
  });

/**
 * Opens the page in a browser of its own. `isOwn` gives it a session of its own, of which a server
 * has only 16.
 */
async function openPage(t, { isOwn = false, link, ...options } = {}) {
  const visitor = await Visitor.create(browser, options);
  t.after(async () => {
    await visitor.close();
    assert.deepEqual(visitor.errors, []);
  });
  visitor.context.setDefaultTimeout(20_000);
  const { origin } = new URL(server.link);
  if (!isOwn && link === undefined) {
    await visitor.context.addCookies(await first.context.cookies());
  }
  const page = await visitor.open(link ?? (isOwn ? `${origin}/#${await newCode()}` : `${origin}/`));
  await page.waitForSelector("#right .row.directory");
  return page;
}

/** Creates a directory of the served one, with files by name. */
function folder(name, files = {}) {
  mkdirSync(join(data, name), { recursive: true });
  for (const [file, contents] of Object.entries(files)) {
    writeFileSync(join(data, name, file), contents);
  }
  return join(data, name);
}

/** Lets `showDirectoryPicker` return a folder of the browser's private storage. */
async function givePicker(page, name, files = {}) {
  await page.evaluate(async ([name, files]) => {
    const top = await navigator.storage.getDirectory();
    const picked = await top.getDirectoryHandle(name, { create: true });
    for (const [path, contents] of Object.entries(files)) {
      const parts = path.split("/");
      const file = parts.pop();
      let directory = picked;
      for (const part of parts) {
        directory = await directory.getDirectoryHandle(part, { create: true });
      }
      const stream = await (await directory.getFileHandle(file, { create: true })).createWritable();
      await stream.write(contents);
      await stream.close();
    }
    window.showDirectoryPicker = async () => picked;
  }, [name, files]);
}

/** Opens the page and the folder `name` of the server in the right pane. */
async function openAt(t, name, options = {}) {
  const page = await openPage(t, options);
  await enter(page, "right", name);
  return page;
}

const rowOf = (page, side, name) => page.locator(`#${side} .space .row`).filter({ has: page.locator("bdi").getByText(name, { exact: true }) });

async function enter(page, side, name) {
  await rowOf(page, side, name).dblclick();
  await page.waitForFunction(
    ([side, name]) => {
      const pane = document.getElementById(side);
      return pane.querySelector(".crumbs").lastChild.textContent === name && pane.querySelector(".grid").ariaBusy === "false";
    },
    [side, name],
  );
}

/** Opens the folder of `givePicker` in the left pane. */
async function openPicked(page, name) {
  await page.click("#left button[aria-label='Open a folder of this computer']");
  await page.waitForFunction((name) => {
    const pane = document.getElementById("left");
    return pane.querySelector(".crumbs").lastChild?.textContent === name && pane.querySelector(".grid").ariaBusy === "false";
  }, name);
}

/** Names of the rows in the document, in order of their index. */
const namesIn = (page, side) =>
  page.evaluate((side) => {
    const rows = [...document.querySelectorAll(`#${side} .space .row:not([hidden])`)];
    rows.sort((one, other) => one.ariaRowIndex - other.ariaRowIndex);
    return rows.map((row) => row.querySelector("bdi").textContent);
  }, side);

/** Waits until the rows have these names. */
async function waitForNames(page, side, names) {
  try {
    await page.waitForFunction(
      ([side, names]) => {
        const rows = [...document.querySelectorAll(`#${side} .space .row:not([hidden])`)];
        rows.sort((one, other) => one.ariaRowIndex - other.ariaRowIndex);
        return JSON.stringify(rows.map((row) => row.querySelector("bdi").textContent)) === JSON.stringify(names);
      },
      [side, names],
      { timeout: 15_000 },
    );
  } catch (error) {
    assert.deepEqual(await namesIn(page, side), names);
    throw error;
  }
}

const cursorOf = (page, side) => page.locator(`#${side} .row.cursor bdi`).textContent();
const waitForCursor = (page, side, name) =>
  page.waitForFunction(([side, name]) => document.querySelector(`#${side} .row.cursor bdi`)?.textContent === name, [side, name]);
const waitForStatus = (page, text) => page.locator("#status", { hasText: text }).waitFor();
const summaryOf = (page, side) => page.locator(`#${side} .summary`).textContent();
const waitForSummary = (page, side, text) =>
  page.waitForFunction(([side, text]) => document.querySelector(`#${side} .summary`).textContent === text, [side, text]);

test("every key of the list does what the help says", async (t) => {
  folder("keys", { "a-1": "1", "a-2": "22", "a-10": "333", b: "4444" });
  folder("keys/inner", { deep: "x" });
  const page = await openAt(t, "keys");
  await waitForNames(page, "right", ["inner", "a-1", "a-2", "a-10", "b"]);
  const press = (...keys) => keys.reduce((done, key) => done.then(() => page.keyboard.press(key)), Promise.resolve());
  assert.equal(await cursorOf(page, "right"), "inner");
  for (const [key, name] of [["ArrowDown", "a-1"], ["End", "b"], ["ArrowUp", "a-10"], ["Home", "inner"], ["PageDown", "b"], ["PageUp", "inner"], ["b", "b"]]) {
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
  writeFileSync(join(data, "keys/new"), "");
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
    "<img src=x onerror=window.hit=1>", "&amp; \"quoted\" 'x'", "Übung", "Ελλάδα", "日本語", "עברית", "مرحبا", "हिन्दी", "👩‍🚀.png", "a  b",
  ];
  folder("names", Object.fromEntries([...names, "x\u202egpj.exe", "bell\u0007", "line\nbreak"].map((name) => [name, ""])));
  writeFileSync(Buffer.concat([Buffer.from(join(data, "names/latin-")), Buffer.from([0xe9])]), "");
  symlinkSync("/nowhere", join(data, "names/link"));
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
  assert.ok(existsSync(join(data, "names/latin")));
});

test("a download names an entry that a browser cannot store", async (t) => {
  folder("refused");
  writeFileSync(Buffer.concat([Buffer.from(join(data, "refused/bytes-")), Buffer.from([0xff])]), "");
  symlinkSync("/nowhere", join(data, "refused/link"));
  const page = await openAt(t, "refused");
  await givePicker(page, "refused-target");
  await openPicked(page, "refused-target");
  await rowOf(page, "right", "link").click();
  await page.keyboard.press("F5");
  await waitForStatus(page, "cannot download link");
  await rowOf(page, "right", "bytes-\ufffd").click();
  await page.keyboard.press("F5");
  await waitForStatus(page, "cannot download bytes-\ufffd: its name is not UTF-8");
});

test("the columns sort in both directions with folders first", async (t) => {
  folder("sorted", { "n10": "1", "n9": "22", "N11": "333", ".dot": "" });
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
  assert.equal(await page.evaluate(() => document.querySelector("dialog input").validationMessage), "A name cannot contain a slash.");
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

test("F5 uploads, asks before it replaces, and skips", async (t) => {
  const path = folder("uploads", { "same.txt": "before" });
  const page = await openAt(t, "uploads");
  await givePicker(page, "to-send", { "same.txt": "after", "new.txt": "new", "deep/er/file": "deep" });
  await openPicked(page, "to-send");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await page.locator("dialog h2", { hasText: "1 name exists already" }).waitFor();
  await page.click("dialog button[value=skip]");
  await waitForStatus(page, "is complete");
  await waitForNames(page, "right", ["deep", "new.txt", "same.txt"]);
  assert.equal(readFileSync(join(path, "same.txt"), "utf8"), "before");
  assert.equal(readFileSync(join(path, "deep/er/file"), "utf8"), "deep");
  await rowOf(page, "left", "same.txt").click();
  await page.keyboard.press("F5");
  await page.click("dialog button[value=replace]");
  await waitForStatus(page, "The upload of same.txt to data/uploads is complete");
  assert.equal(readFileSync(join(path, "same.txt"), "utf8"), "after");
});

test("an uploaded file has the permissions of a new file", async (t) => {
  const path = folder("modes");
  const page = await openAt(t, "modes");
  await givePicker(page, "modes-local", { "new.txt": "x" });
  await openPicked(page, "modes-local");
  await page.keyboard.press("F5");
  await waitForNames(page, "right", ["new.txt"]);
  await waitForStatus(page, "is complete");
  assert.equal(statSync(join(path, "new.txt")).mode & 0o777, 0o666 & ~process.umask());
});

test("F5 downloads into a folder that the user picks", async (t) => {
  folder("downloads", { "one.txt": "first" });
  folder("downloads/sub", { two: "second" });
  const page = await openAt(t, "downloads");
  await givePicker(page, "received");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await waitForStatus(page, "is complete");
  await waitForNames(page, "left", ["sub", "one.txt"]);
  const text = await page.evaluate(async () => {
    const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("received");
    const sub = await top.getDirectoryHandle("sub");
    const read = async (directory, name) => (await (await directory.getFileHandle(name)).getFile()).text();
    return [await read(top, "one.txt"), await read(sub, "two")];
  });
  assert.deepEqual(text, ["first", "second"]);
});

test("without a folder downloads go to the browser's storage, which saves and moves files", async (t) => {
  const path = folder("stored", { "kept.txt": "kept", "moved.txt": "moved" });
  const page = await openAt(t, "stored");
  await page.evaluate(() => {
    delete window.showDirectoryPicker;
    window.showDirectoryPicker = undefined;
  });
  await rowOf(page, "right", "kept.txt").click();
  await page.keyboard.press("F5");
  await waitForNames(page, "left", ["kept.txt"]);
  await waitForStatus(page, "is complete");
  await rowOf(page, "right", "moved.txt").click();
  await page.keyboard.press("F6");
  await waitForStatus(page, "The source is deleted.");
  assert.deepEqual(readdirSync(path), ["kept.txt"]);
  await waitForNames(page, "left", ["kept.txt", "moved.txt"]);
  for (const [side, name, contents] of [["left", "moved.txt", "moved"], ["right", "kept.txt", "kept"]]) {
    await rowOf(page, side, name).click();
    const [saved] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
    assert.equal(saved.suggestedFilename(), name);
    assert.equal(readFileSync(await saved.path(), "utf8"), contents);
  }
});

test("F6 deletes the source after the upload, but not what came later", async (t) => {
  const path = folder("moves");
  const page = await openAt(t, "moves");
  await givePicker(page, "to-move", { "tree/one": "1", "tree/two": "2", "single": "s" });
  await openPicked(page, "to-move");
  await rowOf(page, "left", "single").click();
  await page.keyboard.press("F6");
  await waitForStatus(page, "The source is deleted.");
  await waitForNames(page, "left", ["tree"]);
  assert.equal(readFileSync(join(path, "single"), "utf8"), "s");
  // A file that is new when the job has ended stays, with its directories.
  await page.evaluate(async () => {
    const { Jobs } = await import("/jobs.js");
    const { upload } = Jobs.prototype;
    Jobs.prototype.upload = function (order) {
      const job = upload.call(this, order);
      const { addEventListener } = job;
      job.addEventListener = (type, listener) => addEventListener.call(job, type, async (event) => {
        if (type === "ended") {
          const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("to-move");
          await (await top.getDirectoryHandle("tree")).getFileHandle("late", { create: true });
        }
        listener(event);
      });
      return job;
    };
  });
  await rowOf(page, "left", "tree").click();
  await page.keyboard.press("F6");
  await waitForStatus(page, "changed or cannot be deleted, so they stay: tree");
  assert.equal(readFileSync(join(path, "tree/two"), "utf8"), "2");
  await enter(page, "left", "tree");
  await waitForNames(page, "left", ["late"]);
});

test("two panes on the server move by a rename and refuse a copy with a reason", async (t) => {
  const path = folder("both", { file: "1" });
  folder("both/target", { file: "2" });
  const page = await openAt(t, "both");
  await page.selectOption("#left select", "server-0");
  await enter(page, "left", "both");
  await enter(page, "left", "target");
  await rowOf(page, "right", "file").click();
  const copy = page.locator("#keys [data-command=copy]");
  assert.equal(await copy.getAttribute("aria-disabled"), "true");
  assert.match(await copy.getAttribute("title"), /not available yet/);
  await page.keyboard.press("F5");
  await waitForStatus(page, "Copies between two directories of the server are not available yet.");
  await page.keyboard.press("F6");
  await page.click("dialog button[value=replace]");
  await waitForStatus(page, "Moved 1 entry to data/both/target.");
  await waitForNames(page, "right", ["target"]);
  assert.equal(readFileSync(join(path, "target/file"), "utf8"), "1");
});

test("the mouse selects, and a drag copies to the other pane", async (t) => {
  const path = folder("mouse", { a: "", b: "", c: "", d: "" });
  const page = await openAt(t, "mouse");
  await rowOf(page, "right", "a").click();
  await rowOf(page, "right", "c").click({ modifiers: ["Shift"] });
  await waitForSummary(page, "right", "3 of 4 entries selected, 0 B of 0 B");
  await rowOf(page, "right", "b").click({ modifiers: ["Control"] });
  await waitForSummary(page, "right", "2 of 4 entries selected, 0 B of 0 B");
  await rowOf(page, "right", "d").click();
  await waitForSummary(page, "right", "4 entries, 0 B");
  await givePicker(page, "dragged", { "from-left": "dragged" });
  await openPicked(page, "dragged");
  await rowOf(page, "left", "from-left").dragTo(page.locator("#right .grid"));
  await waitForNames(page, "right", ["a", "b", "c", "d", "from-left"]);
  assert.equal(readFileSync(join(path, "from-left"), "utf8"), "dragged");
});

test("files from the desktop are chosen on the left and sent on the right", async (t) => {
  const path = folder("dropped", { old: "" });
  const page = await openAt(t, "dropped");
  const drop = (side, name) =>
    page.evaluate(([side, name]) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([`contents of ${name}`], name));
      document.getElementById(side).dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    }, [side, name]);
  await drop("right", "sent");
  await waitForNames(page, "right", ["old", "sent"]);
  assert.equal(readFileSync(join(path, "sent"), "utf8"), "contents of sent");
  await drop("left", "chosen");
  await waitForNames(page, "left", ["chosen"]);
  await page.setInputFiles("#file-input", [{ name: "by input", mimeType: "", buffer: Buffer.from("input") }]);
  await waitForNames(page, "left", ["by input", "chosen"]);
  assert.equal(await page.getAttribute("#keys [data-command=remove]", "aria-disabled"), "true");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await waitForNames(page, "right", ["by input", "chosen", "old", "sent"]);
  assert.equal(readFileSync(join(path, "by input"), "utf8"), "input");
});

test("a list of 100,000 names scrolls without a long task", async (t) => {
  const count = 100_000;
  const path = folder("many");
  for (let number = 0; number < count; number += 1) {
    writeFileSync(join(path, `entry ${number}`), "");
  }
  const page = await openPage(t);
  await rowOf(page, "right", "many").dblclick();
  await page.waitForFunction(() => document.querySelector("#right .grid").ariaRowCount === "100001", null, { timeout: 60_000 });
  await waitForSummary(page, "right", "100,000 entries, 0 B");
  assert.ok((await page.locator("#right .row").count()) < 100);
  // A busy machine stops any page; a pause of the page itself would be in each run.
  const run = () => page.evaluate(async () => {
    const long = [];
    const observer = new PerformanceObserver((list) => long.push(...list.getEntries().map((entry) => Math.round(entry.duration))));
    observer.observe({ type: "longtask" });
    const grid = document.querySelector("#right .grid");
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    for (let step = 0; step <= 120; step += 1) {
      grid.scrollTop = ((grid.scrollHeight - grid.clientHeight) * step) / 120;
      await frame();
    }
    await frame();
    long.push(...observer.takeRecords().map((entry) => Math.round(entry.duration)));
    observer.disconnect();
    return long;
  });
  let long = [0];
  for (let attempt = 0; attempt < 4 && long.length > 0; attempt += 1) {
    long = await run();
  }
  assert.deepEqual(long, []);
  await page.waitForFunction(() => [...document.querySelectorAll("#right .space .row")].some((row) => row.ariaRowIndex === "100001" && row.textContent.startsWith("entry 99999")));
  await page.focus("#right .grid");
  await page.keyboard.press("Control+a");
  await waitForSummary(page, "right", "100,000 of 100,000 entries selected, 0 B of 0 B");
  await page.keyboard.press("Shift+F3");
  await page.waitForSelector("#right .head [aria-sort=descending]");
  await page.keyboard.press("End");
  await page.waitForFunction(() => document.querySelector("#right .row[aria-rowindex='100001']")?.textContent.startsWith("entry 0"));
});

test("a hostile listing without an end stays bounded", async (t) => {
  const page = await openPage(t);
  let [pages, isStuck] = [0, false];
  await page.route(/\/tree\?/, (route) => {
    pages += 1;
    const names = isStuck ? [] : Array.from({ length: 5000 }, (_, at) => ({ name: `${pages}-${at}`, kind: "file", size: 1, mtime: 0, mode: 0 }));
    return route.fulfill({ json: { entries: names, next: `${pages}` } });
  });
  await page.focus("#right .grid");
  await page.keyboard.press("F9");
  const more = page.locator("#right .more");
  await more.waitFor({ timeout: 30_000 });
  assert.equal(pages, 21);
  assert.equal(await more.textContent(), "105,000 names loaded. Show more");
  await more.click();
  await page.waitForFunction(() => document.querySelector("#right .more").textContent.startsWith("205,000"), null, { timeout: 30_000 });
  assert.equal(pages, 41);
  isStuck = true;
  await page.keyboard.press("F9");
  await waitForStatus(page, "the server sent a listing without an end");
  assert.equal(pages, 42);
});

test("a hostile answer without an end is refused", async (t) => {
  const page = await openPage(t);
  await page.route(/\/tree\?/, (route) => route.fulfill({ body: "[".repeat(17 << 20) }));
  await page.keyboard.press("F9");
  await waitForStatus(page, "the server sent more than 16 MiB where a short answer was expected");
  await page.unroute(/\/tree\?/);
  await page.keyboard.press("F9");
  await page.waitForFunction(() => document.querySelector("#right .grid").ariaBusy === "false" && document.querySelector("#right .notice").hidden);
});

test("a wrong code is refused, and an ended session can continue", async (t) => {
  folder("session", { file: "" });
  const page = await openAt(t, "session", { isOwn: true });
  await page.context().clearCookies();
  await page.keyboard.press("F9");
  await page.waitForSelector("#sign-in:not([hidden])");
  await page.fill("#code", "0".repeat(32));
  await page.keyboard.press("Enter");
  await page.locator("#status.error").waitFor();
  assert.ok(await page.isVisible("#sign-in"));
  await page.fill("#code", await newCode());
  await page.keyboard.press("Enter");
  await waitForNames(page, "right", ["file"]);
  await page.click("#share");
  const link = await page.inputValue("dialog input");
  await page.keyboard.press("Escape");
  const other = await openPage(t, { link });
  await other.click("#sign-out");
  await page.click("#sign-out");
  await waitForStatus(page, "Signed out.");
  assert.ok(await page.isHidden("#files"));
});

test("a root for uploads only has no listing and takes files", async (t) => {
  const page = await openPage(t);
  await page.selectOption("#right select", { label: "inbox" });
  await page.locator("#right .notice", { hasText: "inbox is for uploads only" }).waitFor();
  await givePicker(page, "to-inbox", { letter: "hello" });
  await openPicked(page, "to-inbox");
  await page.keyboard.press("F5");
  await waitForStatus(page, "The upload of letter to inbox is complete");
  assert.equal(readFileSync(join(server.roots.inbox, "letter"), "utf8"), "hello");
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

for (const colorScheme of ["light", "dark"]) {
  test(`axe has no serious finding in ${colorScheme}`, async (t) => {
    folder("axe", { "file.txt": "1", "other.txt": "2", ".hidden": "" });
    folder("axe/sub");
    const page = await openAt(t, "axe", { colorScheme, isOwn: true });
    await givePicker(page, "axe-local", { "local.txt": "x", "inner/y": "" });
    const check = async (name) => {
      await shot(page, `panes-${name}-${colorScheme}`);
      await page.evaluate(axeSource());
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes[0].html, nodes[0].failureSummary]), [], name);
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
