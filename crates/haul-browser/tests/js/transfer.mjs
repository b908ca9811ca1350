// A job in JavaScript: an upload and a download, each with its module, joined by a server that
// answers both and passes their frames on. The lanes break once; both jobs resume.
//
//   node transfer.mjs MODULE.wasm

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Buffer } from 'node:buffer';
import { Level, Outcome, instantiateCore } from '../../js/core.js';
import { Download } from '../../js/download.js';
import { JobLog } from '../../js/job-log.js';
import { LaneLost, LaneRefused } from '../../js/lane.js';
import { FolderTarget, PrivateTarget } from '../../js/storage.js';
import { Transfer } from '../../js/transfer.js';
import { Upload } from '../../js/upload.js';

const HEADER = 16;
const OBJECT = 64 << 10;
const KINDS = { connect: 0, accept: 7 };
/** The optional field *resumes*. */
const RESUMES = Buffer.from([1, 0, 0, 0, 0, 0]);
const JOB = new Uint8Array(16).fill(9);

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) {
      crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
    }
  }
  return ~crc >>> 0;
}

function frame(kind, body) {
  const header = Buffer.alloc(HEADER);
  header[0] = kind;
  header.writeUInt32LE(body.length, 4);
  header.writeUInt32LE(crc32(body), 12);
  const crc = crc32(Buffer.concat([header.subarray(0, 2), header.subarray(4)]));
  header.writeUInt16LE(((crc >>> 16) ^ crc) & 0xffff, 2);
  return Buffer.concat([header, body]);
}

/** Answers a CONNECT with its own options and window. See docs/formats/wire.md. */
function accept(connect, resumes) {
  const options = connect.subarray(41, 41 + 29);
  const window = connect.subarray(70, 70 + 20);
  const head = Buffer.alloc(14);
  head.writeUInt16LE(2, 0);
  head.writeUInt32LE(1, 10);
  const tail = resumes ? RESUMES : Buffer.alloc(0);
  return frame(KINDS.accept, Buffer.concat([head, Buffer.alloc(32, 3), options, window, Buffer.alloc(4), tail]));
}

/** A queue of bytes that a lane delivers. */
class Queue {
  constructor() {
    this.pieces = [];
    this.wake = () => {};
    this.state = 'open';
  }

  push(bytes) {
    this.pieces.push(Uint8Array.from(bytes));
    this.wake();
  }

  end(state) {
    this.state = state;
    this.wake();
  }

  get isFull() {
    return this.pieces.length > 4 && this.state === 'open';
  }

  /** Waits until few pieces wait, as a network does. */
  async space() {
    while (this.isFull) {
      await new Promise((resolve) => {
        setTimeout(resolve, 1);
      });
    }
  }

  async* [Symbol.asyncIterator]() {
    for (;;) {
      if (this.pieces.length > 0) {
        // As from a network: other work of the page runs before the next piece.
        await new Promise((resolve) => {
          setImmediate(resolve);
        });
        yield this.pieces.shift();
      } else if (this.state === 'lost') {
        throw new LaneLost('cut');
      } else if (this.state === 'ended') {
        return;
      } else {
        await new Promise((resolve) => {
          this.wake = resolve;
        });
      }
    }
  }
}

/** A meeting of two clients: takes both CONNECTs, answers them, and joins the rest. */
class Meeting {
  constructor(cutAfter) {
    this.cutAfter = cutAfter;
    this.passed = 0;
    this.sides = [0, 1].map(() => ({ queue: new Queue(), head: Buffer.alloc(0), connect: null, rest: [] }));
  }

  lane(index) {
    const [mine, other] = [this.sides[index], this.sides[1 - index]];
    return {
      take: (bytes) => (other.queue.isFull ? 0 : this.take(mine, other, Buffer.from(bytes)) ?? bytes.length),
      space: () => other.queue.space(),
      flush: () => {},
      finish: async () => {},
      pieces: () => mine.queue[Symbol.asyncIterator](),
      close: () => {
        mine.queue.end('ended');
        other.queue.end('ended');
      },
    };
  }

