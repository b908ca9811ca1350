// A worker that verifies files of the browser's side by a waybill. The page opens the files, since it
// knows the folder or the chosen files.
//
// Messages of the page:
//   {type: 'start', waybill, wasm, only?}   `waybill` is a Blob, `wasm` the URL of the modules, and
//     `only` has the paths to verify, instead of all
//   {type: 'write', wasm, root, run, entries}   writes a waybill of entries, as for `waybill` of receipt.js
//   {type: 'file', file?, text?}   answers `open` with the File, null if it does not exist, or the
//     reason why it cannot be opened
//
// Messages to the page:
//   {type: 'open', path}
//   {type: 'events', events}   as those of `POST /verify`: docs/formats/web.md
//   {type: 'waybill', waybill}   the Blob that `write` asked for

import { loadCore, reason } from './core.js';
import { waybill } from './receipt.js';
import { SequentialReader } from './sequential-reader.js';

/** Bytes of one read, and the size of objects where the waybill has none. */
const READ_BYTES = 1 << 20;
const OBJECT_BYTES = 4 << 20;

/** Largest waybill that the module holds. */
const WAYBILL_MAX = 64 << 20;

/** Shortest time between two messages with events, in milliseconds. */
const INTERVAL = 100;

/** @type {((answer: {file?: File | null, text?: string}) => void) | null} */
let answered = null;

/** @type {object[]} */
let events = [];
let sent = 0;
let bytes = 0;
let total = 0;
let files = 0;

self.addEventListener('message', ({ data }) => {
  if (data.type === 'file') {
    answered?.(data);
  } else if (data.type === 'start') {
    run(data).catch((error) => add({ event: 'error', message: reason(error) })).then(flush);
  } else if (data.type === 'write') {
    write(data);
  }
});

function flush() {
  sent = performance.now();
  self.postMessage({ type: 'events', events: [...events, { event: 'progress', files, bytes, total }] });
  events = [];
}

/** @param {object} event */
function add(event) {
  events.push(event);
  tick();
}

function tick() {
  if (performance.now() - sent >= INTERVAL) {
    flush();
  }
}

/** @param {string} path @returns {Promise<{file?: File | null, text?: string}>} */
function open(path) {
  return new Promise((resolve) => {
    answered = resolve;
    self.postMessage({ type: 'open', path });
  });
}

/** @param {{wasm: string, root: string, run: string, entries: import('./receipt.js').ReceiptEntry[]}} message */
async function write({ wasm, entries, ...about }) {
  const core = await loadCore(wasm);
  self.postMessage({ type: 'waybill', waybill: waybill(core, { at: Date.now(), ...about }, entries) });
}

/** @param {{waybill: Blob, wasm: string, only?: string[]}} message */
async function run({ waybill: blob, wasm, only }) {
  if (blob.size > WAYBILL_MAX) {
    throw new Error('cannot use the waybill: it has more than 64 MiB; verify with haul verify');
  }
  const core = await loadCore(wasm);
  const text = new Uint8Array(await blob.arrayBuffer());
  const isChosen = only ? Set.prototype.has.bind(new Set(only)) : () => true;
  const latest = survey(core, text);
  core.waybillOpen(text);
  const counts = { intact: 0, modified: 0, rotted: 0, missing: 0, unproven: 0 };
  let flaws = 0;
  let section = 0;
  for (let item = core.waybillNext(); item; item = core.waybillNext()) {
    if (item === 'section') {
      section += 1;
    } else if ('flaw' in item) {
      flaws += 1;
      add({ event: 'flaw', message: item.flaw });
    } else if (latest.get(item.path) === section && isChosen(item.path)) {
      const result = await judge(core, item);
      counts[result.verdict] += 1;
      files += 1;
      const { path, size, object, digest } = item;
      add({ event: 'entry', path, size, object: object || undefined, blake3: digest ?? undefined, ...result });
    }
  }
  add({ event: 'summary', ...counts, flaws, bytes, interrupted: false });
}

/**
 * Returns the last section of each path, and counts all bytes.
 * @param {import('./core.js').Core} core
 * @param {Uint8Array} text
 */
function survey(core, text) {
  /** @type {Map<string, number>} */
  const latest = new Map();
  let section = 0;
  core.waybillOpen(text);
  for (let item = core.waybillNext(); item; item = core.waybillNext()) {
    if (item === 'section') {
      section += 1;
    } else if ('path' in item) {
      total += item.size;
      latest.set(item.path, section);
    }
  }
  if (section === 0) {
    throw new Error('cannot use the waybill: the file is not a waybill');
  }
  return latest;
}

/**
 * Compares one file.
 * @param {import('./core.js').Core} core
 * @param {import('./core.js').RecordedFile} recorded
 * @returns {Promise<{verdict: 'intact' | 'modified' | 'rotted' | 'missing' | 'unproven', detail?: string,
 *   damage?: number[][]}>}
 */
async function judge(core, { path, isText, size, mtime, object, digest }) {
  if (!isText) {
    return { verdict: 'unproven', detail: 'the name is not UTF-8' };
  }
  const { file, text } = await open(path);
  if (text !== undefined) {
    return { verdict: 'unproven', detail: text };
  }
  if (!file) {
    return { verdict: 'missing' };
  }
  if (file.size !== size) {
    return { verdict: 'modified', detail: `${size} bytes before, ${file.size} now` };
  }
  if (digest === null) {
    return { verdict: 'unproven', detail: 'no recorded digest by BLAKE3' };
  }
  let hashed;
  try {
    hashed = await hash(core, file, object);
  } catch (error) {
    return { verdict: 'unproven', detail: reason(error) };
  }
  const { found, damage } = hashed;
  if (found === digest && damage.length === 0) {
    return { verdict: 'intact' };
  }
  const isTouched = Math.floor(mtime) !== file.lastModified;
  return {
    verdict: isTouched ? 'modified' : 'rotted',
    detail: isTouched ? 'different bytes and modification time' : undefined,
    damage: damage.length > 0 ? damage : [[0, size]],
  };
}

/**
 * Hashes a file. Returns its digest, and the ranges of the objects that differ.
 * @param {import('./core.js').Core} core
 * @param {File} file
 * @param {number} object size of the objects with digests, or 0
 */
async function hash(core, file, object) {
  const [reader, unit] = [new SequentialReader(file), object || OBJECT_BYTES];
  /** @type {number[][]} */
  const damage = [];
  core.hashBegin(file.size, unit);
  try {
    for (let index = 0; core.hashObject(index); index += 1) {
      const start = index * unit;
      const end = Math.min(start + unit, file.size);
      for (let at = start; at < end; at += READ_BYTES) {
        await reader.read(at, Math.min(READ_BYTES, end - at), (piece) => {
          if (typeof piece === 'string') {
            throw new Error(`cannot read the file: ${piece}`);
          }
          core.hashUpdate(piece);
          bytes += piece.length;
        });
        tick();
      }
      const ours = core.hashObjectEnd();
      const theirs = object ? core.waybillDigest(index) : null;
      if (theirs !== null && ours !== theirs) {
        const last = damage.at(-1);
        if (last?.[1] === start) {
          last[1] = end;
        } else {
          damage.push([start, end]);
        }
      }
    }
    return { found: core.hashEnd(), damage };
  } finally {
    reader.close();
  }
}
