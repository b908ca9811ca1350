// Texts of sizes, times and names, and the order of names.

import { isOwnName } from "./client/own-names.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Returns a size as text, such as "1.5 MiB". @param {number} size in bytes */
export function sizeText(size) {
  let unit = 0;
  while (size >= 1024 && unit + 1 < UNITS.length) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${UNITS[unit]}`;
}

const twoDigits = (number) => String(number).padStart(2, "0");

/** Returns the local time as "2026-11-27 12:05". @param {number} time in milliseconds since 1970 */
export function timeText(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) {
    return "";
  }
  const day = [date.getFullYear(), twoDigits(date.getMonth() + 1), twoDigits(date.getDate())].join("-");
  return `${day} ${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
}

/**
 * Returns "1 file", "2 files".
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 */
export function countText(number, noun, plural = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

/** Control characters, line separators, bidi controls, invisible spaces, tags, half surrogates. */
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

/**
 * Makes characters visible that a browser does not draw or that change the order of others.
 * Joiners stay, because emoji and many scripts need them.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(UNSEEN, (char) => {
    const code = char.codePointAt(0);
    if (code < 0x20) {
      return String.fromCharCode(0x2400 + code);
    }
    return code === 0x7f ? "\u2421" : `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203a`;
  });
}

/**
 * Returns the first names and the number of the others.
 * @param {string[]} names
 * @param {number} [max]
 */
export function nameList(names, max = 6) {
  const shown = names.slice(0, max).map(visible);
  const left = names.length - shown.length;
  return shown.join(", ") + (left > 0 ? `, and ${left.toLocaleString("en")} more` : "");
}

const IS_ASCII = /^[\u0000-\u007f]*$/u;

/**
 * Returns a key whose order by code units is the natural order of names: without regard to case
 * and accents, and numbers by their value. Comparing keys is many times faster than Intl.Collator.
 * @param {string} name
 */
export function orderKey(name) {
  const plain = IS_ASCII.test(name) ? name : name.normalize("NFKD").replace(/\p{M}/gu, "");
  return plain.toLowerCase().replace(/\d+/g, (digits) => {
    const value = digits.replace(/^0+(?=.)/, "");
    // The number of digits comes first, so that 9 is before 10. It is in the place of digits.
    return `0${String.fromCharCode(0x30 + Math.min(value.length, 0x1000))}${value}`;
  });
}

/** Returns the reason why a text cannot be a name, or "". @param {string} name */
export function nameProblem(name) {
  if (name === "") {
    return "Enter a name.";
  }
  if (name === "." || name === "..") {
    return `"${name}" cannot be a name.`;
  }
  if (name.includes("/") || name.includes("\0")) {
    return "A name cannot contain a slash.";
  }
  if (isOwnName(name)) {
    return '".haul" and names that start with ".haul-" are reserved.';
  }
  return new TextEncoder().encode(name).length > 255 ? "A name has at most 255 bytes." : "";
}
