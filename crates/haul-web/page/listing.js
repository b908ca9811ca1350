// The entries of one directory: loaded page by page, sorted, filtered and selected. It draws nothing.

import { arrange, comparison, merge } from "./order.js";

/** @typedef {import("./item.js").Item} Item */

/** Entries that are loaded before the user has to ask for more. */
export const LOAD_STEP = 100_000;

/** Entries that a page keeps: the rows of more would be higher than browsers can scroll. */
export const LOAD_MAX = 400_000;

/** Details of local files that are asked for at once. */
const DETAILS_AT_ONCE = 16;

/** Time between two events while details arrive, in milliseconds. */
const DETAIL_EVENTS = 150;

/** Entries on each side of the cursor that may take its place when they are listed again. */
const NEIGHBOURS = 1000;

/**
 * Returns the entries of a directory as it is now, or null if they cannot all be listed.
 * @param {import("./item.js").Source} source @param {Item[]} path
 */
export async function entriesNow(source, path) {
  const items = [];
  if (source.unlisted !== null) {
    return null;
  }
  for await (const page of source.list(path)) {
    items.push(...page);
    if (items.length > LOAD_STEP) {
      return null;
    }
  }
  return items;
}

/** Events: "change" when rows or the selection changed. */
export class Listing extends EventTarget {
  /** All entries that were loaded. @type {Item[]} */
  items = [];
  /** Entries that are shown, in order. @type {Item[]} */
  view = [];
  /** Number of changes of sizes and times. */
  details = 0;
  /** @type {Set<Item>} */
  selected = new Set();
  /** Index in `view`, -1 if that is empty. */
  cursor = -1;
  /** @type {"loading" | "complete" | "partial" | "failed"} */
  state = "complete";
  /** @type {Error | null} */
  error = null;
  /** @type {import("./order.js").Order} */
  order = { by: "name", isDescending: false };
  filter = "";
  showsHidden = false;

  #source = null;
  /** Iterator over the pages that follow. */
  #pages = null;
  #limit = LOAD_STEP;
  /** Number of the latest load: pages of earlier ones are ignored. */
  #load = 0;
  #arrangement = 0;
  #isArranging = false;
  /** Name under the cursor when the rows are next in order. @type {string | null} */
  #wanted = null;

  /**
   * Loads a directory, and shows its pages as they arrive.
   * @param {import("./item.js").Source} source @param {Item[]} path
   * @param {string | null} [wanted] id of the entry that gets the cursor
   */
  async load(source, path, wanted = null) {
    this.#start(source, path);
    [this.items, this.view, this.cursor, this.filter] = [[], [], -1, ""];
    this.selected.clear();
    this.#wanted = wanted;
    this.#limit = LOAD_STEP;
    this.#changed();
    await this.#pullRows();
  }

  /**
   * Loads the directory again. The entries of before stay until all of the new ones are there; so
   * do the selection and the cursor.
   * @param {import("./item.js").Source} source @param {Item[]} path
   * @param {string | null} [wanted] id of the entry that gets the cursor
   */
  async reload(source, path, wanted = null) {
    const load = this.#start(source, path);
    const items = [];
    /** @type {Map<string, Item>} */
    const known = new Map();
    const take = (page) => {
      items.push(...page);
      page.forEach((item) => known.set(item.id, item));
    };
    await this.#pull(load, take, () => items.length);
    if (load !== this.#load || this.state === "failed") {
      return;
    }
    const { view, cursor } = this;
    const idsOf = (from, to) => view.slice(Math.max(from, 0), Math.max(to, 0)).map((item) => item.id);
    // The neighbours take the cursor if its entry is gone.
    const after = idsOf(cursor, cursor + NEIGHBOURS);
    const before = idsOf(cursor - NEIGHBOURS, cursor).reverse();
    this.#wanted =
      [...(wanted === null ? [] : [wanted]), ...after, ...before].find((id) => known.has(id)) ?? null;
    this.items = items;
    this.selected = new Set([...this.selected].map((item) => known.get(item.id)).filter((item) => item));
    await this.#arrange();
    this.#fillDetails(load);
  }

  /** Loads the entries beyond the limit. */
  async loadMore() {
    if (this.state === "partial" && this.#limit < LOAD_MAX) {
      this.#limit = Math.min(this.#limit + LOAD_STEP, LOAD_MAX);
      this.state = "loading";
      this.#changed();
      await this.#pullRows();
    }
  }

  /** True if the next call of `loadMore` loads something. */
  get canLoadMore() {
    return this.state === "partial" && this.#limit < LOAD_MAX;
  }

