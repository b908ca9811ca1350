// The page: sign-in, and a listing that the keyboard can use.

import * as api from "./api.js";

const element = (id) => document.getElementById(id);

/** @type {api.Root[]} */
let roots = [];
/** @type {api.Root | undefined} */
let root;
/** Encoded names from the root to the shown directory. @type {string[]} */
let path = [];
/** Texts of the same names. @type {string[]} */
let texts = [];
/** @type {api.Entry[]} */
let entries = [];
let selected = -1;
/** @type {string | null} */
let next = null;
/** Number of the latest listing: answers of earlier ones are ignored. */
let listing = 0;

function show(message, isError = false) {
  const status = element("status");
  status.textContent = message;
  status.classList.toggle("error", isError);
}

/** Runs an action and shows its failure. @param {() => Promise<void>} action */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    show(error.message, true);
    if (error instanceof api.ApiError && error.status === 401) {
      showSignIn();
    }
  }
}

function showSignIn() {
  element("files").hidden = true;
  element("sign-out").hidden = true;
  element("sign-in").hidden = false;
  element("code").focus();
}

/** @param {api.Session} session */
async function showFiles(session) {
  roots = session.roots;
  element("sign-in").hidden = true;
  element("files").hidden = false;
  element("sign-out").hidden = false;
  const rights = (root) => (root.read && root.write ? "" : root.read ? " (read only)" : " (write only)");
  element("roots").replaceChildren(...roots.map((root) => new Option(root.name + rights(root), root.id)));
  await enterRoot(roots[0]);
}

/** @param {api.Root | undefined} chosen */
async function enterRoot(chosen) {
  root = chosen;
  [path, texts] = [[], []];
  await reload();
}

/** Shows the directory anew, and selects the entry with this encoded name. */
async function reload(name) {
  const number = ++listing;
  [entries, next, selected] = [[], null, -1];
  draw();
  if (root === undefined) {
    return show("The server has no directories.");
  }
  if (!root.read) {
    return show("This directory is for sending only: it has no listing.");
  }
  show("Loading");
  const page = await api.list(root.id, path, "");
  if (number === listing) {
    [entries, next] = [page.entries, page.next];
    selected = Math.max(entries.findIndex((entry) => entry.path === name), entries.length > 0 ? 0 : -1);
    draw();
    show(countText());
    focusSelected();
  }
}

async function loadMore() {
  const number = listing;
  const page = await api.list(root.id, path, next);
  if (number === listing) {
    entries.push(...page.entries);
    next = page.next;
    draw();
    show(countText());
    focusSelected();
  }
}

