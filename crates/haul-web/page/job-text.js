// Texts about a job.

import { countText, sizeText, visible } from "./text.js";

/** @typedef {import("./job.js").Job} Job */

/** Share of the time from which on one cause limits the rate. */
const LIMITING = 0.5;

/** Returns a time such as "0:07" or "1:02:03". @param {number} seconds */
export function durationText(seconds) {
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Returns how much of the job is done, from 0 to 1, or null if it is unknown. @param {Job} job */
export function share(job) {
  const { total, progress, result } = job;
  if (job.state === "ended" && result?.ok) {
    return 1;
  }
  return total?.isWhole && total.bytes > 0 ? Math.min(1, progress.bytes / total.bytes) : null;
}

/** @param {Job} job */
export function stateText(job) {
  switch (job.state) {
    case "queued":
      return "Waiting for its turn";
    case "running":
      return job.reason || "Running";
    case "stopping":
      return "Stopping";
    case "elsewhere":
      return "Runs in another tab";
    case "paused":
      if (job.lost.length > 0) {
        const files = countText(job.lost.length, "file");
        return `Paused: choose ${files} again, because a browser keeps no access to chosen files`;
      }
      return job.reason ? `Paused: ${job.reason}` : "Paused";
    default:
      return resultText(job);
  }
}

/** @param {Job} job */
function resultText({ result }) {
  if (result === null) {
    return "Ended";
  }
  const { ok, failed, text } = result;
  if (ok) {
    return "Complete";
  }
  const files = failed > 0 ? `${countText(failed, "file")} failed` : "";
  return `Not complete: ${[files, visible(text)].filter((part) => part !== "").join("; ") || "it was stopped"}`;
}

/** Tells what the upload left out, or returns "". @param {Job} job */
export function leftOutText({ leftOut }) {
  return leftOut ? `${visible(leftOut)}: Surehaul's own files (.haul and .haul-*) are left out` : "";
}

/** Returns bytes, files, rate and remaining time. @param {Job} job */
export function progressText(job) {
  const { total, progress, rates } = job;
  const { done, same, level } = progress.counts;
  const bytes = total === null ? sizeText(progress.bytes) : `${sizeText(progress.bytes)} of ${total.isWhole ? "" : "at least "}${sizeText(total.bytes)}`;
  const files = done + same;
  const parts = [bytes, total === null ? countText(files, "file") : `${files.toLocaleString("en")} of ${countText(total.files, "file")}`];
  if (same > 0) {
    parts.push(`${same.toLocaleString("en")} equal before`);
  }
  if (files > 0) {
    parts.push(`all ${level}`);
  }
  if (job.state === "running" || job.state === "elsewhere") {
    parts.push(`${sizeText(Math.round(rates.rate()))}/s`);
    const left = total?.isWhole ? rates.remaining(Math.max(0, total.bytes - progress.bytes)) : null;
    if (left !== null) {
      parts.push(`${durationText(left)} left`);
    }
  }
  return parts.join(" \u00b7 ");
}

/**
 * Returns what limits the rate, from the times that the worker waited.
 * @param {"upload" | "download"} direction @param {{lane: number, storage: number, peer: number} | null} waits @param {number} time of the work in milliseconds
 */
export function limitText(direction, waits, time) {
  if (waits === null || time < 1000) {
    return "";
  }
  const causes = [
    [waits.lane, direction === "upload" ? "the network, or the server's storage" : "the network, or the server"],
    [waits.storage, direction === "upload" ? "reading the files on this computer" : "writing the files on this computer"],
    [waits.peer, "answers of the server"],
    [time - waits.lane - waits.storage - waits.peer, "the processor: digests and the browser"],
  ];
  const [most, cause] = causes.reduce((a, b) => (b[0] > a[0] ? b : a));
  return most / time >= LIMITING ? `Limited by ${cause} (${Math.round((100 * most) / time)} % of the time)` : "Limited by nothing in particular";
}
