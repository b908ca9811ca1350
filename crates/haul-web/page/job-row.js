// A job in the drawer.

import { create, saveAs, textButton } from "./dom.js";
import { leftOutText, limitText, progressText, share, stateText } from "./job-text.js";
import { RatePlot } from "./plot.js";
import { countText, visible } from "./text.js";

/** Failures that are shown. */
const FAILURES_MAX = 50;

const PATHS = { http: "HTTPS", webtransport: "WebTransport" };

/** Sets a text only if it changes, so that nothing is drawn or read again. @param {HTMLElement} element @param {string} text */
function put(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Most texts name their file. @param {{path: string, text: string}} failure */
function failureItem({ path, text }) {
  return text.includes(path) ? create("li", {}, visible(text)) : create("li", {}, create("bdi", {}, visible(path)), `: ${visible(text)}`);
}

export class JobRow {
  /** @param {import("./job.js").Job} job @param {(job: import("./job.js").Job) => unknown} verify */
  constructor(job, verify) {
    [this.job, this.verify] = [job, verify];
    const { direction, source } = job;
    const server = `${source.rootName}${source.to ? `/${source.to}` : ""}`;
    const target = source.folder ? visible(source.folder.name) : source.saves ? "the downloads of the browser" : "the storage of this page";
    const [noun, arrow, where] = {
      upload: ["Upload", "\u2191", `to ${visible(server)}`],
      download: ["Download", "\u2193", `from ${visible(source.rootName)} to ${target}`],
      fetch: ["Copy", "\u2190", `from another server to ${visible(source.toText ?? "")}`],
      copy: ["Copy", "\u2192", `from ${visible(source.rootName)} to ${visible(source.toText ?? "")}`],
    }[direction];
    this.name = `${noun} of ${visible(job.title)}`;
    this.state = create("span", { className: "job-state" });
    this.path = create("span", { className: "job-path" });
    this.bar = create("div", { className: "job-bar", role: "progressbar", ariaLabel: this.name, ariaValueMin: "0", ariaValueMax: "100" });
    this.fill = this.bar.appendChild(create("div", { className: "job-fill" }));
    this.numbers = create("span", { className: "job-numbers" });
    this.leftOut = create("span", { className: "job-left-out" });
    this.limit = create("p", { className: "job-limit" });
    this.plot = new RatePlot();
    this.failures = create("ul", { className: "job-failures" });
    this.failureTitle = create("h4");
    const parts = [this.plot.element, this.limit, this.failureTitle, this.failures];
    this.details = create("details", { className: "job-details" }, create("summary", {}, "Details"), ...parts);
    this.details.addEventListener("toggle", () => this.draw());
    this.buttons = this.#createButtons();
    const sign = create("span", { className: "job-arrow", ariaHidden: "true" }, arrow);
    const title = create("span", { className: "job-title" }, sign, create("strong", {}, visible(job.title)), ` ${where}`);
    this.element = create("li", { className: "job" },
      create("div", { className: "job-head" }, title, this.path, create("span", { className: "job-buttons" }, ...Object.values(this.buttons))),
      this.bar,
      create("div", { className: "job-line" }, this.state, this.numbers, this.leftOut),
      this.details);
    this.element.setAttribute("aria-label", this.name);
    this.draw();
  }

  #createButtons() {
    const { job } = this;
    const buttons = {
      pause: textButton(job.source.saves ? "Stop" : "Pause", () => job.pause()),
      resume: textButton("Resume", () => job.resume()),
      choose: textButton("Choose files\u2026", () => this.#choose()),
      retry: textButton("Try again", () => job.retry()),
      verify: textButton("Verify", () => this.verify(job)),
      receipt: textButton("Save receipt", () => this.#saveReceipt()),
      forget: textButton("Remove", () => job.forget()),
    };
    Object.values(buttons).forEach((button) => button.setAttribute("aria-label", `${button.textContent}: ${this.name}`));
    return buttons;
  }

  #choose() {
    const { job } = this;
    const input = create("input", { type: "file", multiple: true });
    input.webkitdirectory = job.lost.some(({ path }) => path.includes("/"));
    input.addEventListener("change", async () => {
      if (job.supply(input.files) === 0) {
        await job.resume();
      }
    });
    input.click();
  }

  #saveReceipt() {
    const address = URL.createObjectURL(this.job.receipt);
    saveAs(address, `haul-${this.job.id.slice(0, 8)}.waybill`);
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  draw() {
    const { job } = this;
    const { state, lost } = job;
    const done = share(job);
    const percent = done === null ? null : Math.floor(100 * done);
    const isBad = state === "ended" && !job.result?.ok;
    this.element.dataset.state = isBad ? "bad" : state;
    put(this.state, visible(stateText(job)));
    put(this.numbers, progressText(job));
    put(this.leftOut, leftOutText(job));
    put(this.path, state === "running" || state === "elsewhere" ? PATHS[job.progress.path] ?? "" : "");
    this.bar.hidden = state === "ended";
    this.bar.classList.toggle("unknown", percent === null && state === "running");
    this.fill.style.setProperty("width", `${percent ?? 0}%`);
    if (percent === null) {
      this.bar.removeAttribute("aria-valuenow");
    } else {
      this.bar.setAttribute("aria-valuenow", String(percent));
    }
    this.bar.setAttribute("aria-valuetext", percent === null ? progressText(job) : `${percent} %`);
    this.#drawButtons(state, lost.length > 0);
    if (this.details.open) {
      this.#drawDetails();
    }
  }

  /** @param {import("./job.js").State} state @param {boolean} isLost */
  #drawButtons(state, isLost) {
    const shown = {
      pause: state === "running" || state === "queued" || state === "elsewhere",
      resume: state === "paused" && !isLost,
      choose: state === "paused" && isLost,
      retry: state === "ended" && !this.job.result?.ok,
      verify: state === "ended" && this.job.receipt !== null && !this.job.source.saves,
      receipt: this.job.receipt !== null,
      forget: state === "paused" || state === "ended",
    };
    const { unproven } = this.job;
    const without = unproven > 0 ? ` ${countText(unproven, "file")} without a known digest: there before.` : "";
    this.buttons.receipt.title = `Waybill: names, sizes and BLAKE3 digests of the files. "haul verify FILE DIRECTORY" compares them.${without}`;
    const hadFocus = this.element.contains(document.activeElement);
    Object.entries(shown).forEach(([name, isShown]) => {
      this.buttons[name].hidden = !isShown;
    });
    if (hadFocus && document.activeElement instanceof HTMLElement && document.activeElement.hidden) {
      Object.values(this.buttons).find((button) => !button.hidden)?.focus();
    }
  }

  #drawDetails() {
    const { job } = this;
    this.plot.draw(job.rates);
    put(this.limit, limitText(job.direction, job.progress.waits, job.runTime));
    const shown = job.failures.slice(0, FAILURES_MAX);
    const failed = Math.max(job.result?.failed ?? 0, job.failures.length);
    put(this.failureTitle, failed > 0 ? `${countText(failed, "file")} failed${failed > shown.length ? `; the first ${shown.length}` : ""}` : "");
    this.failureTitle.hidden = failed === 0;
    if (this.failures.childElementCount !== shown.length) {
      this.failures.replaceChildren(...shown.map(failureItem));
    }
  }
}
