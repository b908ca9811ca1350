// Service worker for addresses beneath /save/: gives each file of a job to the list of downloads of
// the browser. It answers only addresses that the page has registered, each once, and caches nothing.
// save-target.js of the client has the messages of a port.

/**
 * Files that the page has registered.
 * @type {Map<string, {headers: Record<string, string>, body: ReadableStream, port: MessagePort}>}
 */
const files = new Map();

self.addEventListener("message", (event) => {
  const [port, answer] = event.ports;
  const { id, name, size, lost } = event.data;
  // A message without contents only keeps this worker alive.
  const error = "the browser does not ask the service worker for it; reload the page";
  files.get(lost)?.port.postMessage({ error });
  if (port !== undefined) {
    navigator.locks.request(`haul-saved-${id}`, async () => {
      const { body, fail } = streamOf(port);
      files.set(id, { headers: headersOf(name, size), body, port });
      port.postMessage({ isRegistered: true });
      answer.postMessage(null);
      // The job has this lock until its file is saved, or its page is closed.
      await navigator.locks.request(`haul-save-${id}`, () => fail(new Error("the page was closed")));
      files.delete(id);
    });
  }
});

self.addEventListener("fetch", (event) => {
  const id = new URL(event.request.url).pathname.split("/").pop();
  const file = files.get(id);
  if (file !== undefined && event.request.mode === "navigate") {
    files.delete(id);
    event.respondWith(new Response(file.body, { headers: file.headers }));
  }
});

/**
 * Returns a stream of the bytes of a job, and a function that makes it fail.
 * @param {MessagePort} port
 */
function streamOf(port) {
  let fail = (_error) => {};
  /** Bytes that the browser reads. @type {Uint8Array | null} */
  let read = null;
  const source = {
    start(controller) {
      fail = (error) => controller.error(error);
      port.onmessage = ({ data: { bytes, end, error } }) => {
        if (bytes !== undefined) {
          read = bytes;
          controller.enqueue(bytes);
        } else if (end) {
          controller.close();
          port.postMessage({ done: true });
        } else {
          fail(new Error(error));
        }
      };
    },
    pull() {
      // The browser has copied the last bytes. The job uses their memory again.
      const buffers = read === null ? [] : [read.buffer];
      read = null;
      port.postMessage({ wants: true, spare: buffers[0] }, buffers);
    },
    cancel: () => port.postMessage({ error: "its download was cancelled in the browser" }),
  };
  // Without a queue here: only then are earlier bytes copied when the browser asks for more.
  return { body: new ReadableStream(source, { highWaterMark: 0 }), fail };
}

/** @param {string} name @param {number} size */
function headersOf(name, size) {
  // RFC 8187 permits fewer characters than encodeURIComponent leaves.
  const text = encodeURIComponent(name).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16)}`);
  return {
    "Content-Type": "application/octet-stream",
    "Content-Length": String(size),
    "Content-Disposition": `attachment; filename*=UTF-8''${text}`,
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
  };
}
