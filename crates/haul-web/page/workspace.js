// The two panes, and the commands that concern both.

import { encodeName } from "./api.js";
import { BAR, createFolder, openFile, refusalOf, remove, rename } from "./commands.js";
import { ask, choose, isAsking, showHelp } from "./dialog.js";
import { create } from "./dom.js";
import { DRAG_TYPE } from "./drags.js";
import { isServer, makeItem } from "./item.js";
import { commandOf } from "./keys.js";
import { ChosenSource, FolderSource, canPickFolder, sharedPath, takeDrop } from "./local-source.js";
import { ADD_PEER, Pane } from "./pane.js";
import { PeerSource } from "./peer-source.js";
import { saveRefusal } from "./save.js";
import { SavesSource } from "./saves-source.js";
import { ServerSource } from "./server-source.js";
import { visible } from "./text.js";
import { Transfers } from "./transfers.js";
import { Verifier } from "./verify.js";

/** @typedef {import("./item.js").Source} Source */

const element = (id) => document.getElementById(id);

/** Places for downloads, the best one for a large file first. */
const TARGETS = [
  {
    value: "saves",
    label: "Browser downloads",
    text: "Browser downloads: each file where the browser saves downloads, without its folder. Nothing resumes after a reload.",
  },
  {
    value: "folder",
    label: "A folder\u2026",
    text: "A folder: with its folders. The browser checks each file at its end, which takes long for a large one.",
  },
  {
    value: "private",
    label: "Browser storage",
    text: "Browser storage: with its folders, durable, and resumes. Only this page sees its files.",
  },
];

/** Returns what a copy between two sources is. @param {Source} [from] @param {Source} [to] */
function copyLabel(from, to) {
  if (from?.kind === "peer" || to?.kind === "peer") {
    return "Copy";
  }
  const [isFromServer, isToServer] = [from?.kind === "server", to?.kind === "server"];
  return isFromServer === isToServer ? "Copy" : isToServer ? "Upload" : "Download";
}

/** Returns the directories of a path. @param {string} text */
const pathOf = (text) =>
  text
    .split("/")
    .filter(Boolean)
    .map((name) => makeItem({ id: encodeName(name), name, kind: "directory" }));

/** The two panes of a signed-in user. */
export class Workspace {
  /** @type {Source[]} */
  sources = [];
  chosen = new ChosenSource();
  folders = 0;
  peers = 0;

  /**
   * @param {import("./api.js").Session} session @param {import("./jobs.js").Jobs} jobs
   * @param {{say: (text: string, isError?: boolean) => void, attempt: (action: () => unknown) => Promise<void>}} page
   */
  constructor(session, jobs, { say, attempt }) {
    [this.say, this.attempt] = [say, attempt];
    const perform = (command, pane, detail) => this.perform(command, pane, detail);
    this.left = new Pane(element("left"), "left", perform);
    this.right = new Pane(element("right"), "right", perform);
    this.panes = [this.left, this.right];
    this.active = this.right;
    this.transfers = new Transfers(jobs, { say, reloadAt: (place) => this.reloadAt(place) });
    this.verifier = new Verifier(element("verification"), jobs, {
      say,
      attempt,
      copiesFor: (place) => this.#copiesFor(place),
      focus: () => this.active.focus(),
      reloadAt: (place) => this.reloadAt(place),
    });
    this.#buildBar();
    this.#buildTabs();
    this.#listen();
    this.hasPeers = session.peers === true;
    this.roots = session.roots.map((root) => new ServerSource(root));
  }

  /** Shows this computer on the left, and the first directory of the server on the right. */
  async start() {
    const storage = await navigator.storage?.getDirectory?.().catch(() => undefined);
    const kept = storage === undefined ? [] : [new FolderSource("private", storage, "Browser storage")];
    this.setSources([this.chosen, ...kept, new SavesSource(), ...this.roots]);
    await this.left.enter(this.chosen, []);
    if (this.roots.length > 0) {
      await this.right.enter(this.roots[0], []);
    } else {
      this.say("The server has no directories for this browser.");
    }
    this.activate(this.right);
    this.right.focus();
  }