  #start(source, path) {
    this.#source = source;
    this.#pages?.return?.();
    this.#pages = source.unlisted === null ? source.list(path)[Symbol.asyncIterator]() : null;
    [this.state, this.error] = ["loading", null];
    return ++this.#load;
  }

  /** Shows the pages up to the limit as they arrive. */
  async #pullRows() {
    const load = this.#load;
    await this.#pull(load, (page) => this.#append(page));
    this.#fillDetails(load);
  }

  /**
   * Takes pages until there are more entries than the limit: only then is it known that more follow.
   * @param {number} load
   * @param {(page: Item[]) => void} take
   * @param {() => number} [count] entries until now
   */
  async #pull(load, take, count = () => this.items.length) {
    try {
      while (this.#pages !== null && count() <= this.#limit) {
        const page = await this.#pages.next();
        if (load !== this.#load) {
          return;
        }
        if (page.done) {
          this.#pages = null;
          break;
        }
        take(page.value);
      }
      this.state = this.#pages === null ? "complete" : "partial";
    } catch (error) {
      if (load !== this.#load) {
        return;
      }
      this.#pages = null;
      [this.state, this.error] = ["failed", error];
    }
    this.#changed();
    if (this.error !== null) {
      throw this.error;
    }
  }

  /** @param {Item[]} page */
  #append(page) {
    this.items.push(...page);
    if (!this.#isArranging) {
      const compare = comparison(this.order);
      this.#show(merge(this.view, page.filter((item) => this.#passes(item)).sort(compare), compare));
    }
  }

  /** @param {Item} item */
  #passes(item) {
    return (
      (this.showsHidden || item.name[0] !== ".") && (this.filter === "" || item.lower.includes(this.filter))
    );
  }

  /** Sorts and filters all entries anew. */
  async #arrange() {
    const number = ++this.#arrangement;
    this.#isArranging = true;
    for (;;) {
      const { items } = this;
      const length = items.length;
      const view = await arrange(
        items,
        (item) => this.#passes(item),
        comparison(this.order),
        () => number === this.#arrangement,
      );
      if (view === null) {
        return;
      }
      // Pages can arrive in the meantime.
      if (items === this.items && length === items.length) {
        this.#isArranging = false;
        this.#show(view);
        return;
      }
    }
  }

  /** @param {Item[]} view */
  #show(view) {
    const held = this.view[this.cursor];
    this.view = view;
    const wanted = this.#wanted === null ? -1 : view.findIndex((item) => item.id === this.#wanted);
    if (wanted >= 0) {
      [this.cursor, this.#wanted] = [wanted, null];
    } else {
      const at = held === undefined ? -1 : view.indexOf(held);
      this.cursor = at >= 0 ? at : Math.min(Math.max(this.cursor, 0), view.length - 1);
    }
    // What is not shown is not selected: an action never concerns entries that the user does not see.
    if (this.selected.size > 0 && view.length < this.items.length) {
      const shown = new Set(view);
      this.selected = new Set([...this.selected].filter((item) => shown.has(item)));
    }
    this.#changed();
  }

  /** @param {import("./order.js").Order["by"]} by a second call with the same order reverses it */
  async sortBy(by) {
    const isSame = this.order.by === by;
    this.order = { by, isDescending: isSame && !this.order.isDescending };
    await this.#arrange();
  }

  /** Sorts by the next column. */
  async sortByNext() {
    const columns = ["name", "size", "time"];
    this.order = { by: columns[(columns.indexOf(this.order.by) + 1) % columns.length], isDescending: false };
    await this.#arrange();
  }

  /** @param {string} text */
  async setFilter(text) {
    this.filter = text.toLowerCase();
    await this.#arrange();
  }

  /** @param {boolean} shows */
  async setShowsHidden(shows) {
    this.showsHidden = shows;
    await this.#arrange();
  }

  /**
   * Moves the cursor, and selects all entries that it passes if `selects`.
   * @param {number} index
   */
  moveTo(index, selects = false) {
    if (this.view.length === 0) {
      return;
    }
    const to = Math.min(Math.max(index, 0), this.view.length - 1);
    if (selects) {
      const [first, last] = [Math.min(this.cursor, to), Math.max(this.cursor, to)];
      this.view.slice(first, last + 1).forEach((item) => this.selected.add(item));
    }
    this.cursor = to;
    this.#changed();
  }

  /** @param {number} index */
  toggle(index) {
    const item = this.view[index];
    if (item !== undefined && !this.selected.delete(item)) {
      this.selected.add(item);
    }
    this.#changed();
  }

  selectAll() {
    this.selected = new Set(this.view);
    this.#changed();
  }

  invert() {
    this.selected = new Set(this.view.filter((item) => !this.selected.has(item)));
    this.#changed();
  }

  clearSelection() {
    if (this.selected.size > 0) {
      this.selected = new Set();
      this.#changed();
    }
  }

  /**
   * Entries that an action concerns: the selected ones, else the one under the cursor.
   * @returns {Item[]}
   */
  get targets() {
    if (this.selected.size > 0) {
      return this.view.filter((item) => this.selected.has(item));
    }
    return this.cursor < 0 ? [] : [this.view[this.cursor]];
  }

  /**
   * Asks the source for sizes and times that it does not give with the names.
   * @param {number} load
   */
  async #fillDetails(load) {
    if (load !== this.#load || this.#source.detail === undefined) {
      return;
    }
    const missing = this.items.filter((item) => item.kind === "file" && item.size === null);
    let shown = performance.now();
    for (let at = 0; at < missing.length && load === this.#load; at += DETAILS_AT_ONCE) {
      const part = missing.slice(at, at + DETAILS_AT_ONCE);
      // A file that cannot be read keeps an empty size; a copy of it reports the reason.
      await Promise.allSettled(part.map((item) => this.#source.detail(item)));
      if (load === this.#load && performance.now() - shown > DETAIL_EVENTS) {
        shown = performance.now();
        this.details += 1;
        this.#changed();
      }
    }
    if (load === this.#load && missing.length > 0) {
      this.details += 1;
      await (this.order.by === "name" ? this.#changed() : this.#arrange());
    }
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Returns the number and the bytes of items. @param {Iterable<Item>} items */
export function totals(items) {
  let [count, bytes] = [0, 0];
  for (const item of items) {
    count += 1;
    bytes += item.size ?? 0;
  }
  return { count, bytes };
}
