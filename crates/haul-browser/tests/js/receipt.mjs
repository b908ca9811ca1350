// The logs of a job, and the waybill, can be longer than a string. The storage is simulated.

import assert from 'node:assert/strict';
import { Buffer, constants } from 'node:buffer';
import { JobLog } from '../../js/job-log.js';
import { Outcome } from '../../js/core.js';
import { Receipt, memoryLog, waybill } from '../../js/receipt.js';
import { openLogFile } from '../../js/storage.js';

/** A file that has `fill(bytes, at)` up to `size`, and then what is written. */
class Storage {
  constructor(size, fill) {
    this.size = size;
    this.fill = fill;
    this.written = Buffer.alloc(0);
    this.readBytes = 0;
  }

  getSize() {
    return this.size + this.written.length;
  }

  read(bytes, { at }) {
    this.readBytes += bytes.length;
    const filled = Math.max(0, Math.min(bytes.length, this.size - at));
    this.fill(bytes.subarray(0, filled), at);
    this.written.copy(bytes, filled, Math.max(0, at - this.size));
    return bytes.length;
  }

  write(bytes, { at }) {
    assert.equal(at, this.getSize());
    this.written = Buffer.concat([this.written, bytes]);
    return bytes.length;
  }

  async open() {
    const directory = {
      getDirectoryHandle: async () => directory,
      getFileHandle: async () => ({ createSyncAccessHandle: async () => this }),
    };
    Object.defineProperty(globalThis, 'navigator', { value: { storage: { getDirectory: async () => directory } }, configurable: true });
    return openLogFile('log');
  }
}

const entry = (path) => ({ type: 'fileDone', path, size: 1, mtime: 0, level: 3, digest: 'ab' });
const pathsOf = ({ entries }) => entries.map(({ path }) => path);
const lineOf = (path) => {
  const { type, ...line } = entry(path);
  return Buffer.from(`${JSON.stringify(line)}\n`);
};

/** A file with this text. */
const textFile = (bytes) => new Storage(bytes.length, (target, at) => target.set(bytes.subarray(at, at + target.length)));

// A line that was cut does not count, and does not spoil the next one.
const cut = textFile(Buffer.concat([lineOf('a'), lineOf('cut').subarray(0, -9)]));
const receipt = new Receipt(await cut.open(), 4);
assert.equal(cut.readBytes, 1);
receipt.add(entry('b'));
assert.deepEqual([pathsOf(receipt.read()), receipt.read().unknown], [['a', 'b'], 0]);
const whole = textFile(lineOf('a'));
assert.deepEqual([...(await whole.open()).lines()], [lineOf('a').toString().trim()]);
assert.equal(whole.written.length, 0);
assert.deepEqual([...(await textFile(Buffer.alloc(0)).open()).lines()], []);

// Lines are written together: after some time, if they are long, and before they are read.
const writes = [];
const counted = { lines: () => writes.join('').split('\n'), append: (text) => writes.push(text), flush() {}, close() {} };
const together = new Receipt(counted, 4);
['a', 'b'].forEach((path) => together.add(entry(path)));
assert.deepEqual(writes, []);
together.write();
together.write();
assert.deepEqual(writes, [`${lineOf('a')}${lineOf('b')}`]);
together.add(entry('c'));
assert.equal(together.read().entries.length, 3);
together.add(entry('l'.repeat(1 << 16)));
assert.equal(writes.length, 3);

// A later run finds an empty file whose line was not flushed.
const log = new JobLog(counted);
log.opened({ path: 'd', size: 1, mtime: 0, version: '', have: 1 });
log.created('d', true);
assert.deepEqual(new JobLog(counted).empty(), ['d']);

// The objects of all runs count, until the file starts again or is another version.
{
  const objects = new Receipt(memoryLog(), 4);
  const version = { path: 'f', size: 10, mtime: 1 };
  const hashed = (object, digest, of = version) => objects.add({ type: 'hashed', ...of, object, digest });
  const known = () => objects.read().entries.map((found) => [found.digest, found.objects?.join()]);
  [2, 0].forEach((object) => hashed(object, `d${object}`));
  assert.deepEqual(objects.read(), { entries: [], unknown: 0 });
  objects.add({ type: 'fileDone', ...version, level: 3, digest: '' });
  assert.deepEqual(objects.read(), { entries: [], unknown: 1 });
  hashed(1, 'd1');
  assert.deepEqual(known(), [['', 'd0,d1,d2']]);
  // A later run finds the file.
  objects.add({ type: 'fileDone', ...version, outcome: Outcome.same, level: 0, digest: '' });
  assert.deepEqual(known(), [['', 'd0,d1,d2']]);
  objects.add({ type: 'restart', ...version });
  assert.deepEqual(known(), []);
  [0, 1, 2].forEach((object) => hashed(object, `e${object}`));
  objects.add({ type: 'fileDone', ...version, level: 3, digest: 'whole' });
  objects.add({ type: 'same', path: 'f', size: 10 });
  assert.deepEqual(known(), [['whole', 'e0,e1,e2']]);
  hashed(0, 'n0', { ...version, mtime: 2 });
  assert.deepEqual(objects.read(), { entries: [], unknown: 0 });
  objects.add({ type: 'fileDone', ...version, mtime: 2, level: 3, digest: 'new' });
  assert.deepEqual(known(), [['new', undefined]]);
  // Nothing proves the objects of a file that the receiver had before.
  [0, 1, 2].forEach((object) => hashed(object, `s${object}`, { ...version, path: 's' }));
  objects.add({ type: 'fileDone', ...version, path: 's', outcome: Outcome.same, level: 0, digest: '' });
  assert.equal(objects.read().unknown, 1);
}

// Parts of the log end within lines and within characters.
const paths = Array.from({ length: 9 }, (_, at) => `${at}${'ü€😀'.repeat(50_000 + at)}`);
const long = textFile(Buffer.concat(paths.map(lineOf)));
assert.deepEqual(pathsOf(new Receipt(await long.open(), 4).read()), paths);

// The log of more text than a string can have.
const line = lineOf('x'.repeat(1 << 20));
const lines = Math.ceil(constants.MAX_STRING_LENGTH / line.length) + 1;
const huge = new Storage(lines * line.length, (target, at) => {
  for (let done = 0; done < target.length;) {
    const from = (at + done) % line.length;
    done += line.copy(target, done, from);
  }
});
assert.equal(new Receipt(await huge.open(), 4).read().entries.length, 1);

// A waybill has the entries in order.
const text = 'y'.repeat(600_000);
const core = { waybillBegin: () => 'begin', waybillEntry: ({ path }) => path + text, waybillEnd: () => 'end' };
const blob = waybill(core, {}, ['1', '2', '3'].map(entry));
assert.equal(await blob.text(), `begin1${text}2${text}3${text}end`);
assert.equal(blob.type, 'text/plain');

console.log('ok');
