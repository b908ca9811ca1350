// Texts of a pane about its listing.

import { placeText } from "./item.js";
import { LOAD_MAX, totals } from "./listing.js";
import { countText, sizeText, visible } from "./text.js";

/** @typedef {import("./listing.js").Listing} Listing */

/**
 * Returns the number and the size of the selection and of all.
 * @param {Listing} listing
 * @param {{count: number, bytes: number}} all
 */
export function summaryOf({ items, view, selected, state }, all) {
  const count = countText(all.count, "entry", "entries");
  const parts = [`${count}, ${sizeText(all.bytes)}`];
  if (selected.size > 0) {
    const chosen = totals(selected);
    parts[0] = `${chosen.count.toLocaleString("en")} of ${count} selected, ${sizeText(chosen.bytes)} of ${sizeText(all.bytes)}`;
  }
  if (items.length > view.length) {
    parts.push(`${(items.length - view.length).toLocaleString("en")} not shown`);
  }
  if (state === "loading") {
    parts.push("loading\u2026");
  }
  return parts.join(" \u00b7 ");
}

/** Returns the label of the button for more names. @param {Listing} listing */
export function moreText({ items, canLoadMore }) {
  return canLoadMore
    ? `${countText(items.length, "name")} loaded. Show more`
    : `This folder has more than ${LOAD_MAX.toLocaleString("en")} names; the others are not shown`;
}

const OPEN = { label: "Open a folder\u2026", action: "openFolder" };
const CHOOSE = { label: "Choose files\u2026", action: "chooseFiles" };

/**
 * Returns what an empty pane says, and its buttons.
 * @param {Listing} listing
 * @param {import("./item.js").Source} source
 * @param {import("./item.js").Item[]} path
 * @returns {{text: string, buttons: {label: string, action: string}[]}}
 */
export function noticeOf({ state, error, filter, items }, source, path) {
  if (state === "failed") {
    const text = `Cannot list ${visible(placeText(source, path))}: ${visible(error.message)}`;
    return { text, buttons: [{ label: "Try again", action: "reload" }] };
  }
  if (state === "loading") {
    return { text: "Loading\u2026", buttons: [] };
  }
  if (source.unlisted !== null) {
    const more =
      source.kind === "saves"
        ? "F5 in the other pane adds files of the server."
        : "Copy files into it with F5, or drop them here.";
    return { text: `${visible(source.unlisted)} ${more}`, buttons: [] };
  }
  if (source.kind === "chosen" && path.length === 0 && source.isEmpty) {
    const text = "Files of this computer. Open a folder, choose files, or drop them here.";
    return { text, buttons: [OPEN, CHOOSE] };
  }
  if (filter !== "") {
    const text = `No name contains \u201c${visible(filter)}\u201d.`;
    return { text, buttons: [{ label: "Clear the filter", action: "closeFilter" }] };
  }
  if (items.length > 0) {
    const text = `This folder has only ${countText(items.length, "hidden entry", "hidden entries")}.`;
    return { text, buttons: [{ label: "Show hidden entries", action: "hidden" }] };
  }
  if (source.kind === "private" && path.length === 0) {
    return { text: "No downloads are stored in this browser.", buttons: [] };
  }
  return { text: "This folder is empty.", buttons: [] };
}
