// A folder that the user picked, on disks that distinguish names or fold them. It is simulated.

import assert from 'node:assert/strict';
import { JobLog } from '../../js/job-log.js';
import { removeEmpty } from '../../js/leftovers.js';
import { FolderTarget } from '../../js/storage.js';

const failure = (name, message) => Object.assign(new Error(message), { name });

const exact = (name) => name;
const caseless = (name) => name.toLowerCase();
const normalized = (name) => name.normalize('NFC');

/** A directory of a disk that takes names for one if `key` returns the same for both. */
class Directory {
  constructor(key) {
    this.key = key;
    /** @type {Map<string, {name: string, child: any}>} */
    this.entries = new Map();
  }

  get(name, create, make) {
    const key = this.key(name);
    if (!this.entries.has(key)) {
      if (!create) {
        throw failure('NotFoundError', `no ${name}`);
      }
      this.entries.set(key, { name, child: make() });
    }
    return this.entries.get(key).child;
  }

  async getDirectoryHandle(name, { create = false } = {}) {
    return this.get(name, create, () => new Directory(this.key));
  }

  async getFileHandle(name, { create = false } = {}) {
    return this.get(name, create, () => new SimulatedFile());
  }

  async *keys() {
    yield* [...this.entries.values()].map(({ name }) => name);
  }

  async removeEntry(name) {
    this.entries.delete(this.key(name));
  }

  /** Returns the texts of all files by their paths, and null for a directory. */
  tree(prefix = '', found = {}) {
    for (const { name, child } of this.entries.values()) {
      if (child instanceof Directory) {
        found[`${prefix}${name}/`] = null;
        child.tree(`${prefix}${name}/`, found);
      } else {
        found[prefix + name] = child.text;
      }
    }
    return found;
  }
}

class SimulatedFile {
  text = '';

  async getFile() {
    return { size: this.text.length, lastModified: 1 };
  }

  async createWritable() {
    let text = '';
    return {
      write: async ({ data }) => {
        text = new TextDecoder().decode(data);
      },
      truncate: async () => {},
      abort: async () => {},
      close: async () => {
        this.text = text;
      },
    };
  }
}

/** Downloads a file with its path as contents, or a directory. Returns the text of the error. */
async function receive(target, path) {
  try {
    if (path.endsWith('/')) {
      await target.directory(path.slice(0, -1));
    } else {
      const file = await target.open(path);
      await file.write(0, new TextEncoder().encode(path));
      await file.finish(path.length);
    }
    return '';
  } catch (error) {
    return error.message;
  }
}

/** Downloads paths at once. Returns the tree, and the texts of the errors. */
async function download(key, paths, disk = new Directory(key)) {
  const target = new FolderTarget(disk);
  const texts = await Promise.all(paths.map((path) => receive(target, path)));
  return [disk.tree(), texts.filter((text) => text !== '')];
}

const refusal = (path, first) => `cannot write ${path}: the disk takes its name for that of ${first}; `
  + 'rename one of them at the server, or download them into different folders';

// A disk that distinguishes names gets all of them.
const paths = ['A', 'a', 'é', 'e\u0301', 'D/x', 'd/x', 'E/', 'e/', 'x', 'X', 'D/y'];
const [tree, errors] = await download(exact, paths);
assert.deepEqual(errors, []);
assert.deepEqual(Object.keys(tree).sort(), [...paths, 'D/', 'd/'].sort());
assert.ok(paths.every((path) => tree[path] === (path.endsWith('/') ? null : path)));

// The other disks keep the first of two names, and name it.
assert.deepEqual(await download(caseless, ['A', 'a', 'b']), [{ A: 'A', b: 'b' }, [refusal('a', 'A')]]);
assert.deepEqual(await download(normalized, ['é', 'e\u0301']), [{ é: 'é' }, [refusal('e\u0301', 'é')]]);
assert.deepEqual(await download(caseless, ['A/x', 'a/x']), [{ 'A/': null, 'A/x': 'A/x' }, [refusal('a', 'A')]]);
assert.deepEqual(await download(caseless, ['A/', 'a/']), [{ 'A/': null }, [refusal('a', 'A')]]);

// A file that was there before has the spelling of the second name.
const used = new Directory(caseless);
await receive(new FolderTarget(used), 'a');
assert.deepEqual(await download(caseless, ['A', 'a'], used), [{ a: 'A' }, [refusal('a', 'A')]]);

// A later run knows what an earlier one has written.
for (const [first, second, text] of [['A', 'a', refusal('a', 'A')], ['A/x', 'a/x', refusal('a', 'A')]]) {
  const disk = new Directory(caseless);
  await receive(new FolderTarget(disk), first);
  const later = new FolderTarget(disk);
  assert.equal(await later.sizeOf(first, true), first.length);
  assert.equal(await receive(later, second), text);
}

// A file that did not arrive leaves its name to another one.
for (const key of [exact, caseless]) {
  const disk = new Directory(key);
  const target = new FolderTarget(disk);
  const file = await target.open('A');
  await file.write(0, new Uint8Array(1));
  await file.close();
  assert.deepEqual([await receive(target, 'a'), disk.tree()], ['', { a: 'a' }]);
}

// The next run removes an empty file whose data did not arrive, and no other one.
const entry = (path) => ({ path, size: 1, mtime: 0, version: 'v', have: 0 });
const crashed = new Directory(exact);
let lines = '';
const logOf = () => new JobLog({ lines: () => lines.split('\n'), append: (line) => { lines += line; }, flush() {}, close() {} });
const log = logOf();
const target = new FolderTarget(crashed, (path, created) => log.created(path, created));
await receive(new FolderTarget(crashed), 'old');
for (const path of ['D/new', 'old', 'closed', 'whole']) {
  log.opened(entry(path));
  const file = await target.open(path);
  await file.write(0, new Uint8Array(1));
  if (path === 'closed') {
    await file.close();
    // Another program has created an empty file meanwhile.
    await crashed.getFileHandle(path, { create: true });
  } else if (path === 'whole') {
    await file.finish(1);
  }
}
assert.deepEqual(Object.keys(crashed.tree()), ['old', 'D/', 'D/new', 'closed', 'whole']);
await removeEmpty(crashed, logOf());
assert.deepEqual(crashed.tree(), { old: 'old', 'D/': null, closed: '', whole: '\0' });

// Also that of a complete file which was deleted, and is fetched again in the same version.
const deleted = new Directory(exact);
lines = '';
const first = logOf();
first.opened(entry('again'));
first.completed('again', '', 1);
first.write();
const second = logOf();
second.opened(entry('again'));
const refetched = await new FolderTarget(deleted, (path, created) => second.created(path, created)).open('again');
await refetched.write(0, new Uint8Array(1));
assert.deepEqual(deleted.tree(), { again: '' });
await removeEmpty(deleted, logOf());
assert.deepEqual(deleted.tree(), {});

console.log('ok');
