// The jobs of this browser in IndexedDB: what each copies, and how far it is.

const NAME = "haul-jobs";

/** One store for what a job is, written once, and one for its state, written often. */
const STORES = ["sources", "states"];

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class JobStore {
  static async open() {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => STORES.forEach((name) => request.result.createObjectStore(name, { keyPath: "id" }));
    return new JobStore(await answer(request));
  }

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.database = database;
  }

  /** @param {string} name @param {IDBTransactionMode} [mode] */
  #store(name, mode = "readonly") {
    return this.database.transaction(name, mode).objectStore(name);
  }

  /** Returns the source and the state of each job. */
  async all() {
    const [sources, states] = await Promise.all(STORES.map((name) => answer(this.#store(name).getAll())));
    const byId = new Map(states.map((state) => [state.id, state]));
    return sources.filter(({ id }) => byId.has(id)).map((source) => ({ source, state: byId.get(source.id) }));
  }

  /** @param {string} id */
  state(id) {
    return answer(this.#store("states").get(id));
  }

  /** @param {{id: string}} source */
  putSource(source) {
    return answer(this.#store("sources", "readwrite").put(source));
  }

  /** @param {{id: string}} state */
  putState(state) {
    return answer(this.#store("states", "readwrite").put(state));
  }

  /** @param {string} id */
  async remove(id) {
    await Promise.all(STORES.map((name) => answer(this.#store(name, "readwrite").delete(id))));
  }
}
