// The panel of a verification: its progress, the map of objects, and the damaged entries.

import { create, drawLater, textButton } from "./dom.js";
import { MapView } from "./map-view.js";
import { Cell, ObjectMap, damagedObjects, objectsOf } from "./object-map.js";
import { countText, sizeText, visible } from "./text.js";

/** Shortest time between two drawings, in milliseconds. */
const DRAW = 200;

/** Damaged entries that are shown. */
const SHOWN_MAX = 500;

const CELLS = { modified: Cell.changed, rotted: Cell.damaged, missing: Cell.missing };

/** @typedef {import("./verification.js").Verification} Verification */
/** @typedef {import("./verification.js").Damaged} Damaged */

export class VerificationPanel {
  /** @type {Verification | null} */
  #verification = null;
  #drawSoon = drawLater(DRAW, () => this.#draw());
  #listed = 0;

  /**
   * @param {HTMLElement} element
   * @param {{again: () => unknown, repair: (verification: Verification) => unknown, hide: () => unknown}} actions
   */
  constructor(element, actions) {
    this.element = element;
    this.title = create("h2");
    this.buttons = {
      stop: textButton("Stop", () => this.#verification?.stop()),
      repair: textButton("Repair\u2026", () => actions.repair(this.#verification)),
      again: textButton("Verify again", () => actions.again()),
      close: textButton("Close", () => this.close(actions.hide)),
    };
    this.state = create("p", { className: "verify-state", role: "status" });
    this.bar = create("div", { className: "job-bar", role: "progressbar", ariaLabel: "Verification", ariaValueMin: "0", ariaValueMax: "100" });
    this.fill = this.bar.appendChild(create("div", { className: "job-fill" }));
    this.map = new MapView();
    this.notes = create("ul", { className: "job-failures" });
    this.list = create("ul", { className: "verify-list" });
    this.more = create("p", { className: "verify-more" });
    element.replaceChildren(
      create("div", { className: "verify-head" }, this.title, create("span", { className: "job-buttons" }, ...Object.values(this.buttons))),
      this.state, this.bar, this.map.element, this.notes, this.list, this.more);
  }

  /** @param {string} title @param {Verification} verification */
  show(title, verification) {
    this.#verification?.stop();
    this.#verification = verification;
    this.#listed = 0;
    this.title.textContent = title;
    this.list.replaceChildren();
    this.element.hidden = false;
    verification.addEventListener("change", () => this.#drawSoon());
    this.#draw();
  }

  /** @param {() => unknown} hidden */
  close(hidden) {
    this.#verification?.stop();
    this.element.hidden = true;
    hidden();
  }

  #draw() {
    const verification = this.#verification;
    const { state, bytes, total, damaged, damagedCount, notes } = verification;
    const isRunning = state === "running";
    this.element.dataset.state = isRunning ? "running" : verification.isIntact ? "intact" : "bad";
    this.state.textContent = stateText(verification);
    this.bar.hidden = !isRunning;
    const percent = total > 0 ? Math.min(100, Math.floor((100 * bytes) / total)) : 0;
    this.fill.style.setProperty("width", `${percent}%`);
    this.bar.setAttribute("aria-valuenow", String(percent));
    this.map.draw(verification.map);
    this.#drawButtons(isRunning, damagedCount > 0);
    if (this.notes.childElementCount !== notes.length) {
      this.notes.replaceChildren(...notes.map((note) => create("li", {}, visible(note))));
    }
    for (const entry of damaged.slice(this.#listed, SHOWN_MAX)) {
      this.list.append(damagedItem(entry));
    }
    this.#listed = Math.min(damaged.length, SHOWN_MAX);
    const left = damagedCount + verification.counts.unproven - this.#listed;
    this.more.textContent = left > 0 ? `${countText(left, "more entry", "more entries")}.` : "";
  }

  #drawButtons(isRunning, isDamaged) {
    const hadFocus = this.element.contains(document.activeElement);
    this.buttons.stop.hidden = !isRunning;
    this.buttons.again.hidden = isRunning;
    this.buttons.repair.hidden = isRunning || !isDamaged;
    if (hadFocus && document.activeElement.hidden) {
      this.buttons.close.focus();
    }
  }
}

/** @param {Verification} verification */
function stateText({ state, message, counts, bytes, total, flaws, isIntact, foundNone }) {
  const parts = Object.entries(counts).filter(([name, count]) => count > 0 || name === "intact");
  const found = parts.map(([name, count]) => `${count.toLocaleString("en")} ${name === "rotted" ? "damaged" : name}`).join(", ");
  const flawed = flaws > 0 ? `; the waybill has ${countText(flaws, "flaw")}` : "";
  switch (state) {
    case "running":
      return `Reading: ${sizeText(bytes)}${total > 0 ? ` of ${sizeText(total)}` : ""}; ${found}${flawed}`;
    case "stopped":
      return `Stopped: ${found}; the other entries were not verified.`;
    case "failed":
      return `Not complete: ${visible(message)}`;
    default: {
      const none = foundNone ? " No name of the waybill exists here: show the folder that its names start in, and verify that." : "";
      return `${isIntact ? "All intact" : "Complete"}: ${found}; ${sizeText(bytes)} read${flawed}.${none}`;
    }
  }
}

/** @param {Damaged} entry */
function damagedItem(entry) {
  const { name, verdict, detail, size, object, damage } = entry;
  const word = verdict === "rotted" ? "damaged" : verdict;
  const title = create("summary", {}, create("strong", { className: `verify-${verdict}` }, visible(word)), " ", create("bdi", {}, visible(name)));
  const details = create("details", {}, title);
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) {
      const text = [size === null ? "" : sizeText(size), visible(detail), rangesText(damage)].filter(Boolean).join("; ");
      details.append(create("p", {}, text || "No more is known."));
      if (size !== null && CELLS[verdict] !== undefined) {
        const [map, view] = [new ObjectMap(), new MapView()];
        const objects = objectsOf(size, object);
        map.add(objects, CELLS[verdict], damage.length > 0 ? damagedObjects(damage, size, object) : [[0, objects]]);
        view.draw(map);
        details.append(view.element);
      }
    }
  });
  return create("li", {}, details);
}

/** @param {[number, number][]} ranges */
function rangesText(ranges) {
  const shown = ranges.slice(0, 20).map(([start, end]) => `${start.toLocaleString("en")}\u2013${end.toLocaleString("en")}`);
  const more = ranges.length > shown.length ? `, and ${countText(ranges.length - shown.length, "more range")}` : "";
  return ranges.length === 0 ? "" : `damaged bytes ${shown.join(", ")}${more}`;
}
