// Copies and moves between the panes.

import assert from "node:assert/strict";
import { readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { LaneRequests } from "./jobs-world.mjs";
import {
  enter,
  folder,
  givePicker,
  openAt,
  openPage,
  openPicked,
  rowOf,
  waitForNames,
  waitForStatus,
  waitForSummary,
  world,
  start,
  stop,
} from "./panes-world.mjs";

before(start);
after(stop);

test("a download names an entry that a browser cannot store", async (t) => {
  folder("refused");
  writeFileSync(Buffer.concat([Buffer.from(join(world.data, "refused/bytes-")), Buffer.from([0xff])]), "");
  symlinkSync("/nowhere", join(world.data, "refused/link"));
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

/** Regression: the question looked at the listing that the pane showed. */
test("F5 asks before it replaces what came after the listing", async (t) => {
  const path = folder("late");
  const page = await openAt(t, "late");
  await givePicker(page, "to-send-late", { report: "mine" });
  await openPicked(page, "to-send-late");
  writeFileSync(join(path, "report"), "theirs");
  await page.keyboard.press("F5");
  await page.locator("dialog h2", { hasText: "1 name exists already" }).waitFor();
  await page.click("dialog button[value=skip]");
  await waitForNames(page, "right", []);
  assert.equal(readFileSync(join(path, "report"), "utf8"), "theirs");
});

/** Regression: two moves to one name both deleted their source, and one file was lost. */
test("nothing is moved to a name that an unfinished job writes", async (t) => {
  const path = folder("moved-twice");
  const page = await openAt(t, "moved-twice");
  await page.evaluate(() => localStorage.setItem("haul-lanes", "http"));
  const lanes = await LaneRequests.create({ context: page.context() });
  lanes.holds = (method) => method === "PUT";
  await givePicker(page, "to-move-twice", { "a/image": "first", "b/image": "second" });
  await openPicked(page, "to-move-twice");
  await enter(page, "left", "a");
  await rowOf(page, "left", "image").click();
  await page.keyboard.press("F6");
  await lanes.holding();
  await page.click("#left .crumbs button:first-of-type");
  await enter(page, "left", "b");
  await rowOf(page, "left", "image").click();
  for (const key of ["F6", "F5"]) {
    await page.keyboard.press(key);
    await waitForStatus(page, `cannot ${key === "F6" ? "move" : "copy"} image to data/moved-twice: a job that is not finished writes it there`);
  }
  lanes.release();
  await waitForStatus(page, "The source is deleted.");
  await page.keyboard.press("F6");
  await page.locator("dialog h2", { hasText: "1 name exists already" }).waitFor();
  await page.click("dialog button[value=skip]");
  await waitForNames(page, "left", ["image"]);
  assert.equal(readFileSync(join(path, "image"), "utf8"), "first");
});

/** Regression: a failed job that was run again replaced the only copy of a moved file. */
test("nothing is moved to a name that a failed job can write", async (t) => {
  const path = folder("moved-failed");
  const page = await openAt(t, "moved-failed");
  const refuse = (route) => route.fulfill({ status: 403, body: '{"error":"refused by the test"}' });
  await page.context().route(/\/lane$/, refuse);
  await givePicker(page, "to-move-failed", { "a/image": "first", "b/image": "second" });
  await openPicked(page, "to-move-failed");
  await enter(page, "left", "a");
  await page.keyboard.press("F6");
  await waitForStatus(page, "The source stays. See the job, then run it again.");
  await page.context().unroute(/\/lane$/, refuse);
  await page.click("#left .crumbs button:first-of-type");
  await enter(page, "left", "b");
  await page.keyboard.press("F6");
  await waitForStatus(page, "cannot move image to data/moved-failed: a job that is not finished writes it there");
  await page.getByRole("button", { name: "Remove: Upload of image" }).click();
  await page.keyboard.press("F6");
  await waitForStatus(page, "The source is deleted.");
  assert.equal(readFileSync(join(path, "image"), "utf8"), "second");
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
  // Entries with a folder: the browser would save the files without it.
  await page.locator("dialog button.primary[value=folder]").click();
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

test("without a folder downloads go to the browser's storage, which saves files and refuses moves", async (t) => {
  const path = folder("stored", { "kept.txt": "kept", "moved.txt": "moved" });
  const page = await openAt(t, "stored");
  await page.evaluate(() => {
    delete window.showDirectoryPicker;
    window.showDirectoryPicker = undefined;
  });
  await rowOf(page, "right", "kept.txt").click();
  await page.keyboard.press("F5");
  // One file: the browser would save it as it is.
  await page.waitForSelector("dialog button.primary[value=saves]");
  await page.click("dialog button[value=private]");
  await waitForNames(page, "left", ["kept.txt"]);
  await waitForStatus(page, "is complete");
  await rowOf(page, "right", "moved.txt").click();
  await page.keyboard.press("F6");
  await waitForStatus(page, "A browser does not promise to keep files.");
  assert.deepEqual(readdirSync(path).sort(), ["kept.txt", "moved.txt"]);
  await page.keyboard.press("F5");
  await waitForNames(page, "left", ["kept.txt", "moved.txt"]);
  for (const [side, name, contents] of [
    ["left", "moved.txt", "moved"],
    ["right", "kept.txt", "kept"],
  ]) {
    await rowOf(page, side, name).click();
    const [saved] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
    assert.equal(saved.suggestedFilename(), name);
    assert.equal(readFileSync(await saved.path(), "utf8"), contents);
  }
});

test("F6 deletes the source after the upload, but not what came later", async (t) => {
  const path = folder("moves");
  const page = await openAt(t, "moves");
  await givePicker(page, "to-move", { "tree/one": "1", "tree/two": "2", single: "s" });
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
      job.addEventListener = (type, listener) =>
        addEventListener.call(job, type, async (event) => {
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

/** Regression: what was elsewhere while the job looked for it was deleted without a copy. */
test("F6 deletes only files that the job has copied", async (t) => {
  folder("moves-part");
  const page = await openAt(t, "moves-part");
  await page.evaluate(() => localStorage.setItem("haul-lanes", "http"));
  const lanes = await LaneRequests.create({ context: page.context() });
  // The job looks for its files when the lane is open, and before PUT 1.
  let open;
  const asked = new Promise((resolve) => {
    page.context().route(/\/lane$/, async (route) => {
      await new Promise((go) => {
        open = go;
        resolve(undefined);
      });
      await route.continue();
    });
  });
  lanes.holds = (method, number) => method === "PUT" && number >= 1;
  await givePicker(page, "to-move-part", { "tree/kept": "1", "tree/away": "2" });
  await openPicked(page, "to-move-part");
  const rename = (from, to) =>
    page.evaluate(
      async ([from, to]) => {
        const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("to-move-part");
        const tree = await top.getDirectoryHandle("tree");
        const place = (name) => (name === "away" ? tree : top);
        await (await place(from).getFileHandle(from)).move(place(to), to);
      },
      [from, to],
    );
  await rowOf(page, "left", "tree").click();
  await page.keyboard.press("F6");
  await asked;
  await rename("away", "elsewhere");
  open();
  await lanes.holding();
  await rename("elsewhere", "away");
  lanes.release();
  await waitForStatus(page, "so they stay: tree/away, tree");
  await enter(page, "left", "tree");
  await waitForNames(page, "left", ["away"]);
});

test("two panes on the server move by a rename and copy", async (t) => {
  const path = folder("both", { file: "1" });
  folder("both/target", { file: "2" });
  writeFileSync(Buffer.concat([Buffer.from(join(path, "bytes-")), Buffer.from([0xff])]), "bytes");
  const page = await openAt(t, "both");
  await page.selectOption("#left select", "server-0");
  await enter(page, "left", "both");
  assert.match(await page.getAttribute("#keys [data-command=move]", "title"), /the same folder/);
  await enter(page, "left", "target");
  await rowOf(page, "right", "bytes-\ufffd").click();
  await page.keyboard.press("F5");
  await waitForStatus(page, "is complete: 1 file copied");
  const copied = Buffer.concat([Buffer.from(join(path, "target/bytes-")), Buffer.from([0xff])]);
  assert.equal(readFileSync(copied, "utf8"), "bytes");
  await page.locator(".job", { hasText: "all durable" }).waitFor();
  await rowOf(page, "right", "target").click();
  await page.keyboard.press("F5");
  await waitForStatus(page, "is not complete");
  await page.locator(".job-state", { hasText: "cannot copy a directory into itself" }).waitFor();
  await rowOf(page, "right", "file").click();
  await page.keyboard.press("F6");
  await page.click("dialog button[value=replace]");
  await waitForStatus(page, "Moved 1 entry to data/both/target.");
  await waitForNames(page, "right", ["target", "bytes-\ufffd"]);
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

test("a drag from another window of the page is not one of this window", async (t) => {
  folder("windows", { here: "" });
  const page = await openAt(t, "windows");
  await givePicker(page, "two-windows", { there: "" });
  await openPicked(page, "two-windows");
  const typeIn = (window) => window.evaluate(async () => (await import("/drags.js")).DRAG_TYPE);
  const isTaken = (type) =>
    page.evaluate((type) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData(type, "left");
      const pane = document.getElementById("right");
      const send = (name) =>
        pane.dispatchEvent(new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
      send("dragenter");
      const isShown = !pane.querySelector(".hint").hidden;
      send("drop");
      return isShown;
    }, type);
  assert.equal(await isTaken(await typeIn(await openPage(t))), false);
  assert.equal(await isTaken(await typeIn(page)), true);
  await waitForNames(page, "right", ["here", "there"]);
});

test("a move that resumes after a reload deletes the source", async (t) => {
  const path = folder("moves-later");
  const page = await openAt(t, "moves-later");
  await page.evaluate(() => localStorage.setItem("haul-lanes", "http"));
  const lanes = await LaneRequests.create({ context: page.context() });
  lanes.holds = (method, number) => method === "PUT" && number >= 1;
  const contents = "x".repeat(5_000_000);
  await givePicker(page, "to-move-later", { "tree/large": contents, "tree/small": "s", stays: "" });
  await openPicked(page, "to-move-later");
  await rowOf(page, "left", "tree").click();
  await page.keyboard.press("F6");
  await lanes.holding();
  await page.reload();
  lanes.release();
  // A file that is new since the move was started stays, with its directory.
  await page.evaluate(async () => {
    const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("to-move-later");
    await (await top.getDirectoryHandle("tree")).getFileHandle("late", { create: true });
  });
  await page.click(".drawer-toggle");
  await page.getByRole("button", { name: "Resume: Upload of tree" }).click();
  await waitForStatus(page, "changed or cannot be deleted, so they stay: tree");
  const left = await page.evaluate(async () => {
    const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("to-move-later");
    const names = [];
    for await (const directory of [top, await top.getDirectoryHandle("tree")]) {
      for await (const name of directory.keys()) {
        names.push(name);
      }
    }
    return names.sort();
  });
  assert.deepEqual(left, ["late", "stays", "tree"]);
  assert.equal(readFileSync(join(path, "tree/large"), "utf8"), contents);
});

test("files from the desktop are chosen on the left and sent on the right", async (t) => {
  const path = folder("dropped", { old: "" });
  const page = await openAt(t, "dropped");
  const drop = (side, name) =>
    page.evaluate(
      ([side, name]) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([`contents of ${name}`], name));
        document
          .getElementById(side)
          .dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
      },
      [side, name],
    );
  await drop("right", "sent");
  await waitForNames(page, "right", ["old", "sent"]);
  assert.equal(readFileSync(join(path, "sent"), "utf8"), "contents of sent");
  await drop("left", "chosen");
  await waitForNames(page, "left", ["chosen"]);
  await page.setInputFiles("#file-input", [{ name: "by input", mimeType: "", buffer: Buffer.from("input") }]);
  await waitForNames(page, "left", ["by input", "chosen"]);
  assert.equal(await page.getAttribute("#keys [data-command=rename]", "aria-disabled"), "true");
  assert.equal(await page.getAttribute("#keys [data-command=move]", "aria-disabled"), "true");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await waitForNames(page, "right", ["by input", "chosen", "old", "sent"]);
  assert.equal(readFileSync(join(path, "by input"), "utf8"), "input");
  await rowOf(page, "left", "chosen").click();
  await page.keyboard.press("F8");
  await waitForStatus(page, "Removed 1 entry from the list. The files stay.");
  await waitForNames(page, "left", ["by input"]);
});

test("of two files with one name, the second is refused", async (t) => {
  const path = folder("twice", { old: "" });
  const page = await openAt(t, "twice");
  const drop = (side, ...names) =>
    page.evaluate(
      ([side, names]) => {
        const dataTransfer = new DataTransfer();
        names.forEach((name, at) => dataTransfer.items.add(new File([String(at).repeat(at + 1)], name)));
        document
          .getElementById(side)
          .dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
      },
      [side, names],
    );
  await drop("right", "one", "one", "other");
  await waitForStatus(page, "cannot upload two entries with the name one; drop only one of them");
  await drop("left", "one", "one", "other");
  await waitForStatus(page, "cannot add one: the list has an entry of this name");
  await waitForNames(page, "left", ["one", "other"]);
  const file = (name, contents) => ({ name, mimeType: "", buffer: Buffer.from(contents) });
  await page.setInputFiles("#file-input", [file("other", "another"), file("third", "3")]);
  await waitForStatus(page, "cannot add other: the list has an entry of this name");
  await waitForNames(page, "left", ["one", "other", "third"]);
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await waitForNames(page, "right", ["old", "one", "other", "third"]);
  await waitForStatus(page, "is complete");
  assert.deepEqual(
    ["one", "other", "third"].map((name) => readFileSync(join(path, name), "utf8")),
    ["0", "222", "3"],
  );
});

/** Regression: the second file took the place of the first one, without a message. */
test("of two files with one name, one size and one time, the second is refused", async (t) => {
  const path = folder("twins");
  const page = await openAt(t, "twins");
  const drop = (contents) =>
    page.evaluate((contents) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([contents], "twin", { lastModified: 1_700_000_000_000 }));
      document
        .getElementById("left")
        .dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    }, contents);
  await drop("first");
  await waitForNames(page, "left", ["twin"]);
  await drop("other");
  await waitForStatus(page, "cannot add twin: the list has an entry of this name");
  await rowOf(page, "left", "twin").click();
  await page.keyboard.press("F5");
  await waitForStatus(page, "is complete");
  assert.equal(readFileSync(join(path, "twin"), "utf8"), "first");
});

/** Regression: empty folders were lost without a message. */
test("empty folders of a drop without handles are created", async (t) => {
  const path = folder("entries");
  const page = await openAt(t, "entries");
  const drop = (side, tree) =>
    page.evaluate(
      ([side, tree]) => {
        const entryOf = ([name, child]) => {
          if (typeof child === "string") {
            return { name, isFile: true, file: (done) => done(new File([child], name)) };
          }
          const parts = [Object.entries(child).map(entryOf), []];
          return { name, isFile: false, createReader: () => ({ readEntries: (done) => done(parts.shift() ?? []) }) };
        };
        const items = Object.entries(tree).map((each) => ({ kind: "file", webkitGetAsEntry: () => entryOf(each), getAsFile: () => null }));
        const event = new DragEvent("drop", { bubbles: true, cancelable: true });
        Object.defineProperty(event, "dataTransfer", { value: { types: ["Files"], items } });
        document.getElementById(side).dispatchEvent(event);
      },
      [side, tree],
    );
  await drop("right", { tree: { file: "contents", sub: { empty: {} } } });
  await waitForStatus(page, "The upload of tree to data/entries is complete");
  assert.deepEqual(readdirSync(join(path, "tree")).sort(), ["file", "sub"]);
  assert.deepEqual(readdirSync(join(path, "tree/sub")), ["empty"]);
  await drop("right", { alone: {} });
  await waitForNames(page, "right", ["alone", "tree"]);
  await drop("left", { chosen: { deep: {} } });
  await waitForNames(page, "left", ["chosen"]);
  // A second time is harmless.
  await drop("left", { chosen: { deep: {} } });
  await rowOf(page, "left", "chosen").click();
  await page.keyboard.press("F5");
  await waitForNames(page, "right", ["alone", "chosen", "tree"]);
  assert.deepEqual(readdirSync(join(path, "chosen")), ["deep"]);
});

test("of two handles with one name, the second is refused unless both are one entry", async (t) => {
  const page = await openPage(t);
  const texts = await page.evaluate(async () => {
    const { ChosenSource, sharedPath } = await import("/local-source.js");
    const top = await navigator.storage.getDirectory();
    const [one, again, other] = await Promise.all(
      ["one", "one", "other"].map(async (name) =>
        (await top.getDirectoryHandle(name, { create: true })).getFileHandle("file", { create: true }),
      ),
    );
    const chosen = new ChosenSource();
    const add = (handle) => chosen.add([], [handle]).then(() => "added", (error) => error.message);
    return [await add(one), await add(again), await add(other), sharedPath([one, other], []), sharedPath([one], [])];
  });
  const refusal =
    "cannot add file: the list has an entry of this name; copy it, remove it from the list with F8, then add again";
  assert.deepEqual(texts, ["added", "added", refusal, "file", undefined]);
});

test("a folder of the input for folders keeps its paths", async (t) => {
  const path = folder("from-input");
  folder("local/deep/er", { file: "in a folder" });
  const page = await openAt(t, "from-input");
  await page.setInputFiles("#folder-input", join(world.data, "local"));
  await waitForNames(page, "left", ["local"]);
  await enter(page, "left", "local");
  await waitForNames(page, "left", ["deep"]);
  await page.keyboard.press("F5");
  await waitForNames(page, "right", ["deep"]);
  await waitForStatus(page, "is complete");
  assert.equal(readFileSync(join(path, "deep/er/file"), "utf8"), "in a folder");
});

test("a root for uploads only has no listing and takes files", async (t) => {
  const page = await openPage(t);
  await page.selectOption("#right select", { label: "inbox" });
  await page.locator("#right .notice", { hasText: "inbox is for uploads only" }).waitFor();
  await givePicker(page, "to-inbox", { letter: "hello" });
  await openPicked(page, "to-inbox");
  await page.keyboard.press("F5");
  await page.click("dialog button[value=yes]");
  await waitForStatus(page, "The upload of letter to inbox is complete");
  assert.equal(readFileSync(join(world.server.roots.inbox, "letter"), "utf8"), "hello");
});
