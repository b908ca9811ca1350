// Saves files of jobs in the list of downloads of the browser. A frame without contents requests an
// address of each file, and the service worker answers with the stream of the job.

import { create } from "./dom.js";

/** Frames of the last files. A browser gives up the request of a frame that is removed too early. */
const FRAMES_MAX = 8;

/** Requests of a frame until the service worker answers one. */
const TRIES_MAX = 3;

/** Time between two messages that keep the service worker alive, in milliseconds. */
const ALIVE = 5000;

/** @type {Promise<ServiceWorkerRegistration> | null} */
let registered = null;
/** @type {HTMLIFrameElement[]} */
const frames = [];
let aliveAt = 0;

/**
 * Returns the registration when its service worker can answer.
 * @returns {Promise<ServiceWorkerRegistration>}
 */
async function activate() {
  if (navigator.serviceWorker === undefined) {
    throw new Error("it has no service workers here");
  }
  const address = new URL("save/worker.js", import.meta.url);
  const registration = await navigator.serviceWorker.register(address, { updateViaCache: "none" });
  const worker = registration.active ?? registration.waiting ?? registration.installing;
  await new Promise((resolve, reject) => {
    const look = () => {
      if (worker.state === "activated") {
        resolve(undefined);
      } else if (worker.state === "redundant") {
        reject(new Error("the browser removed the service worker"));
      }
    };
    worker.addEventListener("statechange", look);
    look();
  });
  return registration;
}

/**
 * Returns the service worker, which a later version can replace, or fails with the reason why the
 * browser cannot save files of jobs.
 */
async function ready() {
  try {
    registered ??= activate();
    const { active } = await registered;
    if (active === null) {
      throw new Error("the browser removed the service worker");
    }
    return active;
  } catch (error) {
    registered = null;
    throw new Error(`the browser cannot save files of this page: ${error.message}`);
  }
}

/**
 * Returns the reason why the browser cannot save files of jobs, or null.
 * @returns {Promise<string | null>}
 */
export const saveRefusal = () => ready().then(() => null, (error) => error.message);

/**
 * Saves a file. Reports a failure to the job.
 * @param {{id: string, path: string, size: number, port: MessagePort}} file
 */
export async function save({ id, path, size, port }) {
  const name = path.split("/").pop();
  try {
    const worker = await ready();
    const { port1, port2 } = new MessageChannel();
    const isReady = new Promise((resolve) => (port1.onmessage = resolve));
    worker.postMessage({ id, name, size }, [port, port2]);
    await isReady;
  } catch (error) {
    port.postMessage({ error: error.message });
    return;
  }
  const { href } = new URL(`save/${id}`, import.meta.url);
  const frame = create("iframe", { hidden: true, src: href });
  let tries = 1;
  // A download loads no document: this one is the answer of the server. After a reload without the
  // cache, Firefox asks no service worker for the first document of a frame.
  frame.addEventListener("load", async () => {
    tries += 1;
    if (tries <= TRIES_MAX) {
      frame.src = href;
    } else {
      (await registered)?.active?.postMessage({ lost: id });
    }
  });
  document.body.append(frame);
  frames.push(frame);
  if (frames.length > FRAMES_MAX) {
    frames.shift().remove();
  }
}

/** Keeps the service worker alive: a browser stops one that gets no events for 30 seconds. */
export async function keepSaving() {
  if (registered !== null && performance.now() - aliveAt > ALIVE) {
    aliveAt = performance.now();
    (await registered.catch(() => null))?.active?.postMessage({});
  }
}
