// Verify and repair: asks for the waybill, shows the verification, and copies what is damaged.

import { choose } from "./dialog.js";
import { create } from "./dom.js";
import { placeText } from "./item.js";
import { countText, nameList, visible } from "./text.js";
import { Verification } from "./verification.js";
import { VerificationPanel } from "./verification-panel.js";
import { verifyFiles, writeWaybill } from "./verify-files.js";

/** @typedef {import("./item.js").Item} Item */
/** @typedef {import("./transfers.js").Place} Place */
/** @typedef {import("./verification.js").Damaged} Damaged */

/**
 * A waybill. `steps` is its path if it is a file at the server; `read` returns its contents.
 * @typedef {{name: string, source?: import("./item.js").Source, steps?: Item[], read: () => Promise<Blob>}} Waybill
 */

/** Largest waybill that the page reads from the server. */
const WAYBILL_MAX = 64 << 20;

const isWaybill = ({ kind, name }) => kind === "file" && /\.waybill$/i.test(name);

/** @param {string} name @param {Blob} blob @returns {Waybill} */
const waybillOf = (name, blob) => ({ name, read: async () => blob });

/** Returns the waybill that is selected in a pane, or null. @param {import("./pane.js").Pane} pane @returns {Waybill | null} */
function selectedWaybill({ source, path, listing }) {
  const [item, second] = listing.targets;
  if (item === undefined || second !== undefined || !isWaybill(item)) {
    return null;
  }
  if (source.kind === "server") {
    return { name: item.name, source, steps: [...path, item], read: () => source.read(path, item, WAYBILL_MAX) };
  }
  return { name: item.name, read: async () => item.file ?? item.handle.getFile() };
}

/** Lets the user choose a file. @returns {Promise<Waybill | null>} */
function chooseWaybill() {
  const input = create("input", { type: "file", accept: ".waybill,text/plain" });
  return new Promise((resolve) => {
    input.addEventListener("change", () => resolve(waybillOf(input.files[0].name, input.files[0])));
    input.addEventListener("cancel", () => resolve(null));
    input.click();
  });
}

export class Verifier {
  /** @type {Place | null} */
  #place = null;
  /** @type {Waybill | null} */
  #waybill = null;

