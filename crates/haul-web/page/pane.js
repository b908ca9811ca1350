// A pane: the listing of one directory with its location, path, filter and totals.

import { create, textButton } from "./dom.js";
import { listenToDrags } from "./drags.js";
import { createFrame } from "./frame.js";
import { isSamePath, isServer, placeText } from "./item.js";
import { commandOf, stepOf } from "./keys.js";
import { VirtualList } from "./list.js";
import { Listing, totals } from "./listing.js";
import { moreText, noticeOf, summaryOf } from "./notice.js";
import { createRow, fillRow, markOrder } from "./row.js";
import { visible } from "./text.js";

/** @typedef {import("./item.js").Item} Item */
/** @typedef {import("./item.js").Source} Source */

/** Time after which the next typed character starts another name, in milliseconds. */
const TYPING = 800;

/** Value of the choice of another server that is not known yet. */
export const ADD_PEER = "add-peer";

/** Events: "change" when the rows, the selection or the place changed. */
export class Pane extends EventTarget {
  listing = new Listing();
  /** Directories from the top of the source to the shown one. @type {Item[]} */
  path = [];
  /** @type {Source | undefined} */
  source;
  #drawnView = [];
  /** Entry to scroll to as soon as it is loaded. @type {string | null} */
  #wanted = null;
  #typed = { text: "", at: 0 };
  #totals = { of: null, details: 0, value: { count: 0, bytes: 0 } };

