// Copies and moves from one pane to the other: which are possible, and the jobs that carry them out.

import { forJson } from "./api.js";
import { choose, confirm } from "./dialog.js";
import { isSamePath, isServer, placeText } from "./item.js";
import { entriesNow } from "./listing.js";
import { FolderSource } from "./local-source.js";
import { record, removeRecorded } from "./moves.js";
import { ids } from "./server-source.js";
import { countText, nameList, visible } from "./text.js";

/** @typedef {import("./item.js").Item} Item */
/** @typedef {import("./item.js").Source} Source */
/** @typedef {{source: Source, path: Item[]}} Place */

/**
 * Returns the reason why entries of one place cannot be copied or moved to another, or null.
 * @param {Place} from @param {Place} to @param {boolean} isMove
 */
export function transferRefusal(from, to, isMove) {
  const isFromServer = from.source.kind === "server";
  const isToServer = to.source.kind === "server";
  if (from.source.kind === "peer" || to.source.kind === "peer") {
    if (!isFromServer && !isToServer) {
      return "Another server copies to and from this server only. Show a directory of this server in the other pane.";
    }
    const refusal = isToServer ? to.source.refusal("receive") : from.source.refusal("read");
    return refusal ?? (isMove ? "Entries do not move between servers. Copy with F5, then delete with F8." : null);
  }
  if (from.source === to.source && isSamePath(from.path, to.path)) {
    return "Both panes show the same folder. Open another one in the other pane.";
  }
  const isRename = isMove && isFromServer && from.source === to.source;
  const refusal = isToServer ? to.source.refusal("receive") : null;
  if (refusal !== null || isRename) {
    return refusal ?? from.source.refusal("rename");
  }
  if (!isFromServer && !isToServer) {
    return "Both panes show this computer. Show a directory of the server in one of them.";
  }
  const unreadable = from.source.refusal("read");
  if (unreadable !== null || !isMove) {
    return unreadable;
  }
  if (isFromServer) {
    return isToServer
      ? "Entries move only within one directory of the server. Copy with F5, then delete with F8."
      : "A browser does not promise to keep files. Copy with F5, then delete with F8.";
  }
  if (from.source.kind === "chosen") {
    return "Chosen files can only be copied. Open their folder to move them.";
  }
  return from.source.refusal("remove");
}

/** Carries out copies and moves. */
export class Transfers {
  /**
   * @param {import("./jobs.js").Jobs} jobs
   * @param {{say: (text: string, isError?: boolean) => void,
   *   reloadAt: (place: Place | null) => Promise<void>}} page
   */
  constructor(jobs, page) {
    this.jobs = jobs;
    this.page = page;
    jobs.addEventListener("restored", ({ detail }) => detail.forEach((job) => this.#watchRestored(job)));
  }

  /**
   * Copies or moves entries. `known` are the entries of the target if it cannot be listed.
   * @param {Place} from
   * @param {Item[]} items
   * @param {Place} to
   * @param {Item[] | undefined} known
   * @param {boolean} isMove
   */
  async run(from, items, to, known, isMove) {
    const isUpload = isServer(to.source);
    const isCopy = isUpload && isServer(from.source);
    const isRename = isMove && from.source === to.source;
    if (!isCopy) {
      refuseUnsupported(isUpload ? to.path : [...from.path, ...items], items, isUpload);
    }
    await to.source.permit?.();
    if (isMove && !isRename) {
      await from.source.permit?.();
    }
    const [chosen, replaced] = await this.#withoutExisting(items, to, isMove, isRename, known);
    if (chosen.length === 0) {
      return;
    }
    if (isRename) {
      await this.#rename(from, chosen, to, replaced);
      return;
    }
    const move = isMove
      ? { directory: from.source.directory(from.path), nodes: await record(from.source, from.path, chosen) }
      : undefined;
    const title = titleOf(chosen);
    const job = isCopy
      ? this.#copy(from, chosen, to, title)
      : isUpload
        ? this.#upload(from.source, chosen, to, title, move)
        : this.#download(from, chosen, to, title);
    this.#watch(job, from, to);
  }

  /**
   * Uploads files and folders that were dropped.
   * @param {{name: string, roots: object[]}[]} entries
   * @param {Place} to
   */
  async uploadDropped(entries, to) {
    refuseUnsupported(to.path, [], true);
    const [chosen] = await this.#withoutExisting(entries, to, false, false);
    if (chosen.length > 0) {
      const job = this.#upload({ uploadRoots: (entry) => entry.roots }, chosen, to, titleOf(chosen));
      this.#watch(job, null, to);
    }
  }

  #upload(source, items, to, title, move) {
    const roots = items.flatMap((item) => source.uploadRoots(item));
    return this.jobs.upload({ roots, root: to.source.root.id, to: textPath(to.path), title, move, target: targetOf(to, items) });
  }

  /** Copies between two directories of servers: of this one, and of this one or another one. */
  #copy(from, items, to, title) {
    const toText = placeText(to.source, to.path);
    const target = { to: forJson(ids(to.path)), toText, title, target: targetOf(to, items) };
    if (from.source.kind === "peer") {
      const paths = items.map((item) => forJson(ids([...from.path, item])));
      return this.jobs.fetch({ ticket: from.source.ticket, paths, root: to.source.root.id, ...target });
    }
    const sink = to.source.kind === "peer" ? { ticket: to.source.ticket } : { toRoot: to.source.root.id };
    const names = items.map((item) => forJson([item.id]));
    return this.jobs.copy({ root: from.source.root.id, path: forJson(ids(from.path)), names, ...sink, ...target });
  }

