// Verification and repair by a waybill, of the server's side and of the browser's.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { axeSource } from "./needs.mjs";
import {
  folder,
  givePicker,
  openAt,
  openPicked,
  rowOf,
  start,
  stop,
  waitForNames,
  waitForStatus,
  world,
} from "./panes-world.mjs";
import { shot } from "./world.mjs";

before(start);
after(stop);

/** Three objects of 1 MiB. */
const LARGE = "0123456789abcdef".repeat(3 << 16);

/** Runs haul in a directory. */
function haul(cwd, ...args) {
  const env = { ...process.env, XDG_STATE_HOME: join(world.server.home, "state-of-haul") };
  const ended = spawnSync(resolve(process.env.HAUL_BIN), args, { cwd, env, encoding: "utf8" });
  assert.equal(ended.status, 0, ended.stderr);
}

/** A time that utimes(2) keeps: node rounds others. */
const TIME = new Date("2026-01-01T00:00:00Z");

/** Changes a byte, and keeps the time of the file. */
function flip(file, at) {
  const bytes = readFileSync(file);
  bytes[at] ^= 1;
  writeFileSync(file, bytes);
  utimesSync(file, TIME, TIME);
}

const panel = (page) => page.locator("#verification");
const waitForState = (page, text) => page.locator("#verification .verify-state", { hasText: text }).waitFor();

test("a directory is verified by a waybill beside it, and repaired from a folder", async (t) => {
  const files = { "large.bin": LARGE, "gone.txt": "gone", "other.txt": "other" };
  const place = folder("verified", { ...files, "fine.txt": "fine" });
  utimesSync(join(place, "large.bin"), TIME, TIME);
  // Names of this waybill start with the name of the folder.
  mkdirSync(join(world.server.home, "copies"));
  const waybill = join(world.server.home, "all.waybill");
  haul(world.data, "cp", "-a", "--split-size=1M", `--waybill=${waybill}`, "verified", join(world.server.home, "copies"));
  copyFileSync(waybill, join(place, "all.waybill"));
  flip(join(place, "large.bin"), (1 << 20) + 7);
  rmSync(join(place, "gone.txt"));
  rmSync(join(place, "other.txt"));
  const page = await openAt(t, "verified");
  await rowOf(page, "right", "all.waybill").click();
  await page.keyboard.press("F4");
  await page.locator("dialog button", { hasText: "By all.waybill" }).click();
  await waitForState(page, "Complete: 2 intact, 1 damaged, 2 missing");
  const label = await panel(page).locator(".map").first().getAttribute("aria-label");
  assert.equal(label, "Map of 6 objects: 3 intact, 1 damaged, 2 missing");
  await panel(page).locator("summary", { hasText: "large.bin" }).click();
  await panel(page).getByText("damaged bytes 1,048,576\u20132,097,152").waitFor();
  await page.setViewportSize({ width: 400, height: 800 });
  await page.evaluate(axeSource());
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  assert.deepEqual(serious.map(({ id }) => id), []);
  await page.setViewportSize({ width: 1280, height: 900 });
  await shot(page, "verify");
  // One local copy differs: it is not used.
  const copies = { "large.bin": LARGE, "gone.txt": "gone", "other.txt": "wrong" };
  await givePicker(page, "copies", Object.fromEntries(Object.entries(copies).map(([name, text]) => [`verified/${name}`, text])));
  await openPicked(page, "copies");
  await panel(page).getByRole("button", { name: "Repair" }).click();
  await page.locator("dialog button", { hasText: "Repair 3 damaged or missing" }).click();
  await waitForStatus(page, "Repaired 2 files. 1 file had no intact copy.");
  await waitForState(page, "All intact: 2 intact");
  assert.equal(readFileSync(join(place, "large.bin"), "utf8"), LARGE);
  assert.equal(readFileSync(join(place, "gone.txt"), "utf8"), "gone");
  await panel(page).getByRole("button", { name: "Verify again" }).click();
  await waitForState(page, "Complete: 4 intact, 1 missing");
});

/** Regression: a repair by an old verification replaced newer contents. */
test("a repair leaves files that changed since the verification", async (t) => {
  const files = { "late.txt": "late", "large.bin": LARGE };
  const place = folder("changing", files);
  utimesSync(join(place, "large.bin"), TIME, TIME);
  const waybill = join(place, "all.waybill");
  haul(place, "cp", "-a", "--waybill=../changing.waybill", "late.txt", "large.bin", world.server.home);
  copyFileSync(join(world.data, "changing.waybill"), waybill);
  flip(join(place, "large.bin"), 7);
  rmSync(join(place, "late.txt"));
  const page = await openAt(t, "changing");
  await givePicker(page, "changing-copies", files);
  await openPicked(page, "changing-copies");
  await rowOf(page, "right", "all.waybill").click();
  await page.keyboard.press("F4");
  await page.locator("dialog button", { hasText: "By all.waybill" }).click();
  await waitForState(page, "Complete: 0 intact, 1 damaged, 1 missing");
  writeFileSync(join(place, "late.txt"), "newer");
  await panel(page).getByRole("button", { name: "Repair" }).click();
  await page.locator("dialog button", { hasText: "Repair 2 damaged or missing" }).click();
  await waitForStatus(page, "Repaired 1 file. 1 file changed since the verification");
  await waitForState(page, "All intact: 1 intact");
  assert.equal(readFileSync(join(place, "large.bin"), "utf8"), LARGE);
  assert.equal(readFileSync(join(place, "late.txt"), "utf8"), "newer");
});