  take(mine, other, bytes) {
    if (mine.queue.state === 'lost') {
      throw new LaneLost('cut');
    }
    if (!mine.connect) {
      mine.head = Buffer.concat([mine.head, bytes]);
      const len = mine.head.length < HEADER ? Infinity : HEADER + mine.head.readUInt32LE(4);
      if (mine.head.length < len) {
        return;
      }
      assert.equal(mine.head[0], KINDS.connect);
      mine.connect = mine.head.subarray(HEADER, len);
      mine.rest.push(mine.head.subarray(len));
      if (other.connect) {
        const resumes = [mine, other].map((side) => side.connect.subarray(-6).equals(RESUMES));
        mine.queue.push(accept(mine.connect, resumes[1]));
        other.queue.push(accept(other.connect, resumes[0]));
      }
      bytes = mine.rest.pop();
    }
    if (bytes.length > 0) {
      this.passed += bytes.length;
      other.queue.push(bytes);
    }
    if (this.passed > this.cutAfter) {
      mine.queue.end('lost');
      other.queue.end('lost');
    }
  }
}

/** Storage in memory, of which every second file is asynchronous. */
class Memory {
  constructor() {
    this.files = new Map();
    this.parts = new Map();
    this.directories = [];
    this.time = 1234;
  }

  async sizeOf(path, isComplete) {
    return (isComplete ? this.files : this.parts).get(path)?.length ?? -1;
  }

  async modifiedAt() {
    return this.time;
  }

  async open(path, keep) {
    let bytes = keep ? this.parts.get(path) : new Uint8Array(0);
    assert.ok(bytes);
    const isAsync = path.length % 2 === 0;
    const put = (at, part) => {
      if (bytes.length < at + part.length) {
        const longer = new Uint8Array(at + part.length);
        longer.set(bytes);
        bytes = longer;
      }
      bytes.set(part, at);
    };
    return {
      isSync: !isAsync,
      write: (at, part) => (isAsync ? new Promise((resolve) => {
        setTimeout(() => resolve(put(at, part)), 1);
      }) : put(at, part)),
      sync: () => {
        this.parts.set(path, bytes);
        return Level.durable;
      },
      finish: async (size) => {
        assert.ok(bytes.length <= size);
        const whole = new Uint8Array(size);
        whole.set(bytes);
        this.files.set(path, whole);
        this.parts.delete(path);
        return Level.durable;
      },
      close: () => {},
    };
  }

  async directory(path) {
    this.directories.push(path);
  }
}

const files = new Map([
  ['empty', 0], ['d/one', 1], ['d/two ä', 70_000], ['large', 3_000_000], ['longer', 2_000_001],
].map(([path, size], seed) => [path, Uint8Array.from({ length: size }, (_, at) => (at * (seed + 3) + (at >> 7)) & 255)]));

async function* entries() {
  for (const [path, bytes] of files) {
    yield { path, file: async () => new File([bytes], path, { lastModified: 1_700_000_000_123 }) };
  }
  yield { path: 'd/empty' };
  yield { path: 'broken', failure: 'no permission' };
}

// node 18 has Blob but not File.
globalThis.File ??= class extends Blob {
  constructor(parts, name, { lastModified }) {
    super(parts);
    this.name = name;
    this.lastModified = lastModified;
  }
};

const module = readFileSync(process.argv[2]);
const meetings = [new Meeting(2_500_000), new Meeting(Infinity)];
const opened = [0, 0];
const open = (index) => async () => {
  const meeting = meetings[opened[index]];
  opened[index] += 1;
  return meeting.lane(index);
};

const reports = { up: [], down: [] };
let up = null;
let down = null;
const settings = { job: JOB, object: OBJECT, level: Level.durable };
const source = new Upload({ ...settings, to: '' }, entries, (event) => reports.up.push(event), () => up.settle());
up = new Transfer(await instantiateCore(module), source, open(0), (event) => reports.up.push(event));