  /**
   * @param {HTMLElement} element
   * @param {import("./jobs.js").Jobs} jobs
   * @param {{say: (text: string, isError?: boolean) => void, attempt: (action: () => unknown) => Promise<void>,
   *   copiesFor: (place: Place) => Place | null, focus: () => void, reloadAt: (place: Place) => Promise<void>}} page
   */
  constructor(element, jobs, page) {
    [this.jobs, this.page] = [jobs, page];
    this.panel = new VerificationPanel(element, {
      again: () => this.start(this.#place, this.#waybill),
      repair: (verification) => page.attempt(() => this.#repair(verification)),
      hide: () => page.focus(),
    });
  }

  /** Asks for the waybill of the folder of a pane, and verifies. @param {import("./pane.js").Pane} pane @param {import("./pane.js").Pane} other */
  async ask(pane, other) {
    const place = { source: pane.source, path: pane.path };
    const found = selectedWaybill(pane) ?? selectedWaybill(other);
    const own = found === null ? [] : [{ value: "found", label: `By ${visible(found.name)}`, isMain: true }];
    const text =
      "A waybill has the digests of files: the receipt of a transfer, or of haul sum and haul cp with --waybill. " +
      "Its names start in this folder.";
    const ways = [...own, { value: "file", label: "By a waybill of this computer\u2026", isMain: found === null }];
    const answer = await choose(`Verify ${visible(pane.placeText)}?`, text, ways);
    const waybill = answer === "file" ? await chooseWaybill() : answer === "found" ? found : null;
    if (waybill !== null) {
      this.start(place, waybill);
    }
  }

  /** Verifies by the receipt of a job. @param {Place} place @param {import("./job.js").Job} job */
  startJob(place, job) {
    this.start(place, waybillOf(`the receipt of ${job.title}`, job.receipt));
  }

  /** @param {Place} place @param {Waybill} waybill */
  start(place, waybill) {
    [this.#place, this.#waybill] = [place, waybill];
    return this.#run(`${visible(placeText(place.source, place.path))} by ${visible(waybill.name)}`, place, waybill);
  }

  /** @param {string} title @param {Place} place @param {Waybill} waybill */
  #run(title, { source, path }, waybill) {
    const verification = new Verification();
    this.panel.show(`Verification of ${title}`, verification);
    verification.addEventListener("end", () => {
      // The names of many waybills start with the name of the folder, as for haul verify.
      const last = path.at(-1);
      if (last !== undefined && verification.isAllBeneath(last.name)) {
        this.start({ source, path: path.slice(0, -1) }, waybill);
      }
    });
    this.page.attempt(() => verification.run((signal) => source.verify(path, waybill, signal)));
  }

  /** @param {Verification} verification */
  async #repair({ damaged }) {
    const [place, waybill] = [this.#place, this.#waybill];
    const from = this.page.copiesFor(place);
    const isUpload = place.source.kind === "server";
    if (from === null) {
      const wanted = isUpload ? "a folder of this computer" : "a directory of the server";
      throw new Error(`cannot repair: show ${wanted} that has intact copies in a pane`);
    }
    const refusal = isUpload ? place.source.refusal("receive") : from.source.refusal("read");
    if (refusal !== null) {
      throw new Error(refusal);
    }
    const wanted = await askWhich(from, damaged.filter(({ path, size }) => path !== null && size !== null));
    if (wanted.length === 0) {
      return;
    }
    await place.source.permit?.();
    const intact = await this.#intact(from, waybill, wanted);
    if (intact.length === 0) {
      throw new Error(`${visible(placeText(from.source, from.path))} has no intact copy of these files, so nothing was changed`);
    }
    const files = await this.#unchanged(place, waybill, intact);
    const newer = intact.length - files.length;
    const stay = newer > 0 ? ` ${countText(newer, "file")} changed since the verification, so nothing replaces them; verify again.` : "";
    if (files.length === 0) {
      throw new Error(`nothing was repaired:${stay}`);
    }
    const jobs = isUpload ? [await this.#upload(from, place, files)] : await this.#download(from, place, files);
    const results = await Promise.all(jobs.map(endOf));
    await this.page.reloadAt(place);
    if (results.some(({ ok, failed }) => !ok || failed > 0)) {
      throw new Error("the repair is not complete; see the jobs, then verify again");
    }
    const left = wanted.length - intact.length;
    const more = left > 0 ? ` ${countText(left, "file")} had no intact copy.` : "";
    this.page.say(`Repaired ${countText(files.length, "file")}.${more}${stay} They are verified now.`, left + newer > 0);
    this.#run(`${countText(files.length, "repaired file")}`, place, await subset(files));
  }

  /** Returns the files whose copies match the waybill. @param {Place} from @param {Waybill} waybill @param {Damaged[]} wanted */
  async #intact(from, waybill, wanted) {
    this.page.say(`Comparing ${countText(wanted.length, "copy", "copies")} with the waybill\u2026`);
    const bad = await this.#compare(from, waybill, wanted);
    return wanted.filter(({ path, blake3 }) => !bad.has(path) && (from.source.kind !== "server" || blake3 !== null));
  }

  /**
   * Returns the files that are as the verification found them. The others can have newer contents.
   * @param {Place} place @param {Waybill} waybill @param {Damaged[]} files
   */
  async #unchanged(place, waybill, files) {
    const now = await this.#compare(place, waybill, files);
    // The server compares by a waybill without times, and so cannot tell damaged from modified.
    const isLocal = place.source.kind !== "server";
    const isSame = (found, verdict) =>
      isLocal ? found === verdict : found !== undefined && (found === "missing") === (verdict === "missing");
    return files.filter(({ path, verdict }) => isSame(now.get(path), verdict));
  }

  /**
   * Verifies files. Returns the verdicts of those that are not intact, by path.
   * @param {Place} place @param {Waybill} waybill @param {Damaged[]} files
   */
  async #compare({ source, path: steps }, waybill, files) {
    const check = new Verification();
    const isLocal = source.kind !== "server";
    const used = isLocal ? waybill : await subset(files.filter(({ blake3 }) => blake3 !== null));
    const paths = files.map(({ path }) => path);
    await check.run((signal) =>
      isLocal ? verifyFiles((names) => source.open(steps, names), used, signal, paths) : source.verify(steps, used, signal));
    if (check.state !== "ended") {
      throw new Error(`cannot compare the files with the waybill: ${check.message}`);
    }
    return new Map(check.damaged.map(({ path, verdict }) => [path, verdict]));
  }

