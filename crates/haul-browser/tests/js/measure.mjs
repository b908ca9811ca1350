// The size of a download, by the listings of a server that may be hostile.

import assert from 'node:assert/strict';
import { measurePaths } from '../../js/measure.js';

const REQUESTS_MAX = 2000;

/** Measures with these answers. Returns the total and the number of requests. */
async function measure(paths, answer) {
  let requests = 0;
  const total = await measurePaths('', 0, paths, 'token', async (url, { method = 'GET' }) => {
    requests += 1;
    return answer(new URL(url, 'http://server'), method);
  });
  return { ...total, requests };
}

const headOf = (length) => new Response(null, { headers: length === null ? {} : { 'Content-Length': length } });
const refused = () => new Response(null, { status: 400 });
const listingOf = (entries, next = null) => new Response(JSON.stringify({ entries, next }));
const file = (size) => ({ name: 'file', kind: 'file', size });

/** A directory `top` with these pages. */
const measureTop = (pages) => measure(['top'], (_, method) => (method === 'HEAD' ? refused() : pages.shift()));

// Files, and a directory with another in two pages.
const trees = {
  top: { '': () => listingOf([file(1), { name: 'deep', kind: 'directory' }], 'x'), x: () => listingOf([file(2)]) },
  'top/deep': { '': () => listingOf([file(4)]) },
};
assert.deepEqual(
  await measure(['one', 'top/'], ({ searchParams }, method) => {
    const path = searchParams.get('path');
    if (method === 'HEAD') {
      return path === 'one' ? headOf('8') : refused();
    }
    return trees[path][searchParams.get('after')]();
  }),
  { files: 4, bytes: 15, isWhole: true, requests: 5 },
);

// Sizes that are none.
for (const length of [null, '-1', '1.5', '1e3', 'x', '9007199254740993']) {
  const found = await measure(['one'], () => headOf(length));
  assert.deepEqual(found, { files: 1, bytes: 0, isWhole: false, requests: 1 }, String(length));
}
for (const size of [undefined, null, -1, 1.5, '7', {}, 2 ** 53]) {
  const found = await measureTop([listingOf([file(size), file(3)])]);
  assert.deepEqual(found, { files: 2, bytes: 3, isWhole: false, requests: 2 }, String(size));
}
const sum = await measureTop([listingOf([file(Number.MAX_SAFE_INTEGER), file(1)])]);
assert.deepEqual(sum, { files: 2, bytes: Number.MAX_SAFE_INTEGER, isWhole: false, requests: 2 });

// More files than requests, a listing without an end, directories without an end.
const many = Array.from({ length: REQUESTS_MAX + 1 }, (_, index) => `file-${index}`);
assert.deepEqual(await measure(many, () => headOf('1')), { files: 2000, bytes: 2000, isWhole: false, requests: 2000 });
const endless = await measure(['top'], (_, method) => (method === 'HEAD' ? refused() : listingOf([], 'x')));
assert.deepEqual(endless, { files: 0, bytes: 0, isWhole: false, requests: REQUESTS_MAX });
const child = { name: 'd'.repeat(255), kind: 'directory' };
let longest = 0;
const deep = await measure(['top'], ({ href }, method) => {
  longest = Math.max(longest, href.length);
  return method === 'HEAD' ? refused() : listingOf([child]);
});
assert.equal(deep.isWhole, false);
assert.ok(longest < 13_000, `${longest} characters`);

// A page of too many names, and one that the server does not end.
await assert.rejects(measureTop([listingOf(Array(5001).fill(file(1)))]), /more than 5000 names/);
let sent = 0;
const body = new ReadableStream({
  pull(controller) {
    sent += 1;
    controller.enqueue(new Uint8Array(1 << 20).fill(32));
  },
  // The server does not end it.
  cancel: () => new Promise(() => {}),
});
await assert.rejects(measureTop([new Response(body)]), /a listing of more than 16777216 bytes/);
assert.ok(sent <= 20, `${sent} MiB`);

console.log('ok');