const memory = new Memory();
const log = { text: '', lines: () => log.text.split('\n'), append: (text) => { log.text += text; }, flush() {}, close() {} };
const sink = new Download({ ...settings, paths: [''] }, memory, new JobLog(log), (event) => reports.down.push(event), () => down.settle());
down = new Transfer(await instantiateCore(module), sink, open(1), (event) => reports.down.push(event));

const [sent, received] = await Promise.all([up.run(), down.run()]);
assert.deepEqual([sent.ok, received.ok], [1, 1], JSON.stringify([sent, received]));
assert.deepEqual(opened, [2, 2]);
for (const [path, bytes] of files) {
  assert.ok(Buffer.from(memory.files.get(path) ?? [1, 2, 3]).equals(bytes), path);
  assert.ok(reports.down.some((event) => ['fileDone', 'same'].includes(event.type) && event.path === path), path);
}
assert.deepEqual(new Set(memory.directories), new Set(['d/empty']));
assert.ok(reports.up.some((event) => event.text === 'cannot read broken: no permission'));
assert.equal(reports.up.filter((event) => event.type === 'reconnecting').length, 1);
assert.ok(reports.up.filter((event) => event.type === 'fileDone').every((event) => event.outcome !== Outcome.failed));
const fetched = meetings[1].passed;
assert.ok(fetched < 4_500_000, `resumed: ${fetched} bytes in the second session`);

// A log that was cut within a line counts up to that line.
const again = new JobLog({ ...log, lines: () => log.text.slice(0, -5).split('\n') });
assert.equal(again.kept().length, new JobLog(log).kept().length - 1 + Number(again.kept().some((file) => file.objects.length > 0 && !file.complete)));

// A finished file counts while its size and its time are those of the log.
const later = new Download({ ...settings, paths: [''] }, memory, new JobLog({ ...log, append() {} }), () => {}, () => {});
assert.equal((await later.kept()).filter((file) => file.complete).length, 5);
memory.time += 1;
assert.equal((await later.kept()).filter((file) => file.complete).length, 0);

/** A lane that delivers nothing, and takes everything. */
function silentLane() {
  const queue = new Queue();
  const lane = {
    closed: false,
    take: (bytes) => bytes.length,
    space: async () => {},
    flush: () => {},
    finish: async () => {},
    pieces: () => queue[Symbol.asyncIterator](),
    close: () => {
      lane.closed = true;
      queue.end('ended');
    },
  };
  return lane;
}

/** A transfer with this way to open a lane. `change` changes the direction first. */
async function job(openLane, { change = () => {}, delays = {} } = {}) {
  const reported = [];
  let transfer = null;
  const nobody = { lines: () => [], append() {}, flush() {}, close() {} };
  const report = (event) => {
    reported.push(event);
    transfer.onReport?.(event);
  };
  const direction = new Download({ ...settings, paths: [''] }, new Memory(), new JobLog(nobody), report, () => transfer.settle());
  change(direction);
  const long = { reconnect: 1e6, reconnectMax: 1e6, tick: 1000, close: 10, ...delays };
  transfer = new Transfer(await instantiateCore(module), direction, openLane, report, long);
  return { transfer, reported };
}

// A job stops before it runs, while it connects, before it connects again, and while it starts.
{
  const { transfer } = await job(() => assert.fail('connected'));
  transfer.stop();
  assert.deepEqual(((end) => [end.ok, end.text])(await transfer.run()), [0, 'stopped']);
}
{
  let connected;
  const late = silentLane();
  const { transfer } = await job(() => new Promise((resolve) => {
    connected = resolve;
  }));
  const running = transfer.run();
  transfer.stop();
  assert.equal((await running).text, 'stopped');
  connected(late);
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
  assert.ok(late.closed);
}
{
  const { transfer, reported } = await job(() => Promise.reject(new LaneLost('no network')));
  transfer.onReport = () => transfer.stop();
  assert.equal((await transfer.run()).text, 'stopped');
  assert.deepEqual(reported.map((event) => event.type), ['reconnecting']);
}
{
  const lane = silentLane();
  const { transfer } = await job(async () => lane, {
    change: (direction) => {
      direction.kept = async () => {
        transfer.stop();
        return [];
      };
    },
  });
  const ended = await transfer.run();
  assert.equal(ended.ok, 0);
  assert.match(ended.text, /stopped/);
  assert.ok(lane.closed);
}

