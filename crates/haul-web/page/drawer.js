// The drawer at the bottom of the page: the jobs of this browser.

import { create, drawLater, textButton } from "./dom.js";
import { JobRow } from "./job-row.js";
import { share, stateText } from "./job-text.js";
import { countText, sizeText } from "./text.js";

/** Shortest time between two drawings and between two messages to screen readers, in milliseconds. */
const DRAW = 200;
const SAY = 5000;

const LANES = [["auto", "Automatic"], ["http", "HTTPS"], ["webtransport", "WebTransport"]];

export class Drawer {
  /** @type {Map<import("./job.js").Job, JobRow>} */
  #rows = new Map();
  #drawSoon = drawLater(DRAW, () => this.#draw());
  #said = 0;
  /** @type {string[]} */
  #news = [];
  #isSaying = false;

  /**
   * @param {HTMLElement} element @param {import("./jobs.js").Jobs} jobs
   * @param {(job: import("./job.js").Job) => unknown} verify
   */
  constructor(element, jobs, verify) {
    this.verify = verify;
    this.jobs = jobs;
    this.element = element;
    element.classList.add("drawer");
    this.summary = create("span", { className: "drawer-summary" });
    this.toggle = create("button", { type: "button", className: "drawer-toggle" }, create("strong", {}, "Jobs"), this.summary);
    this.toggle.setAttribute("aria-expanded", "false");
    this.toggle.setAttribute("aria-controls", "job-list");
    this.toggle.addEventListener("click", () => this.open(this.body.hidden));
    this.lanes = create("select", { id: "lanes" }, ...LANES.map(([value, textContent]) => create("option", { value, textContent })));
    this.lanes.addEventListener("change", () => {
      jobs.lanes = this.lanes.value;
    });
    this.clear = textButton("Remove complete jobs", () => this.#removeComplete());
    const label = create("label", { htmlFor: "lanes", textContent: "Connection" });
    this.tools = create("span", { className: "drawer-tools" }, label, this.lanes, this.clear);
    this.list = create("ul", { id: "job-list" });
    this.empty = create("p", { className: "drawer-empty", textContent: "No jobs. Select entries in a pane and press F5 to copy them to the other pane." });
    this.body = create("div", { className: "drawer-body", hidden: true }, this.empty, this.list);
    this.live = create("div", { className: "drawer-live", ariaLive: "polite" });
    element.replaceChildren(create("div", { className: "drawer-bar" }, this.toggle, this.tools), this.body, this.live);
    jobs.addEventListener("change", () => this.#changed());
    this.#changed();
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this.body.hidden = !isOpen;
    this.tools.hidden = !isOpen;
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    this.#draw();
  }

  #changed() {
    const { list } = this.jobs;
    for (const [job, row] of this.#rows) {
      if (!list.includes(job)) {
        row.element.remove();
        this.#rows.delete(job);
      }
    }
    list.filter((job) => !this.#rows.has(job)).forEach((job) => this.#add(job));
    // The newest job is at the top.
    const wanted = [...list].reverse().map((job) => this.#rows.get(job).element);
    wanted.forEach((element, at) => {
      if (this.list.children[at] !== element) {
        this.list.insertBefore(element, this.list.children[at] ?? null);
      }
    });
    this.lanes.value = this.jobs.lanes;
    this.#draw();
  }

  /** @param {import("./job.js").Job} job */
  #add(job) {
    const row = new JobRow(job, this.verify);
    this.#rows.set(job, row);
    let state = job.state;
    job.addEventListener("change", () => {
      if (job.state !== state) {
        state = job.state;
        this.#say(`${row.name}: ${stateText(job)}`);
      }
      this.#drawSoon();
    });
    if (job.isActive) {
      this.open(true);
    }
  }

  #draw() {
    const { list } = this.jobs;
    this.tools.hidden = this.body.hidden;
    this.empty.hidden = list.length > 0;
    this.clear.disabled = !list.some((job) => job.state === "ended" && job.result?.ok);
    if (!this.body.hidden) {
      this.#rows.forEach((row) => row.draw());
    }
    const text = this.#summaryText();
    if (this.summary.textContent !== text) {
      this.summary.textContent = text;
    }
  }

  #summaryText() {
    const { list } = this.jobs;
    const number = (wanted) => list.filter(wanted).length;
    const running = list.filter((job) => job.state === "running");
    const counts = [
      [running.length, "running"],
      [number((job) => job.state === "queued"), "waiting"],
      [number((job) => job.state === "elsewhere"), "in another tab"],
      [number((job) => job.state === "paused"), "paused"],
      [number((job) => job.state === "ended" && !job.result?.ok), "not complete"],
      [number((job) => job.state === "ended" && job.result?.ok), "complete"],
    ];
    const parts = counts.filter(([count]) => count > 0).map(([count, what]) => `${count.toLocaleString("en")} ${what}`);
    if (running.length > 0) {
      const rate = running.reduce((sum, job) => sum + job.rates.rate(), 0);
      parts.push(`${sizeText(Math.round(rate))}/s`);
      const shares = running.map(share);
      if (shares.every((done) => done !== null)) {
        parts.push(`${Math.floor((100 * shares.reduce((sum, done) => sum + done, 0)) / shares.length)} %`);
      }
    }
    return parts.length > 0 ? parts.join(" \u00b7 ") : countText(0, "job");
  }

  #removeComplete() {
    this.jobs.list.filter((job) => job.state === "ended" && job.result?.ok).forEach((job) => job.forget());
  }

  /** Tells screen readers, not more often than they can read. @param {string} text */
  #say(text) {
    this.#news.push(text);
    if (this.#isSaying) {
      return;
    }
    this.#isSaying = true;
    setTimeout(() => {
      this.#isSaying = false;
      this.#said = Date.now();
      this.live.textContent = this.#news.splice(0).slice(-3).join(". ");
    }, Math.max(100, this.#said + SAY - Date.now()));
  }
}