  /**
   * @param {HTMLElement} element @param {string} side "left" or "right"
   * @param {(command: string, pane: Pane, detail?: unknown) => void} perform runs a command of the page
   */
  constructor(element, side, perform) {
    super();
    this.element = element;
    this.side = side;
    this.perform = perform;
    Object.assign(this, createFrame(this));
    let rows = 0;
    this.list = new VirtualList(
      this.grid,
      () => createRow(`${side}-row-${rows++}`),
      (row, index) => {
        const { view, selected, cursor } = this.listing;
        fillRow(row, view[index], index, selected.has(view[index]), index === cursor);
      },
    );
    this.listing.addEventListener("change", () => this.#draw());
    this.#listen();
  }

  #listen() {
    const { grid } = this;
    this.element.addEventListener("focusin", () => this.perform("activate", this));
    grid.addEventListener("keydown", (event) => this.#onKey(event));
    grid.addEventListener("click", (event) => this.#onClick(event));
    grid.addEventListener("dblclick", (event) => {
      if (this.#indexAt(event) >= 0 && !event.target.closest(".mark")) {
        this.run("open");
      }
    });
    this.filterInput.addEventListener("input", () => this.listing.setFilter(this.filterInput.value));
    this.filterInput.addEventListener("keydown", (event) => {
      if (event.key === "Escape" || event.key === "Enter" || event.key === "ArrowDown") {
        event.preventDefault();
        return event.key === "Escape" ? this.#closeFilter() : grid.focus();
      }
    });
    this.moreButton.addEventListener("click", () => {
      grid.focus({ preventScroll: true });
      this.#settle(this.listing.loadMore());
    });
    this.places.addEventListener("change", () => this.perform("enterPlace", this, this.places.value));
    listenToDrags(this, (event) => this.#indexAt(event));
  }

  /** Text of the shown directory. */
  get placeText() {
    return this.source === undefined ? "" : placeText(this.source, this.path);
  }

  /** @param {Event} event */
  #indexAt(event) {
    return event.target.closest(".row:not(.head)")?.index ?? -1;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.target !== this.grid) {
      return;
    }
    const step = stepOf(event);
    const command = commandOf(event, true);
    if (step !== undefined) {
      this.#moveTo(step(this.listing.cursor, this.listing.view.length, this.list.pageRows), event.shiftKey);
    } else if (command !== undefined) {
      this.run(command);
    } else if (!event.ctrlKey && !event.altKey && !event.metaKey && event.key.length === 1) {
      this.#seek(event.key);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Moves to the next name that starts with the typed characters. @param {string} char */
  #seek(char) {
    const now = performance.now();
    const isSame = now - this.#typed.at < TYPING;
    const text = (isSame ? this.#typed.text : "") + char.toLowerCase();
    this.#typed = { text, at: now };
    const { view, cursor } = this.listing;
    const from = cursor + (text.length > 1 ? 0 : 1);
    const fits = (item) => item.lower.startsWith(text);
    const later = view.findIndex((item, at) => at >= from && fits(item));
    const found = later >= 0 ? later : view.findIndex(fits);
    if (found >= 0) {
      this.#moveTo(found);
    }
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const index = this.#indexAt(event);
    if (index < 0) {
      return;
    }
    this.grid.focus({ preventScroll: true });
    const isMark = event.target.closest(".mark") !== null;
    if (event.shiftKey) {
      this.#moveTo(index, true);
    } else if (event.ctrlKey || event.metaKey || isMark) {
      this.#moveTo(index);
      this.listing.toggle(index);
    } else if (event.pointerType === "touch" && this.listing.view[index].kind === "directory") {
      this.#moveTo(index);
      this.run("open");
    } else {
      this.listing.clearSelection();
      this.#moveTo(index);
    }
  }

  #moveTo(index, selects = false) {
    this.listing.moveTo(index, selects);
    if (this.listing.cursor >= 0) {
      this.list.reveal(this.listing.cursor);
    }
  }

  /** Runs a command: of the pane, or else of the page. @param {string} command */
  run(command) {
    const { listing } = this;
    const own = {
      open: () => this.#open(),
      up: () => this.path.length > 0 && this.ascend(this.path.length - 1),
      toggle: () => listing.toggle(listing.cursor),
      toggleDown: () => (listing.toggle(listing.cursor), this.#moveTo(listing.cursor + 1)),
      selectAll: () => listing.selectAll(),
      invert: () => listing.invert(),
      clear: () => (listing.selected.size > 0 ? listing.clearSelection() : this.#closeFilter()),
      filter: () => this.#openFilter(),
      closeFilter: () => this.#closeFilter(),
      sort: () => listing.sortByNext(),
      reverse: () => listing.sortBy(listing.order.by),
      hidden: () => listing.setShowsHidden(!listing.showsHidden),
      reload: () => this.reload(),
    }[command];
    own === undefined ? this.perform(command, this) : own();
  }

  #openFilter() {
    this.filterBar.hidden = false;
    this.filterInput.focus();
    this.filterInput.select();
  }

  #closeFilter() {
    this.filterBar.hidden = true;
    this.grid.focus();
    if (this.listing.filter !== "") {
      this.filterInput.value = "";
      this.listing.setFilter("");
    }
  }

  #open() {
    const item = this.listing.view[this.listing.cursor];
    if (item?.kind === "directory") {
      this.enter(this.source, [...this.path, item]);
    } else if (item !== undefined) {
      this.perform("openFile", this, item);
    }
  }

  /** Shows the directory `depth` levels below the top. @param {number} depth */
  ascend(depth) {
    return this.enter(this.source, this.path.slice(0, depth), this.path[depth]?.id);
  }

  /**
   * Shows a directory. @param {Source} source @param {Item[]} path
   * @param {string} [wanted] id of the entry that gets the cursor
   */
  enter(source, path, wanted) {
    [this.source, this.path] = [source, path];
    this.element.dataset.kind = source.kind;
    this.places.value = source.id;
    this.filterInput.value = "";
    this.filterBar.hidden = true;
    this.#wanted = wanted ?? null;
    this.grid.scrollTop = 0;
    this.#drawCrumbs();
    return this.#settle(this.listing.load(source, path, wanted ?? null));
  }

  /** Loads the entries again. @param {string} [wanted] id of the entry that gets the cursor */
  async reload(wanted) {
    if (this.source !== undefined) {
      this.#wanted = wanted ?? null;
      await this.#settle(this.listing.reload(this.source, this.path, wanted ?? null));
    }
  }

  /**
   * Loads the entries again if a directory is shown.
   * @param {Source} source
   * @param {Item[]} path
   */
  async reloadIfAt(source, path) {
    if (this.source === source && isSamePath(this.path, path)) {
      await this.reload();
    }
  }

  /**
   * Reports a failed load: the pane shows it, and the page may have to ask for a sign-in.
   * @param {Promise<void>} load
   */
  async #settle(load) {
    await load.catch((error) => this.perform("failed", this, error));
  }

