// The jobs of this browser: a queue, their storage, and the other tabs.

import { removeLeftovers } from "./client/leftovers.js";
import { Job } from "./job.js";
import { JobStore } from "./job-store.js";

/** Jobs that run at a time. */
const RUNNING_MAX = 2;

/** Ended jobs that are kept. */
const HISTORY_MAX = 100;

/** Interval at which a tab looks whether another tab still runs a job, in milliseconds. */
const WATCH = 1000;

/** Key in localStorage of the choice of lanes. */
const LANES = "haul-lanes";

/** Locks of a job: of the worker that runs it, and of the tab in which it runs or waits. */
const lockNames = (id) => [`haul-job-${id}`, `haul-queued-${id}`];

/** Returns what a reload loses: a file, but no handle and no empty folder. @param {import("./client/upload.js").Root} root */
function lostFile(root) {
  if (root instanceof File) {
    return { path: root.webkitRelativePath || root.name, size: root.size, time: root.lastModified };
  }
  return "file" in root ? { path: root.path, size: root.file.size, time: root.file.lastModified } : null;
}

/** @param {import("./client/upload.js").Root} root */
const isStored = (root) => lostFile(root) === null;

/** Returns a function that tells whether a tab of this browser runs a job, or will. */
async function heldJobs() {
  const { held = [] } = await navigator.locks.query();
  const names = new Set(held.map((lock) => lock.name));
  return (job) => lockNames(job.id).some((name) => names.has(name));
}

/**
 * Names that a job creates. `place` tells where; at the browser, `directory` does.
 * @typedef {{place: string, names: string[], directory?: FileSystemDirectoryHandle}} Target
 */

/**
 * Events: "change" when a job is added or removed, "signed-out", and "restored" with jobs of an
 * earlier visit, or of another tab, as its detail.
 */
export class Jobs extends EventTarget {
  /** All jobs, the oldest first. @type {Job[]} */
  list = [];
  /** @type {Promise<JobStore> | null} */
  #store = null;
  #channel = new BroadcastChannel("haul-jobs");
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watching;
  /**
   * Locks of the jobs of this tab.
   * @type {Map<string, {release: () => void, done: Promise<unknown>}>}
   */
  #claims = new Map();
  /** Jobs that this tab or another one has removed. A load in progress can still read them. */
  #removed = new Set();

  /** @param {import("./api.js").Session} session */
  constructor(session) {
    super();
    this.session = session;
    this.#channel.addEventListener("message", ({ data }) => this.#heard(data));
    window.addEventListener("beforeunload", (event) => {
      if (this.list.some((job) => job.isActive)) {
        event.preventDefault();
      }
    });
  }

  /** How lanes reach the server: "auto", "http" or "webtransport". */
  get lanes() {
    return localStorage.getItem(LANES) ?? "auto";
  }

  /** The next run of a job has this choice. */
  set lanes(choice) {
    localStorage.setItem(LANES, choice);
    this.dispatchEvent(new Event("change"));
  }

