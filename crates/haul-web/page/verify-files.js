// Verification of files of this computer: a worker hashes them.

const address = (name) => new URL(`client/${name}`, import.meta.url);

/** Starts the worker with a message. @param {object} message */
function start(message) {
  const worker = new Worker(address("verify-worker.js"), { type: "module" });
  worker.postMessage({ ...message, wasm: address("").href });
  return worker;
}

/** @param {ErrorEvent} event */
const failure = (event) => `the worker stopped: ${event.message || "it cannot be loaded"}`;

/**
 * Verifies files by a waybill. Returns events like those of the server.
 * @param {(names: string[]) => Promise<File | null>} open opens a file beneath the folder
 * @param {import("./verify.js").Waybill} waybill
 * @param {AbortSignal} signal
 * @param {string[]} [only] the paths to verify, instead of all
 */
export async function* verifyFiles(open, waybill, signal, only) {
  const worker = start({ type: "start", waybill: await waybill.read(), only });
  const [waiting, wake] = [[], { now: () => {} }];
  const put = (events) => {
    waiting.push(events);
    wake.now();
  };
  worker.addEventListener("message", async ({ data }) => {
    if (data.type === "open") {
      const names = data.path.split("/");
      const answer = await open(names).then((file) => ({ file }), (error) => ({ text: error.message }));
      worker.postMessage({ type: "file", ...answer });
    } else {
      put(data.events);
    }
  });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    put([{ event: "error", message: failure(event) }]);
  });
  signal.addEventListener("abort", () => put([]));
  try {
    while (!signal.aborted) {
      if (waiting.length === 0) {
        await new Promise((resolve) => {
          wake.now = resolve;
        });
      }
      yield* waiting.shift();
    }
  } finally {
    worker.terminate();
  }
}

/**
 * Writes a waybill of some files.
 * @param {string} root @param {string} run description for readers
 * @param {{path: string, size: number, mtime: number, level: number, digest: string}[]} entries
 * @returns {Promise<Blob>}
 */
export function writeWaybill(root, run, entries) {
  return new Promise((resolve, reject) => {
    const worker = start({ type: "write", root, run, entries });
    worker.addEventListener("message", ({ data }) => {
      worker.terminate();
      resolve(data.waybill);
    });
    worker.addEventListener("error", (event) => reject(new Error(failure(event))));
  });
}
