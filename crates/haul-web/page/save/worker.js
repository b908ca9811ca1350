// Service worker for addresses beneath /save/: gives each file of a job to the list of downloads of the
// browser. It answers only addresses that the page has registered, each once, and caches nothing.
// save-target.js of the client has the messages of a port.

/** Files that the page has registered. @type {Map<string, {name: string, size: number, port: MessagePort}>} */
const files = new Map();

self.addEventListener("message", (event) => {
  const [port, answer] = event.ports;
  // A message without ports only keeps this worker alive.
  if (port !== undefined) {
    const { id, name, size } = event.data;
    files.set(id, { name, size, port });
    answer.postMessage(null);
  }
});

self.addEventListener("fetch", (event) => {
  const id = new URL(event.request.url).pathname.split("/").pop();
  const file = files.get(id);
  if (file !== undefined && event.request.mode === "navigate") {
    files.delete(id);
    event.respondWith(new Response(streamOf(file.port), { headers: headersOf(file) }));
  }
});

/** @param {MessagePort} port */
function streamOf(port) {
  const source = {
    start(controller) {
      port.onmessage = ({ data: { bytes, end, error } }) => {
        if (bytes !== undefined) {
          controller.enqueue(bytes);
        } else if (end) {
          controller.close();
        } else {
          controller.error(new Error(error));
        }
      };
      port.addEventListener("close", () => controller.error(new Error("the page was closed")));
    },
    pull: () => port.postMessage({ wants: true }),
    cancel: () => port.postMessage({ error: "its download was cancelled in the browser" }),
  };
  // The browser has the only buffer.
  return new ReadableStream(source, { highWaterMark: 0 });
}

/** @param {{name: string, size: number}} file */
function headersOf({ name, size }) {
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
