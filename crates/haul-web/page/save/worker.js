// Service worker for addresses beneath /save/: gives each file of a job to the list of downloads of the
// browser. It answers only addresses that the page has registered, each once, and caches nothing.
// save-target.js of the client has the messages of a port.

/** Files that the page has registered. @type {Map<string, {headers: Record<string, string>, body: ReadableStream}>} */
const files = new Map();

self.addEventListener("message", (event) => {
  const [port, answer] = event.ports;
  // A message without ports only keeps this worker alive.
  if (port !== undefined) {
    const { id, name, size } = event.data;
    navigator.locks.request(`haul-saved-${id}`, async () => {
      let source;
      const body = new ReadableStream({ start: (controller) => (source = controller), ...consumerOf(port) }, { highWaterMark: 0 });
      pass(port, source);
      files.set(id, { headers: headersOf(name, size), body });
      answer.postMessage(null);
      // The job has this lock until its file is saved, or its page is closed.
      await navigator.locks.request(`haul-save-${id}`, () => source.error(new Error("the page was closed")));
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

/** Tells the job what the browser does with its stream. @param {MessagePort} port */
const consumerOf = (port) => ({
  pull: () => port.postMessage({ wants: true }),
  cancel: () => port.postMessage({ error: "its download was cancelled in the browser" }),
});

/** Passes the bytes of a job to the browser. @param {MessagePort} port @param {ReadableStreamDefaultController} controller */
function pass(port, controller) {
  port.onmessage = ({ data: { bytes, end, error } }) => {
    if (bytes !== undefined) {
      controller.enqueue(bytes);
    } else if (end) {
      controller.close();
      port.postMessage({ done: true });
    } else {
      controller.error(new Error(error));
    }
  };
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