test("what a job copied is verified by its receipt and repaired from the server", async (t) => {
  folder("receipts", { "one.txt": "one", "two.txt": "two" });
  folder("receipts/sub", { "three.bin": LARGE });
  const page = await openAt(t, "receipts");
  await givePicker(page, "received");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("F5");
  await page.click("dialog button[value=folder]");
  await waitForStatus(page, "is complete");
  await page.locator(".job button", { hasText: /^Verify$/ }).click();
  await waitForState(page, "All intact: 3 intact");
  await givePicker(page, "received", { "sub/three.bin": LARGE.replace("0", "1") });
  await page.evaluate(async () => (await window.showDirectoryPicker()).removeEntry("one.txt"));
  await panel(page).getByRole("button", { name: "Verify again" }).click();
  await waitForState(page, "Complete: 1 intact, 1 modified, 1 missing");
  await panel(page).getByRole("button", { name: "Repair" }).click();
  await page.locator("dialog button", { hasText: "Also replace 1 modified" }).click();
  await waitForState(page, "All intact: 2 intact");
  const text = await page.evaluate(async () => {
    const sub = await (await window.showDirectoryPicker()).getDirectoryHandle("sub");
    return (await (await sub.getFileHandle("three.bin")).getFile()).text();
  });
  assert.equal(text, LARGE);
});

test("chosen files are verified by a waybill of this computer", async (t) => {
  const place = folder("chosen-source", { "a.txt": "first", "b.txt": "second", "large.bin": LARGE, "empty": "" });
  const local = join(world.server.home, "chosen-local");
  mkdirSync(local);
  utimesSync(join(place, "large.bin"), TIME, TIME);
  haul(place, "cp", "-a", "--split-size=1M", `--waybill=${local}/w.waybill`, "a.txt", "b.txt", "large.bin", "empty", local);
  flip(join(local, "large.bin"), 2 << 20);
  const page = await openAt(t, "chosen-source");
  await page.setInputFiles("#file-input", ["a.txt", "large.bin", "empty"].map((name) => join(local, name)));
  await waitForNames(page, "left", ["a.txt", "empty", "large.bin"]);
  const chooser = page.waitForEvent("filechooser");
  await page.keyboard.press("F4");
  await page.locator("dialog button", { hasText: "By a waybill of this computer" }).click();
  await (await chooser).setFiles(join(local, "w.waybill"));
  await waitForState(page, "Complete: 2 intact, 1 damaged, 1 missing");
  const label = await panel(page).locator(".map").first().getAttribute("aria-label");
  assert.equal(label, "Map of 6 objects: 4 intact, 1 damaged, 1 missing");
  // A file that is not a waybill.
  const again = page.waitForEvent("filechooser");
  await panel(page).getByRole("button", { name: "Close" }).click();
  await page.keyboard.press("F4");
  await page.locator("dialog button", { hasText: "By a waybill of this computer" }).click();
  await (await again).setFiles(join(local, "a.txt"));
  await waitForState(page, "Not complete: cannot use the waybill: the file is not a waybill");
});

test("a verification ends when it is stopped, and reports a lost connection", async (t) => {
  folder("slow", { "w.waybill": "" });
  const page = await openAt(t, "slow");
  const verify = async () => {
    await rowOf(page, "right", "w.waybill").click();
    await page.keyboard.press("F4");
    await page.locator("dialog button", { hasText: "By w.waybill" }).click();
  };
  // The answer ends before the summary.
  const events = [
    { event: "progress", files: 0, bytes: 5, total: 10 },
    { event: "entry", path: "<img src=x onerror=alert(1)>", verdict: "rotted", size: 2 ** 53 - 1, damage: [[0, 1], [5], "x"] },
    { event: "entry", path: 5, verdict: "none", size: -1, damage: "x" },
    { event: "unknown" },
    null,
  ];
  const body = events.map((event) => `${JSON.stringify(event)}\n`).join("");
  await page.route("**/verify?*", (route) => route.fulfill({ body, contentType: "application/x-ndjson" }));
  await verify();
  await waitForState(page, "Not complete: the connection was lost; verify again");
  await panel(page).getByText("<img src=x onerror=alert(1)>").waitFor();
  await page.unroute("**/verify?*");
  // The request stays open until it is stopped.
  await page.route("**/verify?*", () => {});
  await verify();
  await waitForState(page, "Reading");
  await panel(page).getByRole("button", { name: "Stop" }).click();
  await waitForState(page, "Stopped: 0 intact; the other entries were not verified.");
});
