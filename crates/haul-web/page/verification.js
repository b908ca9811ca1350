// A verification by a waybill: counts, the map of objects and the damaged entries. Without the DOM.

import { Cell, ObjectMap, damagedObjects, objectsOf } from "./object-map.js";

/** Damaged entries that are kept. More are counted only. */
const DAMAGED_MAX = 10_000;

/** Flaws of the waybill, and notes, that are kept. */
const NOTES_MAX = 20;

/** Words of the server and their cells. */
const CELLS = {
  intact: Cell.intact,
  passed: Cell.intact,
  unproven: Cell.unproven,
  unreadable: Cell.unproven,
  modified: Cell.changed,
  rotted: Cell.damaged,
  missing: Cell.missing,
};

/**
 * An entry that is not intact. `size` is the recorded size of a file, else null. `path` is null if
 * it is not UTF-8: the server names it, and the page cannot repair it.
 * @typedef {{path: string | null, name: string, verdict: string, detail: string, size: number | null,
 *   object: number | undefined, blake3: string | null, damage: [number, number][]}} Damaged
 */

/** Returns a whole number that is not negative. @param {unknown} value */
const whole = (value) => (Number.isSafeInteger(value) && value >= 0 ? value : 0);

/** @param {unknown} value */
const text = (value) => (typeof value === "string" ? value.toWellFormed() : "");

/** Events: "change" and "end". */
export class Verification extends EventTarget {
  /** @type {"running" | "ended" | "stopped" | "failed"} */
  state = "running";
  message = "";
  counts = { intact: 0, modified: 0, rotted: 0, missing: 0, unproven: 0 };
  bytes = 0;
  total = 0;
  map = new ObjectMap();
  /** @type {Damaged[]} */
  damaged = [];
  /** @type {string[]} */
  notes = [];
  /** Flaws of the waybill. */
  flaws = 0;
  #stop = new AbortController();

  /** True if all was read, and all is intact. */
  get isIntact() {
    return this.state === "ended" && this.damagedCount === 0 && this.counts.unproven + this.flaws === 0;
  }

  /** Number of entries with damage. */
  get damagedCount() {
    const { modified, rotted, missing } = this.counts;
    return modified + rotted + missing;
  }

  /** True if no name of the waybill exists: usually it is about another folder. */
  get foundNone() {
    const { intact, modified, rotted, missing, unproven } = this.counts;
    return missing > 0 && intact + modified + rotted + unproven === 0;
  }

  /** True if no name exists, and all of them start with this one. @param {string} name */
  isAllBeneath(name) {
    return this.state === "ended" && this.foundNone && this.damaged.every(({ path }) => path?.startsWith(`${name}/`) || path === name);
  }

  /** Takes the events until the last one. @param {(signal: AbortSignal) => AsyncIterable<any>} events */
  async run(events) {
    try {
      for await (const event of events(this.#stop.signal)) {
        this.#take(event);
        if (this.state !== "running") {
          break;
        }
      }
      if (this.state === "running") {
        this.#end("failed", "the connection was lost; verify again");
      }
    } catch (error) {
      if (this.state === "running") {
        this.#end(this.#stop.signal.aborted ? "stopped" : "failed", error.message);
        if (error.status === 401) {
          throw error;
        }
      }
    }
  }

  stop() {
    if (this.state === "running") {
      this.#stop.abort();
      this.#end("stopped", "");
    }
  }

  #end(state, message) {
    [this.state, this.message] = [state, message];
    this.#stop.abort();
    this.dispatchEvent(new Event("change"));
    this.dispatchEvent(new Event("end"));
  }

  /** @param {any} event of the server, which can be hostile */
  #take(event) {
    switch (event?.event) {
      case "entry":
        this.#entry(event);
        return;
      case "progress":
        this.bytes = whole(event.bytes);
        this.total = whole(event.total);
        break;
      case "flaw":
        this.flaws += 1;
        this.#note(`The waybill: ${text(event.message)}`);
        break;
      case "summary":
        this.bytes = whole(event.bytes);
        this.flaws = whole(event.flaws);
        this.#end(event.interrupted === true ? "stopped" : "ended", "");
        return;
      case "error":
        this.#end("failed", text(event.message));
        return;
      default:
    }
    this.dispatchEvent(new Event("change"));
  }

  #note(note) {
    if (this.notes.length < NOTES_MAX) {
      this.notes.push(note);
    }
  }

  #entry({ path, path_base64: encoded, verdict, detail, size, object, blake3, damage }) {
    const cell = CELLS[verdict] ?? Cell.unproven;
    const name = { [Cell.unproven]: "unproven", [Cell.changed]: "modified", [Cell.damaged]: "rotted", [Cell.missing]: "missing" };
    this.counts[name[cell] ?? "intact"] += 1;
    const isFile = Number.isSafeInteger(size) && size >= 0;
    const bytes = Number.isSafeInteger(object) && object > 0 ? object : undefined;
    const ranges = Array.isArray(damage) ? damage.filter((range) => range?.length === 2).map((range) => range.map(whole)) : [];
    if (isFile) {
      const objects = objectsOf(size, bytes);
      const marked = ranges.length > 0 ? damagedObjects(ranges, size, bytes) : [[0, objects]];
      this.map.add(objects, cell, cell === Cell.intact ? [] : marked);
    }
    if (cell !== Cell.intact && this.damaged.length < DAMAGED_MAX) {
      const isText = typeof path === "string" && path.isWellFormed();
      this.damaged.push({
        path: isText ? path : null,
        name: isText ? path : text(path) || `${text(encoded)} (base64)`,
        verdict: text(verdict),
        detail: text(detail),
        size: isFile ? size : null,
        object: bytes,
        blake3: typeof blake3 === "string" ? blake3 : null,
        damage: ranges,
      });
    }
  }
}
