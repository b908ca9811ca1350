// One job: an upload or a download, the worker that runs it, and its state.

import { certificateHint } from "./api.js";
import { token } from "./token.js";
import { RateHistory } from "./rate.js";
import { keepSaving, save } from "./save.js";

/**
 * queued: waits for its turn. running, stopping: a worker runs it. paused: it can be resumed.
 * ended: `result` has the end. elsewhere: another tab of this browser runs it.
 * @typedef {"queued" | "running" | "stopping" | "paused" | "ended" | "elsewhere"} State
 */

/**
 * `level` is the lowest level of a file: "none", "received", "verified", "durable" or "reread".
 * @typedef {{ok: boolean, done: number, same: number, failed: number, level: string, text: string}} Result
 */

/**
 * A file of an upload that only this visit has.
 * @typedef {{path: string, size: number, time?: number}} LostFile
 */

const NO_PROGRESS = { bytes: 0, counts: { done: 0, same: 0, failed: 0, level: "none" }, waits: null, path: "http" };

/** Time between two notes of the state while a job runs, in milliseconds. */
const NOTE = 1000;

/** Events: "change", and "ended" with the result as its detail. */
export class Job extends EventTarget {
  /** @type {State} */
  state = "paused";
  /** Why the job is paused, or what it is doing. */
  reason = "";
  /** True if the job continues after the next sign-in. */
  waitsForSignIn = false;
  /** @type {Result | null} */
  result = null;
  /** @type {{path: string, text: string}[]} the first failures */
  failures = [];
  /** The waybill of all runs. @type {Blob | null} */
  receipt = null;
  /** Number of files that are not in the waybill, because their digests are unknown. */
  unproven = 0;
  /** @type {{files: number, bytes: number, isWhole: boolean} | null} */
  total = null;
  progress = NO_PROGRESS;
  /** The first of Surehaul's own files that the upload left out. */
  leftOut = "";
  /** Address of the last lane, which a page that is closed leaves open. */
  lane = "";
  rates = new RateHistory();
  /** Files that the user must choose again, because a browser keeps no access to them. @type {LostFile[]} */
  lost = [];
  /** Paths of the files of a move that the last run of this tab found at the target. @type {Set<string>} */
  copied = new Set();
  /** @type {Worker | null} */
  #worker = null;
  #noted = 0;
  #since = 0;

  /** @param {import("./jobs.js").Jobs} jobs @param {any} source */
  constructor(jobs, source) {
    super();
    this.jobs = jobs;
    /** What the job copies. `roots` are gone after a reload, except for handles. */
    this.source = source;
  }

  get id() {
    return this.source.id;
  }

  get title() {
    return this.source.title;
  }

  /**
   * A "copy" is between two directories of the server, or to another server; a "fetch" is from another
   * server.
   * @returns {"upload" | "download" | "copy" | "fetch"}
   */
  get direction() {
    return this.source.direction;
  }

  /** Time of the last run until its last report, in milliseconds. */
  runTime = 0;

  /** True if this tab runs the job, or will. */
  get isActive() {
    return this.state === "queued" || this.state === "running" || this.state === "stopping";
  }

  /** Returns the state for IndexedDB and for other tabs. */
  snapshot() {
    const { id, state, reason, waitsForSignIn, result, failures, receipt, unproven, total, leftOut, progress, lane, runTime } = this;
    return { id, state, reason, waitsForSignIn, result, failures, receipt, unproven, total, leftOut, progress, lane, runTime };
  }

  /** @param {any} snapshot */
  restore(snapshot) {
    const { id: _, ...fields } = snapshot;
    Object.assign(this, fields);
  }

  /** Changes some fields, and tells the page, the storage and the other tabs. @param {Partial<Job>} fields */
  update(fields) {
    Object.assign(this, fields);
    this.#noted = Date.now();
    this.jobs.note(this);
    this.dispatchEvent(new Event("change"));
  }

  /** Starts the worker. */
  run() {
    const { toRoot: target, toName } = this.source;
    const root = this.jobs.rootOf(this.source);
    const toRoot = target === undefined ? undefined : this.jobs.rootOf({ root: target, rootName: toName });
    if (root === null || toRoot === null) {
      const gone = root === null ? this.source.rootName : toName;
      this.update({ state: "paused", reason: `the server has no directory ${gone} now` });
      this.jobs.released();
      return;
    }
    this.update({ state: "running", reason: "", waitsForSignIn: false, result: null, failures: [] });
    this.#since = performance.now();
    this.rates.start(this.#since, this.progress.bytes);
    const worker = new Worker(new URL("client/worker.js", import.meta.url), { type: "module" });
    this.#worker = worker;
    worker.addEventListener("message", ({ data }) => this.#told(data));
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#end({ ok: false, text: `the worker stopped: ${event.message || "it cannot be loaded"}`, failures: [] });
    });
    const { direction, roots, to, compares, paths, folder, saves, path, names, ticket, move } = this.source;
    const { webtransport = false } = this.jobs.session;
    worker.postMessage({
      type: "start", direction, job: this.id, about: this.#about(), staleLane: this.lane, roots, to, compares, paths, folder, saves, path, names, toRoot, ticket,
      moves: move !== undefined,
      wasm: new URL("client/", import.meta.url).href,
      lane: { kind: this.jobs.lanes, token: token(), root, webtransport },
    });
  }

