// Commands on the entries of one pane: rename, new folder, delete, open.

import { ask, confirm } from "./dialog.js";
import { saveAs } from "./dom.js";
import { countText, nameList, nameProblem, visible } from "./text.js";
import { transferRefusal } from "./transfers.js";

/** @typedef {import("./pane.js").Pane} Pane */
/** @typedef {import("./item.js").Item} Item */

/** Commands of the key bar. */
export const BAR = [
  { command: "help", key: "F1", label: "Keys" },
  { command: "rename", key: "F2", label: "Rename" },
  { command: "verify", key: "F4", label: "Verify" },
  { command: "copy", key: "F5", label: "Copy" },
  { command: "move", key: "F6", label: "Move" },
  { command: "newFolder", key: "F7", label: "New folder" },
  { command: "remove", key: "F8", label: "Delete" },
];

/**
 * Returns the reason why a command is not possible now, or null.
 * @param {string} command @param {Pane} pane @param {Pane} other
 */
export function refusalOf(command, pane, other) {
  const count = pane.listing.selected.size || (pane.listing.cursor < 0 ? 0 : 1);
  if (pane.source === undefined || other.source === undefined || command === "help") {
    return null;
  }
  if (command === "verify") {
    return pane.source.kind === "peer" ? "The page does not verify another server." : pane.source.refusal("read");
  }
  if (command === "newFolder") {
    return pane.source.refusal("create");
  }
  const refusal =
    command === "copy" || command === "move"
      ? transferRefusal(pane, other, command === "move")
      : pane.source.refusal(command);
  if (refusal !== null) {
    return refusal;
  }
  const isAsked = command === "copy" && pane.source.kind === "peer" && pane.listing.state === "failed";
  if (count === 0 && !isAsked) {
    return "Select an entry first.";
  }
  return command === "rename" && count > 1 ? "Select only one entry to rename it." : null;
}

/** @param {Pane} pane @param {(text: string) => void} say */
export async function createFolder(pane, say) {
  const place = visible(pane.placeText);
  const name = await ask("New folder", `Name of the new folder in ${place}`, "", "Create", nameProblem);
  if (name !== null) {
    await pane.source.createFolder(pane.path, name);
    await pane.reload(itemId(pane, name));
    say(`Created the folder ${visible(name)}.`);
  }
}

/** @param {Pane} pane @param {(text: string) => void} say */
export async function rename(pane, say) {
  const [item] = pane.listing.targets;
  const name = await ask("Rename", `New name of ${visible(item.name)}`, item.name, "Rename", nameProblem);
  if (name !== null && (name !== item.name || !item.isText)) {
    await pane.source.rename(pane.path, item, name);
    await pane.reload(itemId(pane, name));
    say(`Renamed ${visible(item.name)} to ${visible(name)}.`);
  }
}

/** Returns the id that a source gives to a name. @param {Pane} pane @param {string} name */
const itemId = (pane, name) => (pane.source.kind === "server" ? encodeURIComponent(name) : name);

/** @param {Pane} pane @param {(text: string, isError?: boolean) => void} say */
export async function remove(pane, say) {
  const items = pane.listing.targets;
  if (pane.source.kind === "chosen") {
    if (pane.path.length > 0) {
      throw new Error("chosen files can only be read; go to the top of the list to remove entries from it");
    }
    items.forEach((item) => pane.source.forget(item));
    await pane.reload();
    say(`Removed ${countText(items.length, "entry", "entries")} from the list. The files stay.`);
    return;
  }
  const folders = items.filter((item) => item.kind === "directory").length;
  const title =
    items.length === 1
      ? `Delete ${visible(items[0].name)}?`
      : `Delete ${countText(items.length, "entry", "entries")}?`;
  const names = items.length === 1 ? "" : `${nameList(items.map((item) => item.name))}.\n`;
  const contents =
    folders === 0
      ? ""
      : folders === 1
        ? " The folder is deleted with everything in it."
        : " Folders are deleted with everything in them.";
  const text = `${names}From ${visible(pane.placeText)}.${contents} This cannot be undone.`;
  if (!(await confirm(title, text, "Delete", true))) {
    return;
  }
  const { source, path } = pane;
  const failures = [];
  for (const [at, item] of items.entries()) {
    if (at % 100 === 99) {
      say(`Deleting: ${at + 1} of ${items.length}`);
    }
    try {
      await source.removeAll(path, item);
    } catch (error) {
      if (error.status === 401) {
        throw error;
      }
      failures.push(`${item.name}: ${error.message}`);
    }
  }
  await pane.reloadIfAt(source, path);
  const done = countText(items.length - failures.length, "entry", "entries");
  if (failures.length === 0) {
    say(`Deleted ${items.length === 1 ? visible(items[0].name) : done}.`);
  } else {
    say(`Deleted ${done}. Cannot delete ${nameList(failures, 3)}.`, true);
  }
}

/**
 * Lets the browser save a file.
 * @param {Pane} pane
 * @param {Item} item
 * @param {(text: string) => void} say
 */
export async function openFile(pane, item, say) {
  const name = visible(item.name);
  if (item.kind !== "file") {
    throw new Error(`cannot open ${name}: only files and folders can be opened`);
  }
  const refusal = pane.source.kind === "server" ? pane.source.refusal("read") : null;
  if (refusal !== null) {
    throw new Error(refusal);
  }
  if (pane.source.kind === "server") {
    saveAs(await pane.source.address(pane.path, item), item.name);
    say(`The browser saves ${name} without a check of its contents. F5 copies and verifies it.`);
  } else if (pane.source.kind === "private") {
    const address = URL.createObjectURL(await item.handle.getFile());
    saveAs(address, item.name);
    // The download has started when the browser is idle again; the address is not needed later.
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    say(`The browser saves ${name}.`);
  } else {
    const where = pane.source.kind === "peer" ? "another server" : "this computer";
    say(`${name} is a file of ${where}. F5 copies it to the other pane.`);
  }
}