  #download(from, items, to, title) {
    const paths = items.map((item) => textPath([...from.path, item]));
    const saves = to.source.kind === "saves";
    const isPrivate = to.source.kind === "private" && to.path.length === 0;
    const folder = saves || isPrivate ? null : to.source.directory(to.path);
    return this.jobs.download({ root: from.source.root.id, paths, folder, saves, title, target: targetOf(to, items) });
  }

  /**
   * Asks what to do with names that exist at the target, or that an unfinished job creates there.
   * Returns the entries that remain, and the names among them that exist.
   * @param {{name: string}[]} items @param {Place} to @param {boolean} isMove @param {boolean} isRename
   * @param {Item[]} [known] entries of the target if it cannot be listed
   * @returns {Promise<[any[], Set<string>]>}
   */
  async #withoutExisting(items, to, isMove, isRename, known) {
    const place = visible(placeText(to.source, to.path));
    const rule = isRename
      ? "A file that is replaced is lost, and a folder is replaced only if it is empty."
      : "Files that are equal stay as they are. Other files are replaced, and folders are merged.";
    // File systems of a browser's computer can take names for equal that differ in case or accents.
    const isLocal = !isServer(to.source);
    const keyOf = ({ name }) => (isLocal ? name.normalize("NFC").toLowerCase() : name);
    const pending = new Map();
    for (const job of await this.#unfinished(to, isMove)) {
      job.source.target.names.forEach((name) => pending.set(keyOf({ name }), job));
    }
    // The source of a move is deleted, so that nothing may replace its copy.
    const clash = items.find((item) => pending.has(keyOf(item)) && (isMove || pending.get(keyOf(item)).source.move));
    if (clash !== undefined) {
      throw new Error(
        `cannot ${isMove ? "move" : "copy"} ${visible(clash.name)} to ${place}: a job that is not finished writes it there; let the job end, run it again, or remove it`,
      );
    }
    // What the pane shows can be old.
    const listed = known ?? (await entriesNow(to.source, to.path));
    if (listed === null) {
      const text = `The names in ${place} are not all known, so some of the entries may exist there.\n${rule}`;
      return [(await confirm("Copy without a check of names?", text, "Continue")) ? items : [], new Set()];
    }
    const names = new Set([...listed.map(keyOf), ...pending.keys()]);
    const existing = items.filter((item) => names.has(keyOf(item)));
    if (existing.length === 0) {
      return [items, new Set()];
    }
    const count =
      existing.length === 1 ? "1 name exists" : `${existing.length.toLocaleString("en")} names exist`;
    const text = `In ${place}: ${nameList(existing.map((item) => item.name))}.\n${rule}`;
    const left = items.length - existing.length;
    const skip = {
      value: "skip",
      label: left === 0 ? "Skip all" : `Skip (copy the other ${left.toLocaleString("en")})`,
    };
    const answer = await choose(`${count} already`, text, [
      { ...skip, isMain: true },
      { value: "replace", label: "Replace", isDanger: true },
    ]);
    if (answer === "replace") {
      return [items, new Set(existing.map((item) => item.name))];
    }
    return [answer === "skip" ? items.filter((item) => !names.has(keyOf(item))) : [], new Set()];
  }

  /**
   * Returns the jobs that copy to a place and are not finished. If this or the other transfer is a
   * move, these are also the jobs that failed, because they can be run again.
   * @param {Place} to @param {boolean} isMove
   */
  async #unfinished(to, isMove) {
    const { place } = targetOf(to, []);
    const jobs = this.jobs.list.filter(({ state, result, source }) => {
      const isFinished = state === "ended" && (result?.ok || (!isMove && source.move === undefined));
      return !isFinished && source.target?.place === place;
    });
    if (place !== LOCAL) {
      return jobs;
    }
    const directory = to.source.directory(to.path);
    const isHere = await Promise.all(jobs.map(({ source }) => source.target.directory.isSameEntry(directory)));
    return jobs.filter((_, at) => isHere[at]);
  }

  /**
   * Moves entries within a root of the server, without a copy.
   * @param {Place} from @param {Item[]} items @param {Place} to @param {Set<string>} replaced
   */
  async #rename(from, items, to, replaced) {
    let done = 0;
    try {
      for (const item of items) {
        await from.source.moveTo(from.path, item, to.path, replaced.has(item.name));
        done += 1;
      }
    } finally {
      await Promise.all([this.page.reloadAt(from), this.page.reloadAt(to)]);
    }
    this.page.say(
      `Moved ${countText(done, "entry", "entries")} to ${visible(placeText(to.source, to.path))}.`,
    );
  }

  /** @param {import("./job.js").Job} job @param {Place | null} from @param {Place} to */
  #watch(job, from, to) {
    const place = visible(placeText(to.source, to.path));
    const action = job.direction;
    this.page.say(`Started the ${action} of ${job.title} to ${place}. The jobs below show its progress.`);
    job.addEventListener("ended", ({ detail }) => this.#ended(job, detail, place, from, to));
  }

  /** Watches a move of an earlier visit. @param {import("./job.js").Job} job */
  #watchRestored(job) {
    const { move, rootName, to } = job.source;
    if (move !== undefined) {
      const place = visible([rootName, to].filter(Boolean).join("/"));
      const from = { source: new FolderSource("moved", move.directory), path: [] };
      job.addEventListener("ended", ({ detail }) => this.#ended(job, detail, place, from, null));
    }
  }

  /**
   * Reports the end of a job, and deletes the source of a move.
   * @param {import("./job.js").Job} job @param {import("./job.js").Result} result
   * @param {string} place @param {Place | null} from @param {Place | null} to null if it is not known
   */
  async #ended(job, result, place, from, to) {
    const { title, source: { move } } = job;
    const action = job.direction;
    await this.page.reloadAt(to);
    if (!result.ok || result.failed > 0) {
      const failed = result.failed > 0 ? ` (${countText(result.failed, "file")} failed)` : "";
      const stays = move === undefined ? "" : " The source stays.";
      this.page.say(
        `The ${action} of ${title} to ${place} is not complete${failed}.${stays} See the job, then run it again.`,
        true,
      );
      return;
    }
    const same = result.same > 0 ? `, ${countText(result.same, "file")} had equal contents` : "";
    const text = `The ${action} of ${title} to ${place} is complete: ${countText(result.done, "file")} copied${same}.`;
    if (move === undefined) {
      this.page.say(text);
      return;
    }
    try {
      this.page.say(await this.#removeSource(from, job, result.level, text));
    } catch (error) {
      this.page.say(`${text} The source may be deleted in part only: ${error.message}`, true);
    }
    this.jobs.forgetMove(job);
    await this.page.reloadAt(to === null ? null : from);
  }

  async #removeSource(from, { source: { move }, copied }, level, text) {
    if (!isDurable(level)) {
      return `${text} The source stays, because the copy is not durable yet.`;
    }
    const kept = await removeRecorded(from.source, from.path, move.nodes, copied);
    return kept.length === 0
      ? `${text} The source is deleted.`
      : `${text} These entries of the source were not copied, changed or cannot be deleted, so they stay: ${nameList(kept)}.`;
  }
}

