// Reads the counters of the server. Without the DOM.

/**
 * Returns the values of an OpenMetrics text by their names, with labels as in the text.
 * @param {string} text @returns {Record<string, number>}
 */
export function parseMetrics(text) {
  const values = Object.create(null);
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && !line.startsWith("#")) {
      values[line.slice(0, at)] = Number(line.slice(at + 1));
    }
  }
  return values;
}

const STORAGE = /^haul_storage_(free_bytes|read_bytes|written_bytes|busy_milliseconds)(?:_total)?\{root="((?:[^"\\]|\\.)*)"\}$/;

/**
 * Returns the values of the storage of each directory, by its name.
 * @param {Record<string, number>} values @returns {Map<string, Record<string, number>>}
 */
export function storageOf(values) {
  const found = new Map();
  for (const [key, value] of Object.entries(values)) {
    const [, what, label] = STORAGE.exec(key) ?? [];
    if (what !== undefined) {
      const name = label.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
      found.set(name, { ...found.get(name), [what]: value });
    }
  }
  return found;
}
