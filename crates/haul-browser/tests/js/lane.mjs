// A lane over HTTP against a server with the same contract, which loses and delays requests.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { LaneLost, LaneRefused } from '../../js/lane.js';
import { HttpLane } from '../../js/lane-http.js';

const BYTES = 9_000_001;
/** Requests that have failed once. Every third one does. */
const failed = new Set();
let lane = null;

/** Bytes of a stream that both sides can compute. */
function data(length, seed) {
  return Uint8Array.from({ length }, (_, at) => (at * seed + (at >> 8)) & 255);
}

const toClient = data(BYTES, 7);

async function body(request) {
  const parts = [];
  for await (const part of request) {
    parts.push(part);
  }
  return Buffer.concat(parts);
}

const server = createServer(async (request, response) => {
  const [, name, id, number] = request.url.split('/');
  const bytes = await body(request).catch(() => null);
  if (bytes === null) {
    // The client has ended the request.
    return undefined;
  }
  const answer = (status, payload = '', headers = {}) => response.writeHead(status, headers).end(payload);
  assert.equal(name, 'lane');
  if (request.headers['x-haul-token'] !== 'token') {
    return answer(403, 'no token');
  }
  if (request.method === 'POST') {
    assert.deepEqual(JSON.parse(bytes), { root: 3 });
    lane = { id: 'a b', received: [], taken: 0, ahead: new Map(), deleted: false, early: 0 };
    return answer(201, JSON.stringify({ lane: lane.id }));
  }
  if (decodeURIComponent(id) !== lane?.id) {
    return answer(404, '{"error": "unknown lane"}');
  }
  if (request.method === 'DELETE') {
    lane.deleted = true;
    return answer(204);
  }
  const seq = Number(number);
  const key = `${request.method} ${seq}`;
  if (seq % 3 === 1 && !failed.has(key)) {
    failed.add(key);
    if (seq % 2 === 0) {
      return request.socket.destroy();
    }
    return answer(503, 'busy');
  }
  if (request.method === 'PUT') {
    assert.ok(bytes.length <= 64 << 20);
    if (seq > lane.taken + 8) {
      return answer(409, 'too far ahead');
    }
    lane.hasEnded ||= request.headers['x-haul-end'] === '1';
    if (seq >= lane.taken) {
      lane.ahead.set(seq, bytes);
    }
    for (let next = lane.ahead.get(lane.taken); next; next = lane.ahead.get(lane.taken)) {
      lane.received.push(next);
      lane.ahead.delete(lane.taken);
      lane.taken += 1;
    }
    return answer(204);
  }
  const piece = 1 << 20;
  if (seq === 3 && lane.early < 2) {
    lane.early += 1;
    return answer(204);
  }
  const last = Math.ceil(BYTES / piece) - 1;
  const end = seq >= last ? { 'X-Haul-End': '1' } : {};
  if (seq === 5 && !failed.has('half')) {
    // The connection fails within the body of an answer.
    failed.add('half');
    response.writeHead(200, { 'Content-Length': piece });
    return response.write(toClient.subarray(seq * piece, (seq + 0.5) * piece), () => request.socket.destroy());
  }
  return answer(200, toClient.subarray(seq * piece, (seq + 1) * piece), end);
});

await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const base = `http://127.0.0.1:${server.address().port}`;

await assert.rejects(HttpLane.open(base, 'wrong'), /status 403: no token/);
for (const [status, kind] of [[403, LaneRefused], [404, LaneRefused], [408, LaneLost], [429, LaneLost], [503, LaneLost]]) {
  await assert.rejects(HttpLane.open(base, 'token', 3, async () => new Response('', { status })), kind);
}
// Pieces, which are sent again.
HttpLane.hasFlows = false;
const client = await HttpLane.open(base, 'token', 3);
const sent = data(BYTES, 5);

/** Gives bytes to a lane, which takes them as it has space. */
async function write(/** @type {HttpLane} */ to, /** @type {Uint8Array} */ bytes) {
  for (let at = to.take(bytes); at < bytes.length; at += to.take(bytes.subarray(at))) {
    await to.space();
  }
}

const sending = (async () => {
  for (let at = 0, step = 1; at < BYTES; at += step, step = Math.min(step * 3, 3 << 20)) {
    await write(client, sent.subarray(at, at + step));
    client.flush();
  }
  await client.finish();
})();
const received = [];
for await (const piece of client.pieces()) {
  // The lane uses its buffer again.
  received.push(Uint8Array.from(piece));
}
await sending;
assert.ok(Buffer.concat(received).equals(toClient), 'bytes to the client');
assert.ok(Buffer.concat(lane.received).equals(sent), 'bytes to the server');
assert.ok(lane.hasEnded && lane.taken > 3 && lane.ahead.size === 0 && failed.size > 4 && failed.has('half'));
client.close();
assert.throws(() => client.take(new Uint8Array(5 << 20)), LaneLost);

