// Files for the list of downloads of a browser: order, memory and failures. The service worker is
// simulated.

import assert from 'node:assert/strict';
import { Level } from '../../js/core.js';
import { SaveTarget } from '../../js/save-target.js';

const OBJECT = 4 << 20;

/** The ends of those who have a lock. */
const locks = new Map();
const request = (name, work) => {
  const done = Promise.resolve(locks.get(name)).then(work);
  locks.set(name, done.catch(() => {}));
  return done;
};
Object.defineProperty(globalThis, 'navigator', { value: { locks: { request } }, configurable: true });

/** Lets messages and promises arrive. */
const settle = async () => {
  for (let turn = 0; turn < 20; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
};

/** A browser that takes an object each time that it is told to. */
class Browser {
  /** Files that it saves, by their path. */
  files = new Map();

  constructor() {
    this.target = new SaveTarget(OBJECT, ({ id, path, size, port }) => {
      const file = { size, port, chunks: [], isComplete: false, error: null, stop: () => {} };
      request(`haul-saved-${id}`, () => {
        port.postMessage({ isRegistered: true });
        return new Promise((stop) => (file.stop = stop));
      });
      this.files.set(path, file);
      port.on('message', ({ bytes, end, error }) => {
        if (bytes) {
          file.chunks.push(bytes);
        } else if (end) {
          file.isComplete = true;
          port.postMessage({ done: true });
        } else {
          file.error = error;
        }
      });
    });
  }

  /** Takes everything that comes. */
  async take(path) {
    for (let last = -1; last !== this.files.get(path).chunks.length;) {
      last = this.files.get(path).chunks.length;
      this.files.get(path).port.postMessage({ wants: true });
      await settle();
    }
  }

  close() {
    this.files.forEach(({ port }) => port.close());
  }
}

const part = (index) => new Uint8Array(OBJECT).fill(index + 1);
const first = ({ chunks }) => chunks.map((bytes) => bytes[0]);

// Objects arrive in any order, and reach the browser verified and in order.
{
  const browser = new Browser();
  const { target } = browser;
  const file = await target.open('a/b', false, 3 * OBJECT + 1);
  for (const index of [0, 2, 1]) {
    await file.write(index * OBJECT, part(index));
  }
  file.verified(2);
  await settle();
  assert.equal(browser.files.size, 0);
  file.verified(0);
  await settle();
  await browser.take('a/b');
  assert.deepEqual(first(browser.files.get('a/b')), [1]);
  // The first bytes of object 1 were wrong: they come again.
  await file.write(OBJECT, new Uint8Array(10).fill(9));
  file.verified(1);
  await file.write(3 * OBJECT, new Uint8Array([7]));
  const finishing = file.finish();
  await browser.take('a/b');
  assert.equal(await finishing, Level.verified);
  const { chunks, isComplete, size } = browser.files.get('a/b');
  assert.deepEqual(first({ chunks }), [1, 9, 3, 7]);
  assert.equal(chunks.reduce((sum, bytes) => sum + bytes.length, 0), size);
  assert.ok(isComplete);
  assert.equal(await target.sizeOf('a/b', true), size);
  assert.deepEqual([target.held, target.queued], [0, 0]);
  browser.close();
}

// Writes wait for a browser that takes nothing, and so does the lane.
{
  const browser = new Browser();
  const file = await browser.target.open('slow', false, 100 * OBJECT);
  let written = 0;
  const writing = (async () => {
    for (let index = 0; index < 100; index += 1) {
      await file.write(index * OBJECT, part(index));
      file.verified(index);
      written += 1;
    }
  })().catch((error) => error);
  await settle();
  assert.equal(written, 3);
  assert.ok(browser.target.queued + browser.target.held <= 4 * OBJECT);
  await browser.take('slow');
  assert.equal(written, 100);
  await writing;
  browser.close();
}

// A server that sends far ahead of an object that is missing is stopped.
{
  const browser = new Browser();
  const file = await browser.target.open('ahead', false, 1000 * OBJECT);
  let index = 1;
  const error = await (async () => {
    for (; index < 1000; index += 1) {
      await file.write(index * OBJECT, part(0));
      file.verified(index);
    }
  })().catch((failed) => failed);
  assert.match(error.message, /too many bytes arrived before an earlier part/);
  assert.ok(index * OBJECT <= 84 << 20);
  browser.close();
}

// A session that ends keeps verified objects. Other versions do not continue.
{
  const browser = new Browser();
  const { target } = browser;
  const file = await target.open('long', false, 3 * OBJECT);
  await file.write(0, part(0));
  file.verified(0);
  await file.write(OBJECT, new Uint8Array(10));
  file.close();
  assert.equal(target.held, 0);
  assert.equal(await target.sizeOf('long', false), 3 * OBJECT);
  assert.equal(await target.open('long', true, 3 * OBJECT), file);
  await assert.rejects(target.open('long', false, 3 * OBJECT), /the server sends another version/);
  await settle();
  assert.equal(await target.sizeOf('long', false), -1);
  assert.equal(target.queued, 0);
  // A file of which the browser has nothing does.
  await target.open('new', false, OBJECT);
  const again = await target.open('new', false, 5);
  assert.equal(again.size, 5);
  browser.close();
}

// The end of a job ends its files, and the browser learns it. So does a browser that cancels.
{
  const browser = new Browser();
  const { target } = browser;
  const [one, two] = [await target.open('one', false, 2 * OBJECT), await target.open('two', false, 2 * OBJECT)];
  await one.write(0, part(0));
  one.verified(0);
  await settle();
  browser.files.get('one').port.postMessage({ error: 'cancelled' });
  await settle();
  await assert.rejects(one.write(OBJECT, part(1)), /cancelled/);
  await two.write(0, part(0));
  two.verified(0);
  await settle();
  const finishing = assert.rejects(two.finish(), /the job ended/);
  target.end('the job ended');
  await finishing;
  await settle();
  assert.equal(browser.files.get('two').error, 'the job ended');
  assert.deepEqual([target.held, target.queued], [0, 0]);
  browser.close();
}

// A service worker that is gone lets go of its lock, also if the browser has not asked for the file yet.
for (const isTaken of [true, false]) {
  const browser = new Browser();
  const file = await browser.target.open('gone', false, 2 * OBJECT);
  await file.write(0, part(0));
  file.verified(0);
  await settle();
  if (isTaken) {
    await browser.take('gone');
  }
  await file.write(OBJECT, part(1));
  browser.files.get('gone').stop();
  await settle();
  await assert.rejects(file.finish(), /the browser stopped saving it/);
  browser.close();
}

console.log('ok');