  /** Returns the texts of the waybill for readers: the directory of its paths, and the job. */
  #about() {
    const { direction, rootName, to, folder, saves, paths = [] } = this.source;
    const isUpload = direction === "upload";
    const root = isUpload ? [rootName, to].filter(Boolean).join("/") : folder?.name ?? (saves ? "downloads" : "browser storage");
    const run = isUpload ? `upload of ${this.title} by a browser` : `download of ${paths.join(" ")} from ${rootName} by a browser`;
    return { root, run };
  }

  /** @param {any} message of the worker */
  #told(message) {
    switch (message.type) {
      case "held":
        this.update({ state: "elsewhere", reason: "" });
        this.#release();
        this.jobs.watch();
        break;
      case "started":
        this.update({ reason: "" });
        break;
      case "reconnecting": {
        const hint = certificateHint();
        this.update({ reason: `connecting again: ${message.text || "the connection was lost"}${hint && `; ${hint}`}` });
        break;
      }
      case "lane":
        this.update({ lane: message.url });
        break;
      case "leftOut":
        this.update({ leftOut: message.path });
        break;
      case "save":
        save(message);
        break;
      case "total":
        this.update({ total: { files: message.files, bytes: message.bytes, isWhole: message.isWhole } });
        break;
      case "progress": {
        const { bytes, counts, waits, path } = message;
        this.progress = { bytes, counts, waits, path };
        this.runTime = performance.now() - this.#since;
        this.rates.add(performance.now(), bytes);
        if (this.source.saves) {
          keepSaving();
        }
        if (Date.now() - this.#noted >= NOTE) {
          this.update({});
        } else {
          this.dispatchEvent(new Event("change"));
        }
        break;
      }
      case "ended":
        this.#end(message);
    }
  }

  #release() {
    this.#worker?.terminate();
    this.#worker = null;
    this.jobs.released();
  }

  /** @param {any} ended */
  #end({ ok, text = "", status, counts = this.progress.counts, failures, receipt, unproven, copied = [] }) {
    const wasStopping = this.state === "stopping";
    this.copied = new Set(copied);
    if (receipt) {
      Object.assign(this, { receipt, unproven });
    }
    // The worker ends before the server knows that its lane is closed. The next run removes the lane.
    const fields = { lane: ok ? "" : this.lane, failures, progress: { ...this.progress, counts } };
    if (status === 401) {
      this.update({ ...fields, state: "paused", reason: "you are signed out; sign in to continue", waitsForSignIn: true });
      this.jobs.signedOut();
    } else if (wasStopping && !ok && !this.source.saves) {
      this.update({ ...fields, state: "paused", reason: "" });
    } else {
      const result = { ok: Boolean(ok) && counts.failed === 0, ...counts, text };
      this.update({ ...fields, state: "ended", reason: "", result });
      this.dispatchEvent(new CustomEvent("ended", { detail: result }));
    }
    this.#release();
  }

  /** Stops the job. What arrived stays, and a later run sends the rest. */
  pause() {
    if (this.state === "running") {
      this.#worker?.postMessage({ type: "stop" });
      this.update({ state: "stopping" });
    } else if (this.state === "queued") {
      this.update({ state: "paused" });
    } else if (this.state === "elsewhere") {
      this.jobs.ask(this, "pause");
    }
  }

  /** Continues a paused job. Call it in the handler of a click: the browser may ask the user for access. */
  async resume() {
    if (this.state !== "paused" || this.lost.length > 0) {
      return;
    }
    const refused = await this.#refusedHandle();
    if (refused !== null) {
      this.update({ reason: `the browser has no access to ${refused}; resume, and allow it` });
      return;
    }
    this.jobs.enqueue(this);
  }

  /** Runs an ended job again. It copies what is missing. */
  async retry() {
    if (this.state === "ended") {
      this.state = "paused";
      await this.resume();
      if (this.state === "paused") {
        this.update({});
      }
    }
  }

  /** Removes the job from the list. What it copied stays. */
  async forget() {
    if (!this.isActive && this.state !== "elsewhere") {
      await this.jobs.remove(this);
    }
  }

  /** Returns the name of the first handle that the browser refuses, or null. */
  async #refusedHandle() {
    const { roots, folder, move } = this.source;
    // The permission for the directory of a move holds for its entries too.
    const wanted = move === undefined ? [] : [[move.directory, "readwrite"]];
    if (this.direction === "download") {
      wanted.push([folder, "readwrite"]);
    } else if (this.direction === "upload") {
      wanted.push(...roots.filter((root) => root.kind !== undefined).map((root) => [root, "read"]));
    }
    for (const [handle, mode] of wanted) {
      if (handle?.requestPermission !== undefined && (await handle.queryPermission({ mode })) !== "granted") {
        const answer = await handle.requestPermission({ mode }).catch(() => "denied");
        if (answer !== "granted") {
          return handle.name;
        }
      }
    }
    return null;
  }

  /** Takes files that the user chose again. Returns the number of files that are still missing. @param {Iterable<File>} files */
  supply(files) {
    /** @type {Map<string, File[]>} */
    const given = new Map();
    for (const file of files) {
      const path = file.webkitRelativePath || file.name;
      given.set(path, [...(given.get(path) ?? []), file]);
    }
    this.lost = this.lost.filter(({ path, size, time }) => {
      const candidates = given.get(path) ?? [];
      // Jobs of an earlier version of the page have no time.
      const at = candidates.findIndex((file) => file.size === size && file.lastModified === (time ?? file.lastModified));
      if (at < 0) {
        return true;
      }
      const [file] = candidates.splice(at, 1);
      this.source.roots.push({ file, path });
      return false;
    });
    this.update({});
    return this.lost.length;
  }
}
