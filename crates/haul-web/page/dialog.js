// Questions to the user, in dialogs that block the page.

import { create } from "./dom.js";
import { KEYS } from "./keys.js";

/** True while a dialog is open. */
export const isAsking = () => document.querySelector("dialog[open]") !== null;

let dialogs = 0;

/**
 * Shows a dialog until a button is pressed. Returns the value of the button, "" after Escape.
 * @param {string} title @param {Node[]} body
 * @param {{value: string, label: string, isMain?: boolean, isDanger?: boolean}[]} buttons
 * @param {HTMLElement} [focused] element that gets the focus
 * @returns {Promise<string>}
 */
function show(title, body, buttons, focused) {
  const heading = create("h2", { id: `dialog-${++dialogs}`, textContent: title });
  const row = create("div", { className: "dialog-buttons" });
  for (const { value, label, isMain, isDanger } of buttons) {
    const className = isDanger ? "danger" : isMain ? "primary" : "";
    const isLeave = value === "";
    row.append(
      create("button", {
        type: isLeave ? "button" : "submit",
        value,
        className,
        textContent: label,
        formNoValidate: isLeave,
      }),
    );
  }
  const form = create("form", { method: "dialog" }, heading, ...body, row);
  const dialog = create("dialog", {}, form);
  dialog.setAttribute("aria-labelledby", heading.id);
  document.body.append(dialog);
  for (const button of row.querySelectorAll('button[type="button"]')) {
    button.addEventListener("click", () => dialog.close(""));
  }
  const before = document.activeElement;
  dialog.showModal();
  (focused ?? row.querySelector("button.primary") ?? row.lastElementChild).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus?.({ preventScroll: true });
      resolve(dialog.returnValue);
    });
  });
}

const paragraphs = (text) => text.split("\n").map((line) => create("p", { textContent: line }));

/**
 * Asks whether to do something. @param {string} title @param {string} text paragraphs by line
 * @param {string} label of the button that does it @param {boolean} [isDanger]
 */
export async function confirm(title, text, label, isDanger = false) {
  const buttons = [
    { value: "", label: "Cancel", isMain: isDanger },
    { value: "yes", label, isDanger, isMain: !isDanger },
  ];
  const body = paragraphs(text);
  return (await show(title, body, buttons)) === "yes";
}

/**
 * Asks which of several ways to take. Returns "" if none.
 * @param {string} title
 * @param {string} text
 * @param {{value: string, label: string, isMain?: boolean, isDanger?: boolean}[]} ways
 */
export function choose(title, text, ways) {
  return show(title, paragraphs(text), [{ value: "", label: "Cancel" }, ...ways]);
}

/**
 * Asks for a text. Returns null if cancelled.
 * @param {string} title @param {string} text @param {string} value
 * @param {string} label of the button
 * @param {(text: string) => string} problem returns "" for a valid text
 */
export async function ask(title, text, value, label, problem) {
  const input = create("input", { value, autocomplete: "off", spellcheck: false, name: "text" });
  const check = () => input.setCustomValidity(problem(input.value));
  input.addEventListener("input", check);
  check();
  const field = create("label", { className: "field" }, create("span", { textContent: text }), input);
  const answer = show(
    title,
    [field],
    [
      { value: "", label: "Cancel" },
      { value: "ok", label, isMain: true },
    ],
    input,
  );
  // The end of a name is mostly the type of the file, which stays.
  const end = value.lastIndexOf(".");
  input.setSelectionRange(0, end > 0 ? end : value.length);
  return (await answer) === "ok" ? input.value : null;
}

/** Shows a link that signs another browser in. @param {string} link */
export async function showLink(link) {
  const input = create("input", { value: link, readOnly: true, spellcheck: false });
  const text = "This link works once, within 15 minutes, and gives another browser the same rights.";
  const field = create("label", { className: "field" }, create("span", { textContent: text }), input);
  const answer = show(
    "Link for another browser",
    [field],
    [{ value: "", label: "Close", isMain: true }],
    input,
  );
  input.select();
  await answer;
}

/** Shows all keys. */
export async function showHelp() {
  const groups = new Map();
  for (const { group, names, text } of KEYS) {
    const list = groups.get(group) ?? create("dl");
    groups.set(group, list);
    const keys = names.map((name) => create("kbd", { textContent: name }));
    list.append(create("div", {}, create("dt", {}, ...keys), create("dd", { textContent: text })));
  }
  const sections = [...groups].map(([group, list]) =>
    create("section", {}, create("h3", { textContent: group }), list),
  );
  const body = create(
    "div",
    { className: "help", tabIndex: 0, role: "region", ariaLabel: "Keys" },
    ...sections,
  );
  await show("Keys", [body], [{ value: "", label: "Close", isMain: true }]);
}