  /** Loads the jobs of earlier visits. */
  async load() {
    // Without storage, such as in a private window, the jobs end with the page.
    const stored = await this.#opened().then((store) => store.all(), (error) => {
      console.warn("cannot load jobs:", error);
      return [];
    });
    const isHeld = await heldJobs();
    // After the waits, in which jobs can start.
    const known = new Set(this.list.map((job) => job.id));
    stored.sort((a, b) => a.source.created - b.source.created);
    const isNew = ({ source }) => !known.has(source.id) && !this.#removed.has(source.id);
    const loaded = stored.filter(isNew).map((entry) => this.#restored(entry, isHeld));
    // A lock of this tab can be in the middle of its release.
    const idle = this.list.filter((job) => !job.isActive && !this.#claims.has(job.id));
    idle.filter(isHeld).forEach((job) => this.#leave(job));
    this.list = [...loaded, ...this.list];
    this.dispatchEvent(new CustomEvent("restored", { detail: loaded }));
    this.dispatchEvent(new Event("change"));
    this.watch();
    this.#resumeSignedOut();
  }

  /** @param {{source: any, state: any}} entry @param {(job: Job) => boolean} isHeld */
  #restored({ source, state }, isHeld) {
    const job = new Job(this, { ...source, roots: source.roots?.filter(isStored) });
    job.lost = source.lost ?? [];
    job.restore(state);
    this.#settle(job, isHeld);
    return job;
  }

  /**
   * Corrects the state of a job that no worker of this tab runs.
   * @param {Job} job @param {(job: Job) => boolean} isHeld
   */
  #settle(job, isHeld) {
    if (isHeld(job)) {
      job.state = "elsewhere";
    } else if (job.isActive || job.state === "elsewhere") {
      job.state = "paused";
      job.reason = `the page was closed${job.source.saves ? "; a new run saves all files again" : ""}`;
    }
  }

  /** Continues after a sign-in. @param {import("./api.js").Session} session */
  signedIn(session) {
    this.session = session;
    this.#resumeSignedOut();
  }

  #resumeSignedOut() {
    this.list.filter((job) => job.state === "paused" && job.waitsForSignIn).forEach((job) => job.resume());
  }

  #opened() {
    this.#store ??= JobStore.open();
    return this.#store;
  }

  /**
   * A move has the directory of its entries, and the entries to delete when the copy is durable. If
   * the server `compares`, it requests only the objects that differ from its own.
   * @param {{roots: import("./client/upload.js").Root[], root: number, to: string,
   *   title: string, compares?: boolean, target?: Target, move?: {directory: FileSystemDirectoryHandle, nodes: import("./moves.js").Node[]}}} what
   */
  upload({ roots, root, to, title, move, compares, target }) {
    const lost = roots.map(lostFile).filter((file) => file !== null);
    return this.#add({ direction: "upload", roots, root, to, title, move, compares, target }, lost);
  }

  /**
   * Without a folder, the files go to the storage of the browser, or with `saves` to its list of downloads.
   * @param {{root: number, paths: string[], folder: FileSystemDirectoryHandle | null, saves?: boolean, title: string,
   *   target?: Target}} what
   */
  download({ root, paths, folder, saves = false, title, target }) {
    return this.#add({ direction: "download", paths, folder, saves, root, title, target }, []);
  }

  /**
   * Copies entries of a directory of the server to another one, or to the server of a ticket. `path`,
   * `names` and `to` are as in a JSON body, `toText` is the target for the user.
   * @param {{root: number, path: unknown, names: unknown[], toRoot?: number, ticket?: string, to: unknown,
   *   toText: string, title: string, target?: Target}} what
   */
  copy(what) {
    const toName = this.session.roots.find(({ id }) => id === what.toRoot)?.name ?? "";
    return this.#add({ direction: "copy", toName, ...what }, []);
  }

  /**
   * Copies from the server of a ticket to a directory of this one. `paths` are as in a JSON body.
   * @param {{ticket: string, paths: unknown[], root: number, to: unknown, toText: string, title: string,
   *   target?: Target}} what
   */
  fetch(what) {
    return this.#add({ direction: "fetch", ...what }, []);
  }

  /** @param {any} what @param {object[]} lost files that a later visit must ask for */
  #add(what, lost) {
    const number = crypto.getRandomValues(new Uint8Array(16));
    const id = Array.from(number, (byte) => byte.toString(16).padStart(2, "0")).join("");
    const rootName = this.session.roots.find(({ id: root }) => root === what.root)?.name ?? "";
    const source = { id, created: Date.now(), rootName, ...what };
    const job = new Job(this, source);
    this.list.push(job);
    const stored = { ...source, lost, roots: what.roots?.filter(isStored) };
    this.#save((store) => store.putSource(stored));
    this.enqueue(job);
    this.#trim();
    this.dispatchEvent(new Event("change"));
    return job;
  }

  /** The source of a move is deleted, as far as that is possible. @param {Job} job */
  forgetMove(job) {
    const { move: _, ...source } = job.source;
    job.source = source;
    this.#save((store) => store.putSource({ ...source, lost: [] }));
  }

  /** Removes the oldest ended jobs. */
  #trim() {
    const ended = this.list.filter((job) => job.state === "ended");
    ended.slice(0, Math.max(0, ended.length - HISTORY_MAX)).forEach((job) => this.remove(job));
  }

  /** Returns a promise for the removal of what the job left in the storage. @param {Job} job */
  remove(job) {
    this.list = this.list.filter((other) => other !== job);
    this.#removed.add(job.id);
    this.#save((store) => store.remove(job.id));
    this.#channel.postMessage({ removed: job.id });
    this.dispatchEvent(new Event("change"));
    return removeLeftovers(job.id, job.source.folder).catch((error) => console.warn("cannot remove what a job left:", error));
  }

  /** @param {(store: JobStore) => Promise<unknown>} work */
  #save(work) {
    this.#opened().then(work).catch((error) => console.warn("cannot store a job:", error));
  }

  /** Stores the state of a job, and tells the other tabs. @param {Job} job */
  note(job) {
    if (!job.isActive) {
      this.#claims.get(job.id)?.release();
    }
    if (job.state !== "elsewhere") {
      const snapshot = job.snapshot();
      this.#save((store) => store.putState(snapshot));
      this.#channel.postMessage({ snapshot });
    }
  }

  /** The server has refused the session of a job. */
  signedOut() {
    this.dispatchEvent(new Event("signed-out"));
  }

  /**
   * Returns the number of the root of a job at the server, or null if it has none of that name. A
   * server that was started again can number other directories.
   * @param {{root: number, rootName: string}} source
   */
  rootOf({ root, rootName }) {
    const named = this.session.roots.filter(({ name }) => name === rootName);
    const found = named.length === 1 ? named[0] : named.find(({ id }) => id === root);
    return found?.id ?? null;
  }

  /** Asks the tab that runs a job. @param {Job} job @param {"pause"} action */
  ask(job, action) {
    this.#channel.postMessage({ ask: action, id: job.id });
  }

  /** @param {any} message of another tab */
  #heard({ snapshot, removed, ask, id }) {
    const job = this.list.find((other) => other.id === (snapshot?.id ?? removed ?? id));
    if (snapshot !== undefined && job === undefined) {
      this.load();
    } else if (snapshot !== undefined && (!job.isActive || (job.state === "queued" && snapshot.state === "running"))) {
      const isRunning = ["queued", "running", "stopping"].includes(snapshot.state);
      job.restore(snapshot);
      job.rates.add(performance.now(), job.progress.bytes);
      if (isRunning) {
        this.#leave(job);
      } else {
        job.dispatchEvent(new Event("change"));
      }
    } else if (removed !== undefined && !job?.isActive) {
      this.#removed.add(removed);
      this.list = this.list.filter((other) => other !== job);
      this.dispatchEvent(new Event("change"));
    } else if (ask === "pause" && job?.isActive) {
      job.pause();
    }
  }

  /** Looks for the end of jobs in other tabs, which can be closed without a message. */
  watch() {
    if (this.#watching !== undefined) {
      return;
    }
    this.#watching = setInterval(async () => {
      const elsewhere = this.list.filter((job) => job.state === "elsewhere");
      if (elsewhere.length === 0) {
        clearInterval(this.#watching);
        this.#watching = undefined;
        return;
      }
      const isHeld = await heldJobs();
      for (const job of elsewhere.filter((job) => !isHeld(job))) {
        const state = await (await this.#opened()).state(job.id);
        if (job.state === "elsewhere" && state !== undefined) {
          job.restore(state);
          this.#settle(job, isHeld);
          job.dispatchEvent(new Event("change"));
        }
      }
    }, WATCH);
  }

  /** Runs a job when its turn comes. @param {Job} job */
  enqueue(job) {
    job.update({ state: "queued", reason: "", waitsForSignIn: false });
    this.#claim(job);
    this.#next();
  }

  /** Shows the other tabs that this one has a job, while it is active here. @param {Job} job */
  #claim(job) {
    let release = () => {};
    const released = new Promise((resolve) => {
      release = () => resolve(undefined);
    });
    const [, name] = lockNames(job.id);
    const before = this.#claims.get(job.id);
    before?.release();
    const take = (lock) => {
      if (lock === null && job.state === "queued") {
        this.#leave(job);
      } else if (lock !== null && job.isActive) {
        // A tab that heard of the job before the lock was taken sees the lock now.
        this.note(job);
      }
      return lock && released;
    };
    const done = Promise.resolve(before?.done)
      .then(() => navigator.locks.request(name, { ifAvailable: true }, take))
      .catch(() => {})
      .finally(() => this.#claims.get(job.id)?.release === release && this.#claims.delete(job.id));
    this.#claims.set(job.id, { release, done });
  }

  /** Leaves a job to the tab that runs it, or in which it waits for its turn. @param {Job} job */
  #leave(job) {
    job.state = "elsewhere";
    job.reason = "";
    this.#claims.get(job.id)?.release();
    job.dispatchEvent(new Event("change"));
    this.watch();
  }

  /** A worker has ended. */
  released() {
    this.#trim();
    this.#next();
  }

  #next() {
    const running = this.list.filter((job) => job.state === "running" || job.state === "stopping").length;
    const queued = this.list.filter((job) => job.state === "queued");
    // A job that cannot run frees its place at once, and the call for the next one is within this loop.
    queued.slice(0, Math.max(0, RUNNING_MAX - running)).forEach((job) => job.state === "queued" && job.run());
  }
}