/** Place of a target at the browser: its directory tells more. */
const LOCAL = "local";

/**
 * Returns what a job stores about the names that it creates.
 * @param {Place} to @param {{name: string}[]} items
 */
function targetOf({ source, path }, items) {
  const names = items.map((item) => item.name);
  if (isServer(source)) {
    return { place: JSON.stringify([source.ticket ?? source.title, forJson(ids(path))]), names };
  }
  // The browser gives downloads in its list names of their own.
  return source.kind === "saves" ? { place: "", names: [] } : { place: LOCAL, directory: source.directory(path), names };
}

/** Tells whether the files of a job survive a power cut. @param {string} level */
const isDurable = (level) => level === "durable" || level === "reread";

/** @param {{name: string}[]} entries */
const titleOf = (entries) =>
  entries.length === 1 ? visible(entries[0].name) : countText(entries.length, "entry", "entries");

/** @param {Item[]} steps */
const textPath = (steps) => steps.map((step) => step.name).join("/");

/**
 * Refuses what the jobs of a browser cannot copy, and names it.
 * @param {Item[]} steps entries whose names the job needs as text
 * @param {Item[]} items
 * @param {boolean} isUpload
 */
function refuseUnsupported(steps, items, isUpload) {
  const bytes = steps.find((step) => !step.isText);
  if (bytes !== undefined) {
    const what = isUpload ? "upload into" : "download";
    throw new Error(`cannot ${what} ${visible(bytes.name)}: its name is not UTF-8; rename it with F2 first`);
  }
  const special = items.find((item) => item.kind !== "file" && item.kind !== "directory");
  if (special !== undefined) {
    throw new Error(
      `cannot download ${visible(special.name)}: a browser stores only files and folders; remove it from the selection`,
    );
  }
}