  /** @param {Place} from @param {Place} to @param {Damaged[]} files */
  async #upload(from, to, files) {
    const roots = [];
    for (const { path } of files) {
      roots.push({ file: await from.source.open(from.path, path.split("/")), path });
    }
    const title = `${countText(files.length, "file")} for a repair`;
    return this.jobs.upload({ roots, root: to.source.root.id, to: textPath(to.path), title, compares: true });
  }

  /** Downloads the files of each folder by a job. @param {Place} from @param {Place} to @param {Damaged[]} files */
  async #download(from, to, files) {
    const groups = Map.groupBy(files, ({ path }) => path.split("/").slice(0, -1).join("/"));
    const jobs = [];
    for (const [parent, members] of groups) {
      const isPrivate = to.source.kind === "private" && to.path.length === 0 && parent === "";
      let folder = isPrivate ? null : to.source.directory(to.path);
      for (const name of parent.split("/").filter(Boolean)) {
        folder = await folder.getDirectoryHandle(name, { create: true });
      }
      const start = textPath(from.path);
      const paths = members.map(({ path }) => [start, path].filter(Boolean).join("/"));
      const title = `${countText(members.length, "file")} for a repair`;
      jobs.push(this.jobs.download({ root: from.source.root.id, paths, folder, title }));
    }
    return jobs;
  }
}

/** @param {Item[]} steps */
const textPath = (steps) => steps.map((step) => step.name).join("/");

/** Waits for the end of a job. @param {import("./job.js").Job} job @returns {Promise<import("./job.js").Result>} */
const endOf = (job) => new Promise((resolve) => job.addEventListener("ended", ({ detail }) => resolve(detail), { once: true }));

/** Returns a waybill of some files. @param {Damaged[]} files @returns {Promise<Waybill>} */
async function subset(files) {
  const entries = files.map(({ path, size, blake3 }) => ({ path, size, mtime: 0, level: 0, digest: blake3 }));
  return waybillOf("the waybill", await writeWaybill("", "verification of some files by a browser", entries));
}

/**
 * Asks which files to repair.
 * @param {Place} from @param {Damaged[]} files
 */
async function askWhich(from, files) {
  const [modified, plain] = [files.filter(({ verdict }) => verdict === "modified"), files.filter(({ verdict }) => verdict === "rotted" || verdict === "missing")];
  if (modified.length + plain.length === 0) {
    throw new Error("cannot repair: none of these entries is a file with a name in UTF-8; use haul repair");
  }
  const names = nameList([...plain, ...modified].map(({ name }) => name));
  const rule = "Only copies that match the waybill are used. A modified file can have newer contents, which a repair replaces.";
  const ways = [];
  if (plain.length > 0) {
    ways.push({ value: "plain", label: `Repair ${plain.length.toLocaleString("en")} damaged or missing`, isMain: true });
  }
  if (modified.length > 0) {
    const label = `${plain.length > 0 ? "Also replace" : "Replace"} ${modified.length.toLocaleString("en")} modified`;
    ways.push({ value: "all", label, isDanger: true });
  }
  const answer = await choose(`Repair from ${visible(placeText(from.source, from.path))}?`, `${names}.\n${rule}`, ways);
  return answer === "all" ? [...plain, ...modified] : answer === "plain" ? plain : [];
}
