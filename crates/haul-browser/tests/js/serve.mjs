// Jobs with `haul serve --web`: an upload and a download, each also over a lane that is aborted
// once. The tests of haul-cli run this script, because it needs the binary.
//
//   node serve.mjs HAUL MODULE.wasm [BYTES]
//
// HAUL is the binary, BYTES the size of the largest file.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Level, instantiateCore } from '../../js/core.js';
import { Download } from '../../js/download.js';
import { JobLog } from '../../js/job-log.js';
import { HttpLane } from '../../js/lane-http.js';
import { Receipt, memoryLog, waybill } from '../../js/receipt.js';
import { Transfer } from '../../js/transfer.js';
import { Upload } from '../../js/upload.js';

// The certificate is self-signed. The browser asks the user about it.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
process.removeAllListeners('warning');

// Node does not copy the chunks of a body that is written while it is sent.
HttpLane.hasFlows = false;

const OBJECT = 1 << 20;
const [haul, modulePath, bytes = '20000000'] = process.argv.slice(2);
const module = readFileSync(modulePath);
const home = mkdtempSync(join(tmpdir(), 'haul-browser-'));
const root = join(home, 'root');
mkdirSync(root);

const files = new Map([
  ['a/large', randomBytes(Number(bytes))],
  ['a/small', randomBytes(10)],
  ['empty', randomBytes(0)],
  ['ü/x.txt', randomBytes(70_000)],
]);
for (let number = 0; number < 100; number += 1) {
  files.set(`many/${number}`, randomBytes(number * 37));
}