  /**
   * Shows the sources that a user can choose.
   * @param {Source[]} sources @param {boolean} hasPeers whether other servers can be added
   */
  setPlaces(sources, hasPeers) {
    const group = (label, kinds, more = []) => {
      const members = sources.filter((source) => kinds.includes(source.kind));
      const options = members.map((source) => new Option(visible(source.title), source.id));
      return create("optgroup", { label }, ...options, ...more);
    };
    const peers = group("Other servers", ["peer"], [new Option("Add by a ticket\u2026", ADD_PEER)]);
    this.places.replaceChildren(
      group("This computer", ["chosen", "folder", "private", "saves"]),
      group("Server", ["server"]),
      ...(hasPeers ? [peers] : []),
    );
    this.showPlace();
  }

  /** Shows the place of the pane in the list of places, also after a choice that was not carried out. */
  showPlace() {
    if (this.source !== undefined) {
      this.places.value = this.source.id;
    }
  }

  focus() {
    this.grid.focus({ preventScroll: true });
  }

  #drawCrumbs() {
    const crumb = (text, depth) => {
      const button = textButton(visible(text), () => {
        this.ascend(depth);
        this.grid.focus();
      });
      button.title = button.textContent;
      if (depth === this.path.length) {
        button.ariaCurrent = "page";
      }
      return button;
    };
    this.crumbs.replaceChildren(
      crumb(this.source.title, 0),
      ...this.path.map((step, at) => crumb(step.name, at + 1)),
    );
    this.crumbs.scrollLeft = this.crumbs.scrollWidth;
    const isRemote = isServer(this.source);
    this.openButton.hidden = isRemote;
    this.filesButton.hidden = isRemote;
  }

  #draw() {
    const { listing, grid, list } = this;
    const { view } = listing;
    if (view !== this.#drawnView) {
      this.#holdPosition(view);
    }
    list.refresh(view.length);
    grid.ariaRowCount = String(listing.state === "partial" ? -1 : view.length + 1);
    grid.ariaBusy = String(listing.state === "loading");
    if (this.#wanted !== null && view[listing.cursor]?.id === this.#wanted) {
      this.#wanted = null;
      list.reveal(listing.cursor);
    }
    requestAnimationFrame(() => {
      const row = list.row(listing.cursor);
      row === undefined
        ? grid.removeAttribute("aria-activedescendant")
        : grid.setAttribute("aria-activedescendant", row.id);
    });
    markOrder(list.head, listing.order);
    this.hiddenButton.ariaPressed = String(listing.showsHidden);
    this.filterButton.ariaPressed = String(listing.filter !== "");
    this.moreButton.hidden = listing.state !== "partial";
    this.moreButton.disabled = !listing.canLoadMore;
    this.moreButton.textContent = moreText(listing);
    this.summary.textContent = summaryOf(listing, this.#allTotals());
    this.summary.classList.toggle("selecting", listing.selected.size > 0);
    this.#drawNotice();
    this.dispatchEvent(new Event("change"));
  }

  /** Keeps the topmost row in its place when rows above it came or went. @param {Item[]} view */
  #holdPosition(view) {
    const top = Math.round(this.grid.scrollTop / this.list.rowHeight);
    const item = this.#drawnView[top];
    this.#drawnView = view;
    if (top > 0 && item !== undefined) {
      const same = view[top]?.id === item.id ? top : view.findIndex((other) => other.id === item.id);
      if (same >= 0) {
        this.list.shift(view.length, same - top);
      }
    }
  }

  /** Totals of a list are kept, because the list of a large folder has many entries. */
  #allTotals() {
    const { view, details } = this.listing;
    if (this.#totals.of !== view || this.#totals.details !== details) {
      this.#totals = { of: view, details, value: totals(view) };
    }
    return this.#totals.value;
  }

  #drawNotice() {
    const { listing, source } = this;
    this.notice.hidden = listing.view.length > 0 || source === undefined;
    if (this.notice.hidden) {
      return;
    }
    const { text, buttons } = noticeOf(listing, source, this.path);
    const row = create(
      "div",
      {},
      ...buttons.map(({ label, action }) => textButton(label, () => this.run(action))),
    );
    this.notice.replaceChildren(create("p", { textContent: text }), row);
  }
}