  /** @param {Source[]} sources */
  setSources(sources) {
    this.sources = sources;
    this.panes.forEach((pane) => pane.setPlaces(sources, this.hasPeers));
  }

  /** @param {Pane} pane */
  otherOf(pane) {
    return pane === this.left ? this.right : this.left;
  }

  /**
   * Returns the shown place that can have intact copies of the files of another one, or null: of the
   * server for this computer, and the reverse.
   * @param {import("./transfers.js").Place} place
   */
  #copiesFor(place) {
    const wanted = place.source.kind === "server" ? ["folder", "private", "chosen"] : ["server"];
    const pane = this.panes.find(({ source }) => wanted.includes(source.kind));
    return pane === undefined ? null : { source: pane.source, path: pane.path };
  }

  /** Verifies what a job copied, by its receipt. @param {import("./job.js").Job} job */
  async verifyJob(job) {
    const { direction, to, folder } = job.source;
    if (direction === "upload") {
      const number = this.transfers.jobs.rootOf(job.source);
      const source = this.roots.find(({ root }) => root.id === number);
      if (source === undefined) {
        throw new Error(`the server has no directory ${visible(job.source.rootName)} now`);
      }
      return this.verifier.startJob({ source, path: pathOf(to) }, job);
    }
    if (folder !== null && (await folder.requestPermission?.({ mode: "read" })) === "denied") {
      throw new Error(`the browser has no access to ${visible(folder.name)}; verify again, and allow it`);
    }
    const source = folder === null ? this.sources.find(({ kind }) => kind === "private") : new FolderSource("job", folder);
    this.verifier.startJob({ source, path: [] }, job);
  }

  /** @param {Pane} pane */
  activate(pane) {
    this.active = pane;
    for (const each of this.panes) {
      each.element.classList.toggle("active", each === pane);
      this.tabs.get(each).ariaPressed = String(each === pane);
    }
    this.drawBar();
  }

  #buildTabs() {
    this.tabs = new Map();
    for (const pane of this.panes) {
      const tab = create("button", { type: "button" });
      tab.addEventListener("click", () => {
        this.activate(pane);
        pane.focus();
      });
      this.tabs.set(pane, tab);
      element("tabs").append(tab);
    }
  }

  #buildBar() {
    /** @type {Record<string, HTMLButtonElement>} */
    this.buttons = {};
    for (const { command, key, label } of BAR) {
      const button = create("button", { type: "button" }, create("kbd", { textContent: key }), label);
      button.dataset.command = command;
      // The pane keeps the focus, so that the next key works in its list.
      button.addEventListener("mousedown", (event) => event.preventDefault());
      button.addEventListener("click", () => this.perform(command, this.active));
      this.buttons[command] = button;
      element("keys").append(button);
    }
  }

  /** Shows which commands are possible, and for each other one the reason. */
  drawBar() {
    for (const button of element("keys").children) {
      const refusal = refusalOf(button.dataset.command, this.active, this.otherOf(this.active));
      button.ariaDisabled = refusal === null ? null : "true";
      button.title = refusal ?? "";
    }
    document.title = `${visible(this.active.placeText)} \u2013 haul`;
    const { copy } = this.buttons;
    copy.lastChild.textContent = copyLabel(this.active.source, this.otherOf(this.active).source);
    for (const [pane, tab] of this.tabs) {
      tab.textContent = visible(pane.source?.title ?? "");
    }
  }

  #listen() {
    this.panes.forEach((pane) => pane.addEventListener("change", () => this.drawBar()));
    document.addEventListener("keydown", (event) => {
      const command = commandOf(event, false);
      if (command === undefined || element("files").hidden) {
        return;
      }
      if (!isAsking()) {
        event.preventDefault();
        this.active.run(command);
      } else if (/^F\d+$/.test(event.key)) {
        // F5 would reload the page.
        event.preventDefault();
      }
    });
    for (const input of [element("file-input"), element("folder-input")]) {
      input.addEventListener("change", () => {
        const files = [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
        input.value = "";
        this.attempt(() => this.addChosen(this.active, files));
      });
    }
    // A drop beside the panes must not replace the page.
    for (const type of ["dragover", "drop"]) {
      document.addEventListener(type, (event) => event.preventDefault());
    }
  }

  /** @param {string} command @param {Pane} pane @param {any} [detail] */
  perform(command, pane, detail) {
    const other = this.otherOf(pane);
    const refusal = BAR.some((entry) => entry.command === command) ? refusalOf(command, pane, other) : null;
    if (refusal !== null) {
      return this.say(refusal, true);
    }
    const actions = {
      activate: () => this.activate(pane),
      other: () => (this.activate(other), other.focus()),
      help: () => showHelp(),
      rename: () => rename(pane, this.say),
      newFolder: () => createFolder(pane, this.say),
      remove: () => remove(pane, this.say),
      openFile: () => openFile(pane, detail, this.say),
      verify: () => this.verifier.ask(pane, other),
      copy: () => this.transfer(pane, other, false),
      move: () => this.transfer(pane, other, true),
      drop: () => this.drop(pane, detail),
      openFolder: () => this.openFolder(pane),
      chooseFiles: () => element("file-input").click(),
      enterPlace: () => this.enterPlace(pane, detail),
      failed: () => Promise.reject(detail),
    };
    return this.attempt(actions[command]);
  }

  /** @param {Pane} pane @param {string} id of the source */
  async enterPlace(pane, id) {
    if (id !== ADD_PEER) {
      return pane.enter(this.sources.find((source) => source.id === id), []);
    }
    pane.showPlace();
    const text = "Its ticket, as haul serve printed it. The data goes directly between both servers.";
    const problem = (ticket) => (ticket.trim() === "" ? "Enter a ticket." : "");
    const ticket = await ask("Another server", text, "", "Add", problem);
    if (ticket !== null) {
      this.peers += 1;
      const source = new PeerSource(this.peers, ticket.trim());
      this.setSources([...this.sources, source]);
      await pane.enter(source, []);
      pane.focus();
    }
  }

  /**
   * Lets the user pick a folder, and shows it.
   * @param {Pane} pane
   * @param {"read" | "readwrite"} [mode]
   */
  async openFolder(pane, mode = "read") {
    if (!canPickFolder()) {
      element("folder-input").click();
      return;
    }
    const handle = await window.showDirectoryPicker({ mode });
    for (const source of this.sources) {
      if (source.kind === "folder" && (await source.handle.isSameEntry(handle))) {
        return pane.enter(source, []);
      }
    }
    this.folders += 1;
    const source = new FolderSource(`folder-${this.folders}`, handle);
    this.setSources([source, ...this.sources]);
    await pane.enter(source, []);
    pane.focus();
  }

  /**
   * @param {Pane} pane
   * @param {{file: File, path: string}[]} files
   * @param {FileSystemHandle[]} [handles]
   */
  async addChosen(pane, files, handles) {
    const added = this.chosen.add(files, handles);
    await added.catch(() => {});
    await this.showChosen(pane);
    await added;
  }

  /** @param {Pane} pane */
  async showChosen(pane) {
    const shown = pane.source !== undefined && isServer(pane.source) ? this.otherOf(pane) : pane;
    await shown.enter(this.chosen, []);
    this.activate(shown);
    shown.focus();
  }

  /** @param {Pane} from @param {Pane} to @param {boolean} isMove */
  async transfer(from, to, isMove) {
    let items = from.listing.targets;
    let source = { source: from.source, path: from.path };
    if (from.source.kind === "peer" && from.listing.state === "failed") {
      const steps = await this.#askPeer("Copy from", from.source, "Path there; empty for everything.");
      if (steps === null) {
        return;
      }
      items = steps.splice(-1);
      items = items.length > 0 ? items : [makeItem({ id: "", name: "everything", kind: "directory" })];
      source = { source: from.source, path: steps };
    }
    if (to.source.kind === "chosen" && !(await this.#chooseTarget(to, items))) {
      return;
    }
    let [path, known] = [to.path, undefined];
    if (to.source.kind === "peer" && to.listing.state === "failed") {
      [path, known] = [await this.#askPeer("Copy to", to.source, "Directory there; empty for its top."), []];
      if (path === null) {
        return;
      }
    } else if (to.source.kind === "saves") {
      // The browser replaces no downloads: it gives a file another name if its name exists.
      known = [];
    }
    await this.transfers.run(source, items, { source: to.source, path }, known, isMove);
    from.listing.clearSelection();
  }

  /**
   * Asks for a path of another server that is not listed. Returns null if cancelled.
   * @param {string} action @param {Source} source @param {string} text
   */
  async #askPeer(action, source, text) {
    const rule = "Existing files of the same names are replaced.";
    const path = await ask(`${action} ${source.title}`, `${text} ${rule}`, "", "Copy", () => "");
    return path === null ? null : pathOf(path);
  }

  /**
   * Asks where downloads go, and shows that place. Returns false if the user chooses none.
   * @param {Pane} pane @param {import("./item.js").Item[]} items
   */
  async #chooseTarget(pane, items) {
    const isPossible = {
      saves: (await saveRefusal()) === null,
      folder: canPickFolder(),
      private: this.sources.some(({ kind }) => kind === "private"),
    };
    const possible = TARGETS.filter(({ value }) => isPossible[value]);
    if (possible.length === 0) {
      throw new Error("this browser can store no downloads; open a file with Enter to save it");
    }
    // The browser saves files without their folders.
    const main = items.some((item) => item.kind === "directory") ? possible.find(({ value }) => value !== "saves") : possible[0];
    const text = possible.map(({ text }) => text).join("\n");
    const asked = possible.map(({ value, label }) => ({ value, label, isMain: value === main?.value }));
    const kind = possible.length === 1 ? possible[0].value : await choose("Where to?", text, asked);
    if (kind === "folder") {
      await this.openFolder(pane, "readwrite");
    } else if (kind !== "") {
      await pane.enter(this.sources.find((source) => source.kind === kind), []);
    }
    return kind !== "";
  }

  /** @param {Pane} pane @param {DataTransfer} data */
  async drop(pane, data) {
    if (data.types.includes(DRAG_TYPE)) {
      return this.perform("copy", this.otherOf(pane));
    }
    const { handles, files } = await takeDrop(data);
    if (pane.source?.kind !== "server") {
      return this.addChosen(pane, files, handles);
    }
    const refusal = pane.source.refusal("receive");
    if (refusal !== null) {
      throw new Error(refusal);
    }
    const shared = sharedPath(handles, files);
    if (shared !== undefined) {
      throw new Error(`cannot upload two entries with the name ${visible(shared)}; drop only one of them`);
    }
    const tops = new Map(handles.map((handle) => [handle.name, [handle]]));
    for (const entry of files) {
      const [name] = entry.path.split("/");
      tops.set(name, [...(tops.get(name) ?? []), entry]);
    }
    const entries = [...tops].map(([name, roots]) => ({ name, roots }));
    await this.transfers.uploadDropped(entries, { source: pane.source, path: pane.path });
  }

  /**
   * Loads panes again that show a place, or all for null.
   * @param {import("./transfers.js").Place | null} place
   */
  async reloadAt(place) {
    const reload = (pane) => (place === null ? pane.reload() : pane.reloadIfAt(place.source, place.path));
    await Promise.all(this.panes.map(reload));
  }

  /** Loads both panes again after another sign-in. */
  async continue() {
    await Promise.all(this.panes.map((pane) => pane.reload()));
    this.active.focus();
  }
}