/** Starts the server. Returns its address and the code of the link. */
function serve() {
  const args = ['serve', '--root', root, '--listen', '127.0.0.1:0', '--web=127.0.0.1:0'];
  const env = { ...process.env, XDG_STATE_HOME: join(home, 'state') };
  const server = spawn(haul, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  process.on('exit', () => {
    server.kill();
    // The server may still write its state.
    rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  });
  return new Promise((resolve, reject) => {
    let printed = '';
    server.stdout.on('data', (text) => {
      printed += text;
      const link = /(https:\/\/\S+)\/#(\S+)/.exec(printed);
      if (link) {
        resolve([link[1], link[2]]);
      }
    });
    server.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${printed}`)));
  });
}

const [base, code] = await serve();
const json = { Origin: base, 'Content-Type': 'application/json' };
const signedIn = await fetch(`${base}/session`, { method: 'POST', headers: json, body: JSON.stringify({ code }) });
assert.equal(signedIn.status, 200);
const { token } = await signedIn.json();

/** Bytes that were sent over lanes. */
let sent = 0;

/**
 * Opens lanes, of which the first is aborted at the request of a PUT with this number, or once this
 * number of bytes has arrived.
 */
function lanes({ put = -1, bytes: limit = Infinity } = {}) {
  let [isCut, arrived] = [false, 0];
  const cut = async (url) => {
    isCut = true;
    const abort = { method: 'DELETE', headers: { Origin: base, 'X-Haul-Token': token } };
    assert.equal((await fetch(url.slice(0, url.lastIndexOf('/')), abort)).status, 204);
  };
  const fetcher = async (url, options) => {
    sent += options.method === 'PUT' ? options.body?.length ?? 0 : 0;
    if (!isCut && options.method === 'PUT' && url.endsWith(`/${put}`)) {
      await cut(url);
    }
    const response = await fetch(url, { ...options, headers: { ...options.headers, Origin: base } });
    if (options.method !== 'GET' || limit === Infinity || !response.body) {
      return response;
    }
    const counted = new TransformStream({
      async transform(chunk, to) {
        to.enqueue(chunk);
        arrived += chunk.length;
        if (!isCut && arrived > limit) {
          await cut(url);
        }
      },
    });
    return new Response(response.body.pipeThrough(counted), response);
  };
  return () => HttpLane.open(base, token, 0, fetcher);
}

// node 18 has Blob but not File.
globalThis.File ??= class extends Blob {
  constructor(parts, name, { lastModified }) {
    super(parts);
    this.name = name;
    this.lastModified = lastModified;
  }
};

async function* entries() {
  for (const [path, content] of files) {
    const file = new File([content], path, { lastModified: 1_700_000_000_123 });
    yield { path, file: async () => file };
  }
}

/** Writes the files of a receipt as a waybill, and compares the tree at `where` with it. */
async function verify(receipt, where) {
  const name = join(home, 'job.waybill');
  const job = { at: Date.now(), root: where, run: 'upload by a browser' };
  writeFileSync(name, await waybill(await instantiateCore(module), job, receipt.read().entries, OBJECT).text());
  const env = { ...process.env, XDG_STATE_HOME: join(home, 'state') };
  return spawnSync(haul, ['verify', name, where], { env, encoding: 'utf8' });
}

/** Runs a job. Returns its last event, the reports about lost connections, and the receipt. */
async function run(makeSide, open) {
  const lost = [];
  const receipt = new Receipt(memoryLog(), OBJECT);
  const report = (event) => {
    assert.notEqual(event.type, 'failed', event.text);
    if (event.type === 'reconnecting') {
      lost.push(event.text);
    }
    receipt.add(event);
  };
  let transfer = null;
  const side = makeSide(report, () => transfer.settle());
  transfer = new Transfer(await instantiateCore(module), side, open, report);
  return { ended: await transfer.run(), lost, receipt };
}

for (const cuts of [0, 1]) {
  const open = lanes(cuts ? { put: 2 } : {});
  rmSync(root, { recursive: true });
  mkdirSync(root);
  const settings = { job: randomBytes(16), object: OBJECT, level: Level.durable, to: '' };
  const { ended, lost, receipt } = await run((report, settle) => new Upload(settings, entries, report, settle), open);
  assert.deepEqual([ended.ok, ended.failed, ended.done + ended.same], [1, 0, files.size]);
  assert.equal(lost.length, cuts);
  for (const [path, content] of files) {
    assert.ok(readFileSync(join(root, path)).equals(content), path);
  }
  // A file that arrived just before the lane was lost has no digest.
  const { entries: proven, unknown } = receipt.read();
  assert.equal(proven.length + unknown, files.size);
  assert.ok(unknown <= cuts);
  const intact = await verify(receipt, root);
  assert.equal(intact.status, 0, `${intact.stdout}${intact.stderr}`);
  // Objects of all sessions are in the receipt, so that damage is found in one of them.
  const damaged = Buffer.from(files.get('a/large'));
  damaged[5 * OBJECT + 7] ^= 1;
  writeFileSync(join(root, 'a/large'), damaged);
  const found = await verify(receipt, root);
  assert.equal(found.status, 1, `${found.stdout}${found.stderr}`);
  assert.match(found.stdout, new RegExp(`${5 * OBJECT}.*${6 * OBJECT}`), found.stdout);

  // A server that compares requests this object only.
  const comparing = { ...settings, job: randomBytes(16), compares: true };
  const before = sent;
  const repaired = await run((report, settle) => new Upload(comparing, entries, report, settle), lanes());
  assert.deepEqual([repaired.ended.ok, repaired.ended.failed], [1, 0]);
  assert.ok(sent - before > OBJECT && sent - before < 2 * OBJECT, `${sent - before} bytes were sent`);
  assert.ok(readFileSync(join(root, 'a/large')).equals(files.get('a/large')));
}

/** Storage in memory. */
class Memory {
  constructor() {
    this.files = new Map();
    this.parts = new Map();
  }

  async sizeOf(path, isComplete) {
    return (isComplete ? this.files : this.parts).get(path)?.length ?? -1;
  }

  async open(path, keep) {
    const part = keep ? this.parts.get(path) : Buffer.alloc(path === 'a/large' ? Number(bytes) : 70_000);
    this.parts.set(path, part);
    return {
      isSync: true,
      write: (at, content) => {
        part.set(content, at);
      },
      sync: () => Level.durable,
      finish: async (size) => {
        this.files.set(path, part.subarray(0, size));
        return Level.durable;
      },
      close: () => {},
    };
  }

  async directory() {}
}

for (const cuts of [0, 1]) {
  const open = lanes(cuts ? { bytes: Number(bytes) / 4 } : {});
  const memory = new Memory();
  const log = memoryLog();
  const paths = ['a', 'empty', 'ü', 'many'];
  const settings = { job: randomBytes(16), object: OBJECT, level: Level.durable, paths };
  const makeSide = (report, settle) => new Download(settings, memory, new JobLog(log), report, settle);
  const { ended, lost, receipt } = await run(makeSide, open);
  assert.deepEqual([ended.ok, ended.failed, lost.length], [1, 0, cuts]);
  const { entries: proven, unknown } = receipt.read();
  assert.equal(proven.length + unknown, files.size);
  assert.equal(proven.find(({ path }) => path === 'a/large').objects.length, Math.ceil(Number(bytes) / OBJECT));
  for (const [path, content] of files) {
    assert.ok(memory.files.get(path)?.equals(content), path);
  }
}
console.log('ok');
process.exit(0);
