// Reads of a file: in order, beside each other, and without byte streams. Files of an upload open
// before they are offered, and are read again where the browser reads changed ones.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { instantiateCore } from '../../js/core.js';
import { SequentialReader } from '../../js/sequential-reader.js';
import { Upload, versionKey, walk } from '../../js/upload.js';

const BYTES = 5_000_001;
const BLOCK = 1 << 20;
const contents = Uint8Array.from({ length: BYTES }, (_, at) => (at * 7 + (at >> 8)) & 255);

/** Reads ranges, all at once, and returns copies of the results. */
async function read(/** @type {SequentialReader} */ reader, ranges) {
  const results = [];
  const use = (result) => results.push(typeof result === 'string' ? result : Uint8Array.from(result));
  await Promise.all(ranges.map(([offset, len]) => reader.read(offset, len, use)));
  return results;
}

const ranges = [0, 1, 2, 3, 4].map((block) => [block * BLOCK, BLOCK]);
// A block again, from there on, beyond the end, and all at once.
ranges.push([BLOCK, BLOCK], [2 * BLOCK, BLOCK], [BYTES - 3, 10], [BYTES, 5], [0, BYTES], [7, 1]);
const expected = ranges.map(([offset, len]) => contents.subarray(offset, offset + len));

for (const hasBytes of [true, false]) {
  const file = new File([contents], 'file');
  let streams = 0;
  const slice = file.slice.bind(file);
  file.slice = (...range) => {
    const part = slice(...range);
    const stream = part.stream.bind(part);
    part.stream = () => {
      streams += 1;
      return hasBytes ? stream() : new ReadableStream();
    };
    return part;
  };
  const reader = new SequentialReader(file);
  const results = await read(reader, ranges);
  results.forEach((result, at) => assert.ok(Buffer.from(result).equals(expected[at]), `range ${ranges[at]}`));
  // The first five blocks are one stream, and so are the two that follow.
  assert.equal(streams <= 4, hasBytes, `${streams} streams`);
  reader.close();
  assert.deepEqual(await read(reader, [[0, 3]]), [contents.slice(0, 3)]);
}

// A failure is a reason, and later reads try again.
const broken = new File([contents], 'file');
let failures = 2;
const slice = broken.slice.bind(broken);
broken.slice = (...range) => {
  failures -= 1;
  if (failures >= 0) {
    throw new DOMException('the file has changed', 'NotReadableError');
  }
  return slice(...range);
};
const reader = new SequentialReader(broken);
assert.deepEqual(await read(reader, [[0, 3], [0, 3], [0, 3]]), [
  'the file has changed', 'the file has changed', contents.slice(0, 3),
]);
// 16 files open beside each other, and are offered in order.
{
  const [offered, ends] = [[], []];
  const failure = Promise.reject(new Error('gone'));
  failure.catch(() => {});
  const end = (at) => ends[at]?.(at === 7 ? failure : new File([], 'file'));
  async function* entries() {
    for (let at = 0; at < 40; at += 1) {
      const file = () => {
        assert.ok(at - offered.length < 16, `${at} opens`);
        // The first of 16 files opens when the last one is requested.
        queueMicrotask(() => end(at - 15));
        return new Promise((resolve) => {
          ends[at] = resolve;
        });
      };
      yield { path: String(at), file };
    }
    ends.forEach((_, at) => end(at));
  }
  const upload = new Upload({}, entries, () => {}, () => {});
  upload.core = {
    capacity: () => 1,
    offer: (path) => offered.push(path),
    unread: (path, text) => offered.push(`${path} ${text}`),
    walkEnded: () => offered.push('end'),
  };
  await upload.walk(0);
  const expected = Array.from({ length: 40 }, (_, at) => (at === 7 ? '7 gone' : String(at)));
  assert.deepEqual(offered, [...expected, 'end']);
}

// Firefox reads a chosen file that was rewritten, and keeps its size and time: the upload finds it.
{
  const OBJECT = 64 << 10;
  const core = await instantiateCore(readFileSync(process.argv[2]));
  /** A chosen file whose contents a test changes. */
  class ChosenFile extends File {
    bytes = contents.slice(0, this.size);

    slice(start, end) {
      return new Blob([this.bytes]).slice(start, end);
    }

    arrayBuffer() {
      return this.slice().arrayBuffer();
    }
  }
  const digestAt = (bytes, object, index) => {
    core.hashBegin(bytes.length, object);
    core.hashObject(index);
    core.hashUpdate(bytes.subarray(index * object, (index + 1) * object));
    return core.hashObjectEnd();
  };
  /** Reads `length` bytes as a job does. Returns the answer to the check after `change` and `restarts`. */
  const check = async ({ length, object, isResumed = false, restarts = false, change }) => {
    const file = new ChosenFile([contents.subarray(0, length)], 'chosen', { lastModified: 7 });
    const objects = Array.from({ length: Math.ceil(length / object) }, (_, at) => at);
    const digests = objects.map((at) => digestAt(file.bytes, object, at));
    const sent = new Map(isResumed ? [[versionKey('chosen', file), digests]] : []);
    const upload = new Upload({ object }, () => walk([file]), () => {}, () => {}, { core, sent });
    let found;
    upload.core = { capacity: () => 1, offer: () => 0, walkEnded() {}, readDone() {}, checked: (_, answer) => { found = answer; } };
    await upload.walk(0);
    for (let offset = 0; offset < length && !isResumed; offset += BLOCK) {
      await upload.read({ file: 0, offset, len: Math.min(BLOCK, length - offset) }, 0);
    }
    if (objects.length > 1 && !isResumed) {
      objects.forEach((at) => upload.handle({ type: 'hashed', file: 0, object: at, digest: digests[at] }));
    }
    if (restarts) {
      upload.handle({ type: 'restart', file: 0 });
    }
    change?.(file.bytes);
    await upload.check({ file: 0 }, 0);
    return found;
  };
  const flip = (bytes) => {
    bytes[bytes.length - 1] ^= 1;
  };
  const changed = 'it changed while it was sent; choose it again, then upload it again';
  for (const [length, object] of [[1, OBJECT], [2 * BLOCK + 3, 4 * BLOCK], [5 * OBJECT + 1, OBJECT]]) {
    assert.deepEqual(await check({ length, object }), { size: length, mtime: 7 });
    assert.equal(await check({ length, object, change: flip }), changed, `${length} bytes`);
  }
  // Also after a pause, for what an earlier run has sent; not if nothing of it counts.
  const resumed = { length: 5 * OBJECT + 1, object: OBJECT, isResumed: true };
  assert.deepEqual(await check(resumed), { size: resumed.length, mtime: 7 });
  assert.equal(await check({ ...resumed, change: flip }), changed);
  assert.deepEqual(await check({ ...resumed, change: flip, restarts: true }), { size: resumed.length, mtime: 7 });
}

console.log('ok');
