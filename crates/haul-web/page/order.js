// Sorting and filtering of long lists in slices of time, so that the page never stops.

/** @typedef {import("./item.js").Item} Item */
/** @typedef {{by: "name" | "size" | "time", isDescending: boolean}} Order */
/** @typedef {(one: Item, other: Item) => number} Compare */

/** Items that are sorted or filtered without a pause. */
const SLICE = 2048;

/** Time between two pauses, in milliseconds. */
const WORK = 12;

const byKey = (one, other) =>
  one.key < other.key ? -1 : one.key > other.key ? 1 : one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
const unknownFirst = (value) => value ?? -1;

/**
 * Returns the comparison of an order. Directories are first in both directions.
 * @param {Order} order
 * @returns {Compare}
 */
export function comparison({ by, isDescending }) {
  const sign = isDescending ? -1 : 1;
  const value = { size: (item) => unknownFirst(item.size), time: (item) => unknownFirst(item.time) }[by];
  return (one, other) => {
    const isOneFolder = one.kind === "directory";
    if (isOneFolder !== (other.kind === "directory")) {
      return isOneFolder ? -1 : 1;
    }
    const difference = value === undefined ? 0 : value(one) - value(other);
    return sign * (difference === 0 ? byKey(one, other) : difference);
  };
}

/** Merges two sorted lists. @param {Item[]} one @param {Item[]} other @param {Compare} compare */
export function merge(one, other, compare) {
  if (one.length === 0 || other.length === 0 || compare(one.at(-1), other[0]) <= 0) {
    return one.concat(other);
  }
  const merged = new Array(one.length + other.length);
  for (let [at, left, right] = [0, 0, 0]; at < merged.length; at += 1) {
    const isLeft = right === other.length || (left < one.length && compare(one[left], other[right]) <= 0);
    merged[at] = isLeft ? one[left++] : other[right++];
  }
  return merged;
}

/** Returns a function that waits for other tasks of the page if it was called for too long. */
function breather() {
  let since = performance.now();
  return async () => {
    if (performance.now() - since > WORK) {
      await new Promise((resolve) => setTimeout(resolve));
      since = performance.now();
    }
  };
}

/**
 * Returns the sorted items that pass, or null if `isCurrent` became false.
 * @param {Item[]} items @param {(item: Item) => boolean} passes @param {Compare} compare
 * @param {() => boolean} isCurrent
 */
export async function arrange(items, passes, compare, isCurrent) {
  const breathe = breather();
  let runs = [];
  for (let at = 0; at < items.length; at += SLICE) {
    runs.push(
      items
        .slice(at, at + SLICE)
        .filter(passes)
        .sort(compare),
    );
    await breathe();
    if (!isCurrent()) {
      return null;
    }
  }
  while (runs.length > 1) {
    const merged = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(at + 1 < runs.length ? merge(runs[at], runs[at + 1], compare) : runs[at]);
      await breathe();
      if (!isCurrent()) {
        return null;
      }
    }
    runs = merged;
  }
  return runs[0] ?? [];
}
