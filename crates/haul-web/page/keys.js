// The keys of the page: one table for the handlers and for the help.

/**
 * `keys` are values of `KeyboardEvent.key`, with "Ctrl+" and "Shift+" before them. A command works
 * in the list of a pane, and if `isGlobal` also while a button has the focus.
 * @type {{group: string, names: string[], text: string, command?: string, keys?: string[],
 *   isGlobal?: boolean}[]}
 */
export const KEYS = [
  {
    group: "Move",
    names: ["\u2191", "\u2193", "Page Up", "Page Down", "Home", "End"],
    text: "Move the cursor",
  },
  {
    group: "Move",
    names: ["Enter"],
    text: "Open a folder, or save a file by the browser",
    command: "open",
    keys: ["Enter"],
  },
  { group: "Move", names: ["Backspace"], text: "Go to the folder above", command: "up", keys: ["Backspace"] },
  { group: "Move", names: ["Tab"], text: "Go to the other pane", command: "other", keys: ["Tab"] },
  { group: "Move", names: ["Shift+Tab"], text: "Go to the controls of the pane" },
  {
    group: "Move",
    names: ["A to Z, 0 to 9"],
    text: "Go to the next name that starts with the typed characters",
  },
  { group: "Select", names: ["Space"], text: "Select or deselect the entry", command: "toggle", keys: [" "] },
  {
    group: "Select",
    names: ["Insert"],
    text: "The same, and move down",
    command: "toggleDown",
    keys: ["Insert"],
  },
  { group: "Select", names: ["Shift+\u2191", "Shift+\u2193"], text: "Select while the cursor moves" },
  { group: "Select", names: ["Ctrl+A"], text: "Select all", command: "selectAll", keys: ["Ctrl+a"] },
  { group: "Select", names: ["*"], text: "Invert the selection", command: "invert", keys: ["*", "Shift+*"] },
  {
    group: "Select",
    names: ["Escape"],
    text: "Clear the selection, then the filter",
    command: "clear",
    keys: ["Escape"],
  },
  {
    group: "View",
    names: ["/", "Ctrl+F"],
    text: "Filter by text",
    command: "filter",
    keys: ["/", "Shift+/", "Ctrl+f"],
  },
  { group: "View", names: ["."], text: "Show or hide hidden entries", command: "hidden", keys: ["."] },
  {
    group: "View",
    names: ["F3"],
    text: "Sort by the next column",
    command: "sort",
    keys: ["F3"],
    isGlobal: true,
  },
  {
    group: "View",
    names: ["Shift+F3"],
    text: "Reverse the order",
    command: "reverse",
    keys: ["Shift+F3"],
    isGlobal: true,
  },
  {
    group: "View",
    names: ["F9"],
    text: "Load the listing again",
    command: "reload",
    keys: ["F9"],
    isGlobal: true,
  },
  { group: "Files", names: ["F2"], text: "Rename", command: "rename", keys: ["F2"], isGlobal: true },
  {
    group: "Files",
    names: ["F4"],
    text: "Verify the shown folder by a waybill",
    command: "verify",
    keys: ["F4"],
    isGlobal: true,
  },
  {
    group: "Files",
    names: ["F5"],
    text: "Copy to the other pane: upload or download",
    command: "copy",
    keys: ["F5"],
    isGlobal: true,
  },
  {
    group: "Files",
    names: ["F6"],
    text: "Move to the other pane",
    command: "move",
    keys: ["F6"],
    isGlobal: true,
  },
  { group: "Files", names: ["F7"], text: "New folder", command: "newFolder", keys: ["F7"], isGlobal: true },
  {
    group: "Files",
    names: ["F8", "Delete"],
    text: "Delete",
    command: "remove",
    keys: ["F8"],
    isGlobal: true,
  },
  {
    group: "Files",
    names: ["?", "F1"],
    text: "Show these keys",
    command: "help",
    keys: ["F1"],
    isGlobal: true,
  },
];

/** Commands by key. */
const IN_LIST = new Map([
  ["Delete", "remove"],
  ["?", "help"],
  ["Shift+?", "help"],
]);
const GLOBAL = new Map();
for (const { command, keys = [], isGlobal = false } of KEYS) {
  for (const key of keys) {
    IN_LIST.set(key, command);
    if (isGlobal) {
      GLOBAL.set(key, command);
    }
  }
}

/**
 * Steps of the cursor by key.
 * @type {Record<string, (at: number, count: number, page: number) => number>}
 */
const STEPS = {
  ArrowUp: (at) => at - 1,
  ArrowDown: (at) => at + 1,
  PageUp: (at, count, page) => at - page,
  PageDown: (at, count, page) => at + page,
  Home: () => 0,
  End: (at, count) => count - 1,
};

/** Returns the step of the cursor for a key, if it is one. @param {KeyboardEvent} event */
export const stepOf = (event) =>
  event.ctrlKey || event.altKey || event.metaKey ? undefined : STEPS[event.key];

/**
 * Returns the command of a key, or undefined.
 * @param {KeyboardEvent} event @param {boolean} isInList whether the list of a pane has the focus
 */
export function commandOf(event, isInList) {
  if (event.altKey) {
    return undefined;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const name = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + (event.shiftKey ? "Shift+" : "") + key;
  return (isInList ? IN_LIST : GLOBAL).get(name);
}
