// Another server in a pane: its tree, copies to and from it, and what the page refuses there.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { axeSource } from "./needs.mjs";
import {
  enter,
  folder,
  openAt,
  rowOf,
  start,
  stop,
  waitForNames,
  waitForStatus,
  waitForSummary,
} from "./panes-world.mjs";
import { Server, eventually, shot, write } from "./world.mjs";

before(start);
after(stop);

const HTML = "<img src=x onerror=alert(1)>";

/** Starts another server. @param {Record<string, string>} files of its directory */
async function startFar(t, files, access = "both") {
  const far = await Server.start({ far: { access } });
  t.after(() => far.close());
  for (const [name, contents] of Object.entries(files)) {
    write(join(far.roots.far, name), contents);
  }
  return { far, root: far.roots.far, ticket: readFileSync(join(far.home, "far.ticket"), "utf8") };
}

/** Shows another server in a pane. */
async function addPeer(page, side, ticket) {
  await page.selectOption(`#${side} select`, "add-peer");
  await page.fill("dialog input", ticket);
  await page.click("dialog button.primary");
}

test("another server is a tree like any other, with names as text", async (t) => {
  const { root, ticket } = await startFar(t, {
    [`${HTML}/inner`]: "inner",
    "large.bin": "0123456789",
    small: "x",
    ".hidden": "",
    ".haul-0-1": "",
  });
  symlinkSync("/etc", join(root, "to-etc"));
  folder("near");
  const page = await openAt(t, "near");
  await addPeer(page, "left", ticket);
  await waitForNames(page, "left", [HTML, "large.bin", "small", "to-etc"]);
  assert.equal(await page.locator("#left img").count(), 0);
  await page.keyboard.press("F3");
  await waitForNames(page, "left", [HTML, "to-etc", "small", "large.bin"]);
  for (const name of ["small", "large.bin"]) {
    await rowOf(page, "left", name).click({ modifiers: ["Control"] });
  }
  await waitForSummary(page, "left", "2 of 4 entries selected, 11 B of 11 B \u00b7 1 not shown");
  await page.keyboard.press("/");
  await page.keyboard.type("img");
  await waitForNames(page, "left", [HTML]);
  await page.keyboard.press("Escape");
  await enter(page, "left", HTML);
  await waitForNames(page, "left", ["inner"]);
  await shot(page, "another-server");
  await page.evaluate(axeSource());
  const { violations } = await page.evaluate(() => window.axe.run());
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
  // The crumbs lead up again.
  await page.click("#left .crumbs button:first-child");
  await rowOf(page, "left", "to-etc").dblclick();
  await waitForStatus(page, "cannot open to-etc");
  await rowOf(page, "left", "small").dblclick();
  await waitForStatus(page, "small is a file of another server. F5 copies it to the other pane.");
});

test("F5 copies between the shown directories of both servers, and leaves equal files", async (t) => {
  const { root, ticket } = await startFar(t, { [`${HTML}/back`]: "back", [`${HTML}/deep/er`]: "er" });
  const path = folder("copies", { "large.bin": "0123456789abcdef".repeat(1 << 16), other: "other" });
  const page = await openAt(t, "copies");
  await addPeer(page, "left", ticket);
  await enter(page, "left", HTML);
  await rowOf(page, "right", "large.bin").click();
  await page.keyboard.press("F5");
  await waitForStatus(page, `The copy of large.bin to Other server 1/${HTML} is complete: 1 file copied`);
  await waitForNames(page, "left", ["deep", "back", "large.bin"]);
  const copied = join(root, HTML, "large.bin");
  assert.deepEqual(readFileSync(copied), readFileSync(join(path, "large.bin")));
  const before = statSync(copied).ino;
  await page.keyboard.press("F5");
  await page.locator("dialog h2", { hasText: "1 name exists already" }).waitFor();
  await page.click("dialog button[value=replace]");
  await waitForStatus(page, "is complete: 0 files copied, 1 file had equal contents");
  assert.equal(statSync(copied).ino, before);
  for (const name of ["back", "deep"]) {
    await rowOf(page, "left", name).click({ modifiers: ["Control"] });
  }
  await page.keyboard.press("F5");
  await waitForStatus(page, "The fetch of 2 entries to data/copies is complete");
  await waitForNames(page, "right", ["deep", "back", "large.bin", "other"]);
  assert.equal(readFileSync(join(path, "back"), "utf8"), "back");
  assert.equal(readFileSync(join(path, "deep/er"), "utf8"), "er");
});

test("what is not possible at another server is refused with the reason", async (t) => {
  const { ticket } = await startFar(t, { file: "file" });
  folder("refusals", { other: "" });
  const page = await openAt(t, "refusals");
  await addPeer(page, "left", ticket);
  await rowOf(page, "left", "file").click();
  for (const [key, refusal] of [
    ["F2", "does not change names"],
    ["F4", "does not verify another server"],
    ["F6", "do not move between servers"],
    ["F7", "does not change names"],
    ["F8", "does not change names"],
  ]) {
    await page.keyboard.press(key);
    await waitForStatus(page, refusal);
  }
  await addPeer(page, "right", ticket);
  await waitForNames(page, "right", ["file"]);
  await page.keyboard.press("F5");
  await waitForStatus(page, "Another server copies to and from this server only.");
});

test("a server that only receives lists nothing, and F5 asks for the directory", async (t) => {
  const { far, root, ticket } = await startFar(t, { secret: "" }, "write");
  folder("sends", { file: "file" });
  const page = await openAt(t, "sends");
  await addPeer(page, "left", ticket);
  await page.locator("#left", { hasText: "not allowed: fetching files from this host" }).waitFor();
  await rowOf(page, "right", "file").click();
  await page.keyboard.press("F5");
  await page.fill("dialog input", "in/box");
  await page.click("dialog button.primary");
  await waitForStatus(page, "The copy of file to Other server 1/in/box is complete: 1 file copied");
  assert.equal(readFileSync(join(root, "in/box/file"), "utf8"), "file");
  // After the end of the server the pane says why it lists nothing.
  await far.kill();
  await page.click("#left .notice button");
  await page.locator("#left", { hasText: "cannot connect" }).waitFor();
});

test("a ticket that is valid once is not used up by a listing", async (t) => {
  const home = mkdtempSync(join(tmpdir(), "haul-once-"));
  write(join(home, "far/back"), "back");
  const values = ["serve", "--once", "--root", join(home, "far"), "--ticket-file", join(home, "ticket"), "--listen", "127.0.0.1:0"];
  const far = spawn(process.env.HAUL_BIN, values, { stdio: "ignore" });
  t.after(() => {
    far.kill("SIGKILL");
    rmSync(home, { recursive: true });
  });
  const ticket = await eventually(() => readFileSync(join(home, "ticket"), "utf8"), "ticket");
  const path = folder("once");
  const page = await openAt(t, "once");
  await addPeer(page, "left", ticket);
  await page.locator("#left", { hasText: "the ticket is valid once" }).waitFor();
  await page.keyboard.press("F5");
  await page.fill("dialog input", "back");
  await page.click("dialog button.primary");
  await waitForStatus(page, "The fetch of back to data/once is complete: 1 file copied");
  assert.equal(readFileSync(join(path, "back"), "utf8"), "back");
});