// A lane that is lost closes at once; one that never finishes closes after a delay.
for (const isLost of [true, false]) {
  const lane = silentLane();
  let finishes = 0;
  lane.finish = () => {
    finishes += 1;
    return new Promise(() => {});
  };
  if (isLost) {
    lane.take = () => {
      throw new LaneLost('cut');
    };
  }
  const { transfer } = await job(async () => lane);
  transfer.onReport = () => transfer.stop();
  const running = transfer.run();
  if (!isLost) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    transfer.stop();
  }
  assert.equal((await running).text, 'stopped');
  assert.equal(finishes, isLost ? 0 : 1);
  assert.ok(lane.closed);
}

// A server that refuses the lane ends the job; without a network it connects again.
{
  let tries = 0;
  const { transfer, reported } = await job(async () => {
    tries += 1;
    throw tries < 3 ? new TypeError('no network') : new LaneRefused('cannot open a lane: status 403');
  }, { delays: { reconnect: 1 } });
  const ended = await transfer.run();
  assert.deepEqual([ended.ok, ended.text], [0, 'cannot open a lane: status 403']);
  assert.deepEqual([tries, reported.length], [3, 2]);
}

// An exception ends the job: while it receives, in a tick, in an answer, and while it starts.
const broken = new Error('the module is broken');
const fails = () => {
  throw broken;
};
for (const place of ['receive', 'tick', 'answer', 'start', 'stop']) {
  const lane = silentLane();
  const { transfer } = await job(async () => lane, {
    delays: { tick: 1 },
    change: (direction) => {
      if (place === 'start') {
        direction.kept = async () => fails();
      }
    },
  });
  transfer.core.tick = place === 'tick' ? fails : () => {};
  if (place === 'receive') {
    lane.pieces = async function* pieces() {
      yield new Uint8Array(1);
    };
    transfer.core.feed = fails;
  }
  transfer.core.stop = fails;
  const running = transfer.run();
  setTimeout(() => {
    if (place === 'answer') {
      transfer.direction.answer(Promise.resolve(1), fails);
    } else if (place === 'stop') {
      transfer.stop();
    }
  }, 5);
  await assert.rejects(running, broken, place);
  assert.ok(lane.closed, place);
}

/** A directory handle in memory, with what the storage of a download uses. */
class Directory {
  constructor() {
    this.entries = new Map();
  }

  async entry(name, create, make) {
    if (!this.entries.has(name)) {
      if (!create) {
        throw new DOMException(name, 'NotFoundError');
      }
      this.entries.set(name, make());
    }
    return this.entries.get(name);
  }

  getDirectoryHandle(name, { create = false } = {}) {
    return this.entry(name, create, () => new Directory());
  }

  getFileHandle(name, { create = false } = {}) {
    return this.entry(name, create, () => new FileHandle(this, name));
  }

  async removeEntry(name) {
    if (!this.entries.delete(name)) {
      throw new DOMException(name, 'NotFoundError');
    }
  }
}

class FileHandle {
  constructor(directory, name) {
    Object.assign(this, { directory, name, bytes: Buffer.alloc(0), isOpen: false });
  }

  async getFile() {
    return { size: this.bytes.length, lastModified: 5 };
  }

  async move(name) {
    assert.ok(!this.isOpen);
    this.directory.entries.delete(this.name);
    this.directory.entries.set(name, this);
    this.name = name;
  }

  put(at, part) {
    const longer = Buffer.alloc(Math.max(this.bytes.length, at + part.length));
    this.bytes.copy(longer);
    longer.set(part, at);
    this.bytes = longer;
    return part.length;
  }