// Bulk data flows in bodies that are written while they are sent. Small pieces do not.
{
  HttpLane.hasFlows = true;
  ['PUT 1', 'PUT 4'].forEach((key) => failed.add(key));
  let flows = 0;
  const isFlow = (/** @type {RequestInit} */ init) => init.body instanceof ReadableStream;
  // Browsers copy each chunk, as the standard says; node keeps a reference to it.
  const copying = (init) => ({ ...init, body: init.body.pipeThrough(new TransformStream({
    transform: (chunk, to) => to.enqueue(chunk.slice()),
  })) });
  const flowing = await HttpLane.open(base, 'token', 3, (url, init) => {
    flows += Number(isFlow(init));
    return fetch(url, isFlow(init) ? copying(init) : init);
  });
  await write(flowing, sent.subarray(0, 100));
  flowing.flush();
  await flowing.sent();
  assert.deepEqual([flows, lane.taken], [0, 1]);
  await write(flowing, sent.subarray(100));
  await flowing.finish();
  assert.ok(Buffer.concat(lane.received).equals(sent), 'bytes of a flow');
  assert.ok(lane.hasEnded && flows >= 1 && flowing.flows === flows && lane.taken <= 5, `${flows} ${lane.taken}`);
  flowing.close();

  // The server takes no body above 64 MiB: another flow follows.
  const long = await HttpLane.open(base, 'token', 3, (url, init) => fetch(url, isFlow(init) ? copying(init) : init));
  for (let sum = 0; sum <= 64 << 20; sum += sent.length) {
    await write(long, sent);
  }
  await long.finish();
  assert.ok(long.flows >= 2 && lane.hasEnded, `${long.flows}`);
  for (let at = 0, all = Buffer.concat(lane.received); at < all.length; at += sent.length) {
    assert.ok(all.subarray(at, at + sent.length).equals(sent), `bytes of long flows at ${at}`);
  }
  long.close();

  // Where they do not work, the lane is lost, and the next one has none.
  const refusing = (url, init) => (isFlow(init) ? Promise.reject(new TypeError('HTTP/1.1')) : fetch(url, init));
  const without = await HttpLane.open(base, 'token', 3, refusing);
  const failure = write(without, sent).then(() => without.sent()).then(() => Promise.reject(without.failure));
  await assert.rejects(failure, LaneLost);
  assert.equal(HttpLane.hasFlows, false);
  const next = await HttpLane.open(base, 'token', 3, refusing);
  await write(next, sent);
  await next.finish();
  assert.ok(Buffer.concat(lane.received).equals(sent), 'bytes of pieces');

  // A lane that is closed says nothing about flows.
  HttpLane.hasFlows = true;
  const closed = await HttpLane.open(base, 'token', 3, (url, init) => fetch(url, isFlow(init) ? copying(init) : init));
  await write(closed, sent.subarray(0, 5 << 20));
  closed.close();
  await assert.rejects(closed.sent().then(() => Promise.reject(closed.failure)), LaneLost);
  assert.equal(HttpLane.hasFlows, true);
}

// A request without an answer is made again.
let hangs = 1;
const impatient = await HttpLane.open(base, 'token', 3, (url, init) => {
  if (init.method === 'GET' && url.endsWith('/0') && hangs > 0) {
    hangs -= 1;
    return new Promise((_, reject) => {
      init.signal.addEventListener('abort', () => reject(init.signal.reason));
    });
  }
  return fetch(url, init);
}, { retry: 1, retryMax: 1, failing: 1e6, request: 1000 });
for await (const piece of impatient.pieces()) {
  assert.ok(Buffer.from(piece).equals(toClient.subarray(0, piece.length)));
  break;
}
assert.equal(hangs, 0);
impatient.close();

// Status 503 to a PUT is no failure, however often; other failures end the lane after a time.
{
  const times = { retry: 0, retryMax: 0, failing: 0, request: 1e6 };
  const statuses = [...Array(20).fill(503), 204];
  const busy = new HttpLane('', {}, async () => new Response(null, { status: statuses.shift() ?? 204 }), times);
  busy.take(new Uint8Array(1));
  await busy.finish();
  assert.equal(busy.failure, null);
  assert.equal(statuses.length, 0);

  const cut = new HttpLane('', {}, () => Promise.reject(new TypeError('no network')), times);
  await assert.rejects(cut.requests.put(4, {}), /cannot PUT piece 4 of the lane: TypeError: no network/);
  await assert.rejects(cut.requests.get(4, cut.requests.retries('GET', 4)), LaneLost);

  const broken = [503, 500, 503, 204].map((status) => new Response(null, { status }));
  const patient = new HttpLane('', {}, async () => broken.shift(), { ...times, failing: 1e6 });
  await patient.requests.put(0, {});
  assert.equal(broken.length, 0);
}

// A lane that the server has forgotten.
const lost = await HttpLane.open(base, 'token', 3);
lane = null;
await assert.rejects(async () => {
  for await (const piece of lost.pieces()) {
    assert.fail(`${piece.length} bytes of no lane`);
  }
}, /status 404: unknown lane/);
server.closeAllConnections();
server.close();
console.log('ok');
