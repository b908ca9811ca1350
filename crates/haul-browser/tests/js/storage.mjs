// The private file system of a browser whose `move` does not replace a file. It is simulated.

import assert from 'node:assert/strict';
import { PrivateTarget } from '../../js/storage.js';

const JOB = '00'.repeat(16);
const PART = `.haul-part-${JOB}-name`;
const ASIDE = `.haul-old-${JOB}-name`;

const failure = (name, message) => Object.assign(new Error(message), { name });

/**
 * A directory with these files. `refuses` returns true for a move that fails.
 * @param {Record<string, string>} files
 * @param {(from: string, to: string) => boolean} refuses
 */
function directoryOf(files, refuses) {
  const entries = new Map(Object.entries(files));
  const handle = (start) => {
    let name = start;
    return {
      async move(to) {
        if (entries.has(to) || refuses(name, to)) {
          throw failure('InvalidModificationError', `no move to ${to}`);
        }
        entries.set(to, entries.get(name));
        entries.delete(name);
        name = to;
      },
      createSyncAccessHandle: async () => ({
        truncate() {},
        flush() {},
        close() {},
        write(bytes) {
          entries.set(name, new TextDecoder().decode(bytes));
          return bytes.length;
        },
      }),
    };
  };
  return {
    entries,
    async getFileHandle(name, { create = false } = {}) {
      if (entries.get(name) === null) {
        throw failure('TypeMismatchError', 'a directory');
      }
      if (!entries.has(name)) {
        if (!create) {
          throw failure('NotFoundError', 'no file');
        }
        entries.set(name, '');
      }
      return handle(name);
    },
    async removeEntry(name) {
      if (!entries.delete(name)) {
        throw failure('NotFoundError', 'no file');
      }
    },
  };
}

/** Downloads "new" as `name`. Returns the files, and the text of the error. */
async function download(files, refuses = () => false) {
  const directory = directoryOf(files, refuses);
  const file = await new PrivateTarget(directory, JOB).open('name', false);
  file.write(0, new TextEncoder().encode('new'));
  const text = await file.finish(3).then(() => '', (error) => error.message);
  return [Object.fromEntries(directory.entries), text];
}

assert.deepEqual(await download({}), [{ name: 'new' }, '']);
assert.deepEqual(await download({ name: 'old' }), [{ name: 'new' }, '']);

const refusesNew = (from) => from === PART;
assert.deepEqual(await download({ name: 'old' }, refusesNew), [{ name: 'old', [PART]: 'new' }, 'no move to name']);
assert.deepEqual(await download({}, refusesNew), [{ [PART]: 'new' }, 'no move to name']);
// A directory has the name.
assert.deepEqual(await download({ name: null }), [{ name: null, [PART]: 'new' }, 'no move to name']);

// An earlier run was interrupted between its moves.
assert.deepEqual(await download({ name: 'old', [ASIDE]: 'older' }), [{ name: 'new' }, '']);

const [kept, text] = await download({ name: 'old' }, (from, to) => to === 'name');
assert.deepEqual(kept, { [ASIDE]: 'old', [PART]: 'new' });
assert.equal(text, `cannot replace name: no move to name; the old file is ${ASIDE}`);

console.log('ok');
