// The rows of a pane's list, and its header.

import { create, icon, setIcon } from "./dom.js";
import { sizeText, timeText, visible } from "./text.js";

/** Texts in the column of sizes for what has none, and drawings. */
const KINDS = {
  file: { text: "", icon: "file" },
  directory: { text: "folder", icon: "folder" },
  link: { text: "link", icon: "link" },
  fifo: { text: "pipe", icon: "special" },
  socket: { text: "socket", icon: "special" },
  device: { text: "device", icon: "special" },
  unknown: { text: "unknown", icon: "special" },
};

/** Columns that sort. @type {["name" | "size" | "time", string][]} */
const COLUMNS = [
  ["name", "Name"],
  ["size", "Size"],
  ["time", "Modified"],
];

/**
 * Creates the header row and the element that holds the rows.
 * @param {(by: "name" | "size" | "time") => void} sort
 */
export function createHead(sort) {
  const head = create("div", { className: "row head", role: "row", ariaRowIndex: "1" });
  for (const [by, label] of COLUMNS) {
    const button = create(
      "button",
      { type: "button", title: `Sort by ${label.toLowerCase()}`, tabIndex: 0 },
      label,
      icon("sort"),
    );
    button.addEventListener("click", () => sort(by));
    const cell = create("div", { className: `cell ${by}`, role: "columnheader" }, button);
    cell.dataset.by = by;
    head.append(cell);
  }
  head.append(create("div", { className: "cell mode", role: "columnheader", textContent: "Mode" }));
  return head;
}

/**
 * Shows the order in the header.
 * @param {HTMLElement} head
 * @param {import("./order.js").Order} order
 */
export function markOrder(head, { by, isDescending }) {
  for (const cell of head.children) {
    const sort = isDescending ? "descending" : "ascending";
    cell.ariaSort = cell.dataset.by === by ? sort : null;
  }
}

/** Creates a row without contents. @param {string} id */
export function createRow(id) {
  const mark = create("span", { className: "mark" }, icon("file"));
  const cell = (name, ...children) =>
    create("div", { className: `cell ${name}`, role: "gridcell" }, ...children);
  const row = create(
    "div",
    { className: "row", role: "row", id, draggable: true },
    cell("name", mark, create("bdi")),
    cell("size"),
    cell("time"),
    cell("mode"),
  );
  return row;
}

/**
 * @param {HTMLElement} row @param {import("./item.js").Item} item @param {number} index
 * @param {boolean} isSelected @param {boolean} isCursor
 */
export function fillRow(row, item, index, isSelected, isCursor) {
  const [name, size, time, mode] = row.children;
  const kind = KINDS[item.kind];
  const text = visible(item.name);
  const warning = item.isText ? "" : " (the name is not UTF-8)";
  name.lastChild.textContent = text;
  name.title = text + warning;
  setIcon(name.firstChild.firstChild, isSelected ? "check" : kind.icon);
  size.textContent = item.kind !== "file" ? kind.text : item.size === null ? "" : sizeText(item.size);
  time.textContent = item.time === null ? "" : timeText(item.time);
  mode.textContent = item.mode === null ? "" : item.mode.toString(8).padStart(4, "0");
  row.index = index;
  row.ariaRowIndex = String(index + 2);
  row.ariaSelected = String(isSelected);
  row.className = `row ${item.kind}${isCursor ? " cursor" : ""}${item.name[0] === "." ? " dotted" : ""}${item.isText ? "" : " bytes"}`;
}
