// The second half of a move: deletes exactly what the job has copied.

/** @typedef {import("./item.js").Item} Item */
/** @typedef {import("./item.js").Source} Source */
/**
 * An entry as it was before the job. A stored job has it too.
 * @typedef {{item: Pick<Item, "id" | "kind" | "size" | "time">, children: Node[] | null}} Node
 */

/** Entries that one move can have. */
const MOVED_MAX = 100_000;

/** @param {Item} item */
const facts = ({ id, kind, size, time }) => ({ id, kind, size, time });

/**
 * Records entries with all that is in them.
 * @param {Source} source @param {Item[]} path @param {Item[]} items
 * @returns {Promise<Node[]>}
 */
export async function record(source, path, items) {
  let count = 0;
  const walk = async (path, item) => {
    count += 1;
    if (count > MOVED_MAX) {
      throw new Error(
        `cannot move more than ${MOVED_MAX.toLocaleString("en")} entries at once; copy them with F5, then delete them with F8`,
      );
    }
    if (item.kind !== "directory") {
      await source.detail?.(item);
      return { item: facts(item), children: null };
    }
    const children = [];
    for await (const page of source.list([...path, item])) {
      for (const child of page) {
        children.push(await walk([...path, item], child));
      }
    }
    return { item: facts(item), children };
  };
  const nodes = [];
  for (const item of items) {
    nodes.push(await walk(path, item));
  }
  return nodes;
}

/**
 * Deletes recorded entries that were copied and did not change since. What is new or changed stays,
 * and what the job did not find, with the directories above it. Returns the paths of what stays.
 * @param {Source} source @param {Item[]} path @param {Node[]} nodes
 * @param {Set<string>} copied paths of files beneath `path`
 * @returns {Promise<string[]>}
 */
export async function removeRecorded(source, path, nodes, copied) {
  const kept = [];
  const isCopied = (steps) => copied.has(steps.slice(path.length).map((step) => step.name).join("/"));
  await removeIn(source, path, nodes, isCopied, kept);
  return kept;
}

/** Returns true if the directory has nothing else. */
async function removeIn(source, path, nodes, isCopied, kept) {
  const wanted = new Map(nodes.map((node) => [node.item.id, node]));
  const found = [];
  let isEmptied = true;
  for await (const page of source.list(path)) {
    for (const item of page) {
      wanted.has(item.id) ? found.push(item) : (isEmptied = false);
    }
  }
  for (const item of found) {
    const { item: before, children } = wanted.get(item.id);
    const text = [...path, item].map((step) => step.name).join("/");
    let isFree;
    if (children === null) {
      await source.detail?.(item);
      const isSame = item.kind === before.kind && item.size === before.size && item.time === before.time;
      isFree = isSame && isCopied([...path, item]);
    } else {
      isFree = item.kind === "directory" && (await removeIn(source, [...path, item], children, isCopied, kept));
    }
    const isRemoved =
      isFree &&
      (await source.remove(path, item).then(
        () => true,
        () => false,
      ));
    if (!isRemoved) {
      kept.push(text);
      isEmptied = false;
    }
  }
  return isEmptied;
}