  truncate(size) {
    this.bytes = Buffer.concat([this.bytes, Buffer.alloc(size)]).subarray(0, size);
  }

  async createSyncAccessHandle() {
    this.isOpen = true;
    return {
      truncate: (size) => this.truncate(size),
      write: (part, { at }) => this.put(at, part),
      flush() {},
      close: () => {
        this.isOpen = false;
      },
    };
  }

  /** Bytes are in the file when the stream closes. */
  async createWritable() {
    const copy = new FileHandle(null, this.name);
    return {
      write: async ({ position, data }) => copy.put(position, data),
      truncate: async (size) => copy.truncate(size),
      close: async () => {
        this.bytes = copy.bytes;
      },
      abort: async () => {},
    };
  }
}

// Temporary files of the private file system belong to one job, and their names to no peer.
{
  const root = new Directory();
  const [one, two] = ['aa', 'bb'].map((id) => new PrivateTarget(root, id));
  const open = await Promise.all([one, two].map((target) => target.open('d/f', false)));
  open[0].write(0, Buffer.from('one'));
  open[1].write(0, Buffer.from('second'));
  const directory = root.entries.get('d');
  assert.deepEqual([...directory.entries.keys()], ['.haul-part-aa-f', '.haul-part-bb-f']);
  assert.equal(await one.sizeOf('d/f', false), 3);
  assert.deepEqual([await one.sizeOf('d/f', true), await one.modifiedAt('d/f')], [-1, -1]);
  await open[0].finish(3);
  assert.deepEqual([...directory.entries.keys()].sort(), ['.haul-part-bb-f', 'f']);
  assert.deepEqual([await one.sizeOf('d/f', true), await one.modifiedAt('d/f')], [3, 5]);
  open[1].close();
}

// A folder has a file with its first bytes. One that is not finished disappears, or stays as it
// was.
{
  const root = new Directory();
  const target = new FolderTarget(root);
  const file = await target.open('f');
  assert.equal(root.entries.size, 0);
  await file.write(1, Buffer.from('x'));
  assert.deepEqual([...root.entries.keys()], ['f']);
  await file.close();
  assert.equal(root.entries.size, 0);

  await (await target.open('empty')).finish(0);
  const kept = await target.open('f');
  await kept.write(0, Buffer.from('kept'));
  await kept.finish(4);
  await kept.close();
  for (const end of ['close', 'finish']) {
    const again = await target.open('f');
    await again.write(0, Buffer.from('other'));
    await (end === 'close' ? again.close() : assert.rejects(again.finish(-1)));
  }
  const refused = await target.open('g');
  await refused.write(0, Buffer.from('other'));
  await assert.rejects(refused.finish(-1));
  assert.deepEqual([...root.entries].map(([name, { bytes }]) => [name, String(bytes)]), [['empty', ''], ['f', 'kept']]);
}

// The end of a session waits until abandoned files are closed; a handle closes also if it fails.
{
  const root = new Directory();
  const target = new PrivateTarget(root, 'aa');
  let closed = 0;
  const slow = {
    ...new Memory(),
    open: async (path) => {
      const file = await target.open(path, false);
      return {
        ...file,
        close: async () => {
          await new Promise((resolve) => {
            setTimeout(resolve, 5);
          });
          file.close();
          closed += 1;
        },
      };
    },
  };
  const direction = new Download({ ...settings, paths: [''] }, slow, new JobLog({ ...log, append() {} }), () => {}, () => {});
  ['a', 'b'].forEach((path, file) => direction.handle({ type: 'open', file, path, have: 0 }));
  direction.handle({ type: 'abandon', file: 0 });
  await direction.end();
  assert.equal(closed, 2);
  assert.ok([...root.entries.values()].every((file) => !file.isOpen));

  const failing = await target.open('c', false);
  await assert.rejects(failing.finish(-1));
  assert.ok(!root.entries.get('.haul-part-aa-c').isOpen);
}
console.log('ok');
