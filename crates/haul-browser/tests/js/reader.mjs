// Reads of a file: in order, beside each other, and without byte streams. Files of an upload open
// before they are offered.

import assert from 'node:assert/strict';
import { SequentialReader } from '../../js/sequential-reader.js';
import { Upload } from '../../js/upload.js';

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

console.log('ok');