const countText = () => `${entries.length} ${entries.length === 1 ? "entry" : "entries"}${next === null ? "" : ", and more"}`;

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function sizeText(size) {
  let unit = 0;
  while (size >= 1024 && unit + 1 < UNITS.length) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${UNITS[unit]}`;
}

/** Makes control characters of a name visible. */
const visible = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");

function draw() {
  const crumb = (text, depth) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = visible(text);
    button.addEventListener("click", () => attempt(() => ascend(depth)));
    return button;
  };
  const crumbs = [crumb(root?.name ?? "", 0), ...texts.map((text, at) => crumb(text, at + 1))];
  element("crumbs").replaceChildren(...crumbs);
  element("entries").replaceChildren(...entries.map(row));
  element("more").hidden = next === null;
  drawButtons();
}

function drawButtons() {
  const may = root?.read && root?.write;
  const entry = entries[selected];
  element("new-folder").disabled = !root?.write;
  element("rename").disabled = !may || entry === undefined;
  element("delete").disabled = !may || entry === undefined;
  element("download").disabled = entry?.kind !== "file";
}

/** @param {api.Entry} entry @param {number} at */
function row(entry, at) {
  const line = document.createElement("tr");
  const marks = { directory: "/", link: "@", fifo: "|", socket: "=" };
  const cells = [
    visible(entry.text) + (marks[entry.kind] ?? ""),
    entry.kind === "file" ? sizeText(entry.size) : "",
    new Date(entry.mtime * 1000).toLocaleString(),
    entry.mode.toString(8).padStart(4, "0"),
  ];
  for (const text of cells) {
    line.insertCell().textContent = text;
  }
  line.tabIndex = at === selected ? 0 : -1;
  line.setAttribute("aria-selected", String(at === selected));
  line.addEventListener("click", () => select(at));
  line.addEventListener("dblclick", () => attempt(open));
  return line;
}

function select(at) {
  if (entries.length === 0) {
    return;
  }
  const rows = element("entries").rows;
  const mark = (row, is) => {
    row?.setAttribute("aria-selected", String(is));
    if (row !== undefined) {
      row.tabIndex = is ? 0 : -1;
    }
  };
  mark(rows[selected], false);
  selected = Math.min(Math.max(at, 0), entries.length - 1);
  mark(rows[selected], true);
  drawButtons();
  focusSelected();
}

const focusSelected = () => element("entries").rows[selected]?.focus();

/** Enters the selected directory, or downloads the selected file. */
async function open() {
  const entry = entries[selected];
  if (entry?.kind === "directory") {
    path.push(entry.path);
    texts.push(entry.text);
    await reload();
  } else if (entry?.kind === "file") {
    download();
  }
}

/** Shows the directory that is `depth` names below the root. */
async function ascend(depth) {
  const left = path[depth];
  path.length = depth;
  texts.length = depth;
  await reload(left);
}

function download() {
  const entry = entries[selected];
  const link = document.createElement("a");
  link.href = api.fileAddress(root.id, [...path, entry.path]);
  link.download = entry.text;
  link.click();
  show(`Downloading ${visible(entry.text)}`);
}

/**
 * Asks the user. Returns the text of the input, "" if there is none, or null if cancelled.
 * @param {string} title @param {string} text @param {string} [value] without it there is no input
 */
function ask(title, text, value) {
  const dialog = element("dialog");
  const input = element("dialog-input");
  element("dialog-title").textContent = title;
  element("dialog-text").textContent = text;
  input.hidden = value === undefined;
  input.required = value !== undefined;
  input.value = value ?? "";
  dialog.returnValue = "cancel";
  dialog.showModal();
  if (value === undefined) {
    element("dialog-cancel").focus();
  } else {
    input.select();
  }
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok" ? input.value : null), { once: true });
  });
}

async function createFolder() {
  const name = await ask("New folder", "Name of the new folder", "");
  if (name !== null) {
    const encoded = api.encodeName(name);
    await api.createFolder(root.id, [...path, encoded]);
    await reload(encoded);
  }
}

async function rename() {
  const entry = entries[selected];
  const name = await ask("Rename", `New name of ${visible(entry.text)}`, entry.text);
  if (name !== null && name !== entry.text) {
    const encoded = api.encodeName(name);
    await api.rename(root.id, [...path, entry.path], [...path, encoded]);
    await reload(encoded);
  }
}

async function remove() {
  const entry = entries[selected];
  const isDirectory = entry.kind === "directory";
  const what = isDirectory ? "the folder and everything in it" : "the entry";
  if ((await ask("Delete", `Delete ${what}: ${visible(entry.text)}? This cannot be undone.`)) !== null) {
    const neighbour = (entries[selected + 1] ?? entries[selected - 1])?.path;
    await api.remove(root.id, [...path, entry.path], isDirectory);
    await reload(neighbour);
  }
}

/** Actions by key, if a row or nothing has the focus. */
const KEYS = {
  ArrowDown: () => select(selected + 1),
  ArrowUp: () => select(selected - 1),
  Home: () => select(0),
  End: () => select(entries.length - 1),
  PageDown: () => select(selected + 20),
  PageUp: () => select(selected - 20),
  Enter: () => attempt(open),
  Backspace: () => path.length > 0 && attempt(() => ascend(path.length - 1)),
  F2: () => element("rename").click(),
  F7: () => element("new-folder").click(),
  F8: () => element("delete").click(),
  Delete: () => element("delete").click(),
};

document.addEventListener("keydown", (event) => {
  const isListing = !element("files").hidden && !element("dialog").open;
  const isControl = document.activeElement?.matches("input, select, button");
  const action = KEYS[event.key];
  if (!isListing || action === undefined || (isControl && !event.key.startsWith("F"))) {
    return;
  }
  if (event.ctrlKey || event.altKey || event.metaKey) {
    return;
  }
  event.preventDefault();
  action();
});

element("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => showFiles(await api.signIn(element("code").value.trim())));
});
element("sign-out").addEventListener("click", () => attempt(async () => {
  await api.signOut();
  showSignIn();
  show("Signed out.");
}));
element("roots").addEventListener("change", () => attempt(() => enterRoot(roots.find((root) => String(root.id) === element("roots").value))));
element("new-folder").addEventListener("click", () => attempt(createFolder));
element("rename").addEventListener("click", () => attempt(rename));
element("delete").addEventListener("click", () => attempt(remove));
element("download").addEventListener("click", download);
element("more").addEventListener("click", () => attempt(loadMore));

/** Signs in with the code of the link, or continues the session of an earlier visit. */
async function start() {
  const code = location.hash.slice(1);
  if (code !== "") {
    // The code works once; it must not stay in the history.
    history.replaceState(null, "", location.pathname);
    return showFiles(await api.signIn(code));
  }
  try {
    await showFiles(await api.session());
  } catch (error) {
    if (!(error instanceof api.ApiError) || error.status !== 401) {
      throw error;
    }
    showSignIn();
  }
}

attempt(async () => {
  try {
    await start();
  } catch (error) {
    showSignIn();
    throw error;
  }
});
