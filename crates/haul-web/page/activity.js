// The activity of the server: rate, sessions and lanes, and the jobs of its user.

import * as api from "./api.js";
import { create } from "./dom.js";
import { parseMetrics, storageOf } from "./metrics.js";
import { RatePlot } from "./plot.js";
import { RateHistory } from "./rate.js";
import { countText, sizeText, visible } from "./text.js";

/** Time between two requests, in milliseconds. */
const INTERVAL = 1000;

/** Jobs that are shown. */
const JOBS_MAX = 50;

/** What is shown of the counters: a label, and the text of its values. */
const TILES = [
  ["Transfers running", (values) => number(values.haul_running_sessions)],
  ["Transfers since the start", (values) => `${number(values.haul_sessions_total)} (${number(values.haul_incomplete_sessions_total)} not complete)`],
  ["Files", (values) => `${number(values.haul_files_total)} (${number(values.haul_failed_files_total)} failed)`],
  ["Verified data", (values) => sizeText(values.haul_settled_bytes_total ?? 0)],
  ["Arrived, not verified yet", (values) => sizeText(values.haul_unverified_bytes ?? 0)],
  ["Objects sent again", (values) => number(values.haul_resent_objects_total)],
  ["Browsers", (values) => number(values.haul_web_sessions)],
  ["Lanes of browsers", (values) => `${number(values['haul_web_lanes{kind="http"}'])} HTTPS, ${number(values['haul_web_lanes{kind="webtransport"}'])} WebTransport`],
  ["Refused requests", (values) => number(sum(values, "haul_web_refused_total{"))],
];

/** @param {number | undefined} value */
const number = (value) => (value ?? 0).toLocaleString("en");

/** @param {Record<string, number>} values @param {string} start */
const sum = (values, start) =>
  Object.keys(values).reduce((all, name) => all + (name.startsWith(start) ? values[name] : 0), 0);

export class Activity {
  /** The last values of the storage, and their time in milliseconds. */
  #storage = { at: 0, values: new Map() };
  #timer = 0;
  #rates = new RateHistory();
  #isFirst = true;

  /**
   * @param {HTMLElement} element @param {HTMLElement} toggle @param {api.Session} session
   * @param {(action: () => unknown) => Promise<void>} attempt runs an action and shows its failure
   */
  constructor(element, toggle, session, attempt) {
    [this.element, this.toggle, this.session, this.attempt] = [element, toggle, session, attempt];
    this.plot = new RatePlot();
    this.values = TILES.map(([label]) => [create("dt", {}, label), create("dd")]);
    this.jobs = create("tbody");
    this.table = table("Jobs of this user", ["Command", "State", "Progress", "Started"], this.jobs);
    this.storage = create("tbody");
    this.storageTable = table("Storage of the directories", ["Directory", "Reads", "Writes", "Busy", "Free"], this.storage);
    element.replaceChildren(
      create("h2", {}, "Activity of the server"),
      this.plot.element,
      create("dl", {}, ...this.values.map(([label, value]) => create("div", {}, label, value))),
      this.storageTable,
      this.table);
    toggle.addEventListener("click", () => this.show(element.hidden));
  }

  /** @param {boolean} isShown */
  show(isShown) {
    this.element.hidden = !isShown;
    this.toggle.setAttribute("aria-expanded", String(isShown));
    clearTimeout(this.#timer);
    if (isShown) {
      this.#isFirst = true;
      this.#poll();
    }
  }

  #poll() {
    this.attempt(async () => {
      if (!document.hidden) {
        await this.#update();
      }
      if (!this.element.hidden) {
        this.#timer = setTimeout(() => this.#poll(), INTERVAL);
      }
    });
  }

  async #update() {
    const values = parseMetrics(await api.metrics());
    TILES.forEach(([, text], at) => {
      this.values[at][1].textContent = text(values);
    });
    const [now, bytes] = [performance.now(), values.haul_settled_bytes_total ?? 0];
    if (this.#isFirst) {
      this.#isFirst = false;
      this.#rates.start(now, bytes);
    }
    this.#rates.add(now, bytes);
    this.plot.draw(this.#rates);
    this.#drawStorage(now, storageOf(values));
    if (this.session.jobs) {
      this.#drawJobs(await api.jobs());
    }
  }

  /** @param {number} now @param {Map<string, Record<string, number>>} storage */
  #drawStorage(now, storage) {
    const before = this.#storage;
    this.#storage = { at: now, values: storage };
    this.storageTable.hidden = storage.size === 0;
    this.storage.replaceChildren(...[...storage].slice(0, JOBS_MAX).map(([name, values]) => {
      const old = before.values.get(name) ?? {};
      const seconds = (now - before.at) / 1000;
      const rate = (what) => Math.max(0, values[what] - old[what]) / seconds;
      const bytes = (what) => (Number.isFinite(rate(what)) ? `${sizeText(Math.round(rate(what)))}/s` : "");
      const busy = rate("busy_milliseconds") / 10;
      const share = Number.isFinite(busy) ? `${Math.min(100, Math.round(busy))} %` : "";
      return line([name, bytes("read_bytes"), bytes("written_bytes"), share, sizeText(values.free_bytes ?? 0)]);
    }));
  }

  /** @param {api.UserJob[]} jobs */
  #drawJobs(jobs) {
    this.table.hidden = jobs.length === 0;
    this.jobs.replaceChildren(...jobs.slice(0, JOBS_MAX).map((job) =>
      line([commandText(job), job.status, progressText(job), job.begun ?? ""])));
  }
}

/** @param {string} caption @param {string[]} heads @param {HTMLElement} body */
function table(caption, heads, body) {
  const row = create("tr", {}, ...heads.map((text) => create("th", { scope: "col" }, text)));
  return create("table", { hidden: true }, create("caption", {}, caption), create("thead", {}, row), body);
}

/** @param {string[]} texts */
const line = (texts) => create("tr", {}, ...texts.map((text) => create("td", {}, visible(text))));

/** @param {api.UserJob} job */
const commandText = (job) => (job.words ? ["haul", ...job.words].join(" ") : job.trouble ?? "");

/** @param {api.UserJob} job */
function progressText({ bytes_done: done, bytes_found: found, files_done: files }) {
  if (done === null || done === undefined) {
    return "";
  }
  return `${sizeText(done)} of ${sizeText(found ?? 0)}, ${countText(files ?? 0, "file")}`;
}
