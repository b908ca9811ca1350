// Names of Surehaul's own files in a tree. A receiver refuses them from others, because it trusts
// these files later.

/**
 * Returns true for the directory of stored digests, and for incomplete files, logs and locks. File
 * systems may ignore the case of letters.
 * @param {string} name one component of a path
 */
export const isOwnName = (name) => /^\.haul($|-)/i.test(name);

/**
 * Returns a path up to its first own name, or null if it has none.
 * @param {string} path
 */
export function ownPart(path) {
  const names = path.split('/');
  const at = names.findIndex(isOwnName);
  return at < 0 ? null : names.slice(0, at + 1).join('/');
}
