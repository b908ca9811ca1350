// Helpers for the tests of the panes: one server for a file of tests, and actions in a pane.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Server, Visitor, launch } from "./world.mjs";

/**
 * The server, its directory `data`, and the session that gives codes and its token to other visitors.
 * @type {{browser?: import("playwright-core").Browser, server?: Server, data?: string, first?: Visitor}}
 */
export const world = {};

export async function start() {
  // Service workers need a certificate that the browser trusts, not one that the user accepted.
  world.browser = await launch(undefined, ["--ignore-certificate-errors"]);
  world.server = await Server.start({ data: {}, inbox: { access: "write" } });
  world.data = world.server.roots.data;
  mkdirSync(join(world.data, "folder"));
  world.first = await Visitor.create(world.browser);
  await world.first.signIn(world.server);
}

export async function stop() {
  await world.browser?.close();
  await world.server?.close();
}

/** Returns a one-time code. */
export const newCode = () =>
  world.first.context.pages()[0].evaluate(async () => {
    const { newCode } = await import("/api.js");
    return newCode();
  });

/**
 * Opens the page in a browser of its own. `isOwn` gives it a session of its own, of which a server
 * has only 16.
 */
export async function openPage(t, { isOwn = false, link, ...options } = {}) {
  const visitor = await Visitor.create(world.browser, options);
  t.after(async () => {
    await visitor.close();
    assert.deepEqual(visitor.errors, []);
  });
  visitor.context.setDefaultTimeout(20_000);
  const { origin } = new URL(world.server.link);
  if (!isOwn && link === undefined) {
    const token = await world.first.context.pages()[0].evaluate(() => sessionStorage.getItem("haul-token"));
    await visitor.context.addInitScript(([at, value]) => {
      if (location.origin === at) {
        sessionStorage.setItem("haul-token", value);
      }
    }, [origin, token]);
  }
  const page = await visitor.open(link ?? (isOwn ? `${origin}/#${await newCode()}` : `${origin}/`));
  await page.waitForSelector("#right .row.directory");
  // The last step of the start: an earlier key may go to another pane.
  await page.waitForFunction(() => document.activeElement === document.querySelector("#right .grid"));
  return page;
}

/** Creates a directory of the served one, with files by name. */
export function folder(name, files = {}) {
  mkdirSync(join(world.data, name), { recursive: true });
  for (const [file, contents] of Object.entries(files)) {
    writeFileSync(join(world.data, name, file), contents);
  }
  return join(world.data, name);
}

/** Lets `showDirectoryPicker` return a folder of the browser's private storage. */
export async function givePicker(page, name, files = {}) {
  await page.evaluate(
    async ([name, files]) => {
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
    },
    [name, files],
  );
}

/** Opens the page and the folder `name` of the server in the right pane. */
export async function openAt(t, name, options = {}) {
  const page = await openPage(t, options);
  await enter(page, "right", name);
  return page;
}

export const rowOf = (page, side, name) =>
  page.locator(`#${side} .space .row`).filter({ has: page.locator("bdi").getByText(name, { exact: true }) });

/** Waits until what the page has decided to show is drawn. */
const drawn = (page) =>
  page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));

export async function enter(page, side, name) {
  await rowOf(page, side, name).dblclick();
  await page.waitForFunction(
    ([side, name]) => {
      const pane = document.getElementById(side);
      return (
        pane.querySelector(".crumbs").lastChild.textContent === name &&
        pane.querySelector(".grid").ariaBusy === "false"
      );
    },
    [side, name],
  );
  await drawn(page);
}

/** Opens the folder of `givePicker` in the left pane. */
export async function openPicked(page, name) {
  await page.click("#left button[aria-label='Open a folder of this computer']");
  await page.waitForFunction((name) => {
    const pane = document.getElementById("left");
    return (
      pane.querySelector(".crumbs").lastChild?.textContent === name &&
      pane.querySelector(".grid").ariaBusy === "false"
    );
  }, name);
  await drawn(page);
}

/** Names of the rows in the document, in order of their index. */
export const namesIn = (page, side) =>
  page.evaluate((side) => {
    const rows = [...document.querySelectorAll(`#${side} .space .row:not([hidden])`)];
    rows.sort((one, other) => one.ariaRowIndex - other.ariaRowIndex);
    return rows.map((row) => row.querySelector("bdi").textContent);
  }, side);

/** Waits until the rows have these names. */
export async function waitForNames(page, side, names) {
  try {
    await page.waitForFunction(
      ([side, names]) => {
        const rows = [...document.querySelectorAll(`#${side} .space .row:not([hidden])`)];
        rows.sort((one, other) => one.ariaRowIndex - other.ariaRowIndex);
        return (
          JSON.stringify(rows.map((row) => row.querySelector("bdi").textContent)) === JSON.stringify(names)
        );
      },
      [side, names],
      { timeout: 15_000 },
    );
  } catch (error) {
    assert.deepEqual(await namesIn(page, side), names);
    throw error;
  }
}

export const cursorOf = (page, side) => page.locator(`#${side} .row.cursor bdi`).textContent();
export const waitForCursor = (page, side, name) =>
  page.waitForFunction(
    ([side, name]) => document.querySelector(`#${side} .row.cursor bdi`)?.textContent === name,
    [side, name],
  );
export const waitForStatus = (page, text) => page.locator("#status", { hasText: text }).waitFor();
export const summaryOf = (page, side) => page.locator(`#${side} .summary`).textContent();
export const waitForSummary = (page, side, text) =>
  page.waitForFunction(
    ([side, text]) => document.querySelector(`#${side} .summary`).textContent === text,
    [side, text],
  );
