// The page in Firefox, with lanes over HTTP.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Firefox } from './marionette.mjs';
import { Server, bytes, digests, eventually, sha256, write } from './world.mjs';

const LARGE = 20_000_000;

/** More than arrives between a report of progress and the pause that follows. */
const LONG = 200_000_000;

const [CONTROL, F5] = ['\ue009', '\ue035'];

/** @type {Server} */
let server;
/** @type {Firefox} */
let firefox;
before(async () => {
  server = await Server.start({ data: {} });
  firefox = await Firefox.launch();
});
after(async () => {
  await firefox?.close();
  await server?.close();
});

/** Waits until the page is ready for keys. */
const ready = () => firefox.until('page', () => document.activeElement === document.querySelector('#right .grid'));

/** Waits until a pane has these names. @param {'left' | 'right'} side @param {string[]} names */
const names = (side, names) => firefox.until(`${names} on the ${side}`, (side, names) => {
  const shown = document.querySelectorAll(`#${side} .space .row:not([hidden]) bdi`);
  return JSON.stringify([...shown].map((name) => name.textContent).sort()) === JSON.stringify(names);
}, side, names);

/** Waits until the job with this title is in a state. @param {string} title @param {string} state */
const jobIs = (title, state) => eventually(async () => {
  const shown = await firefox.run((title) => {
    const row = [...document.querySelectorAll('.job')].find((job) => job.querySelector('strong').textContent === title);
    return row && [row.querySelector('.job-state').textContent, row.querySelector('.job-numbers').textContent];
  }, title);
  assert.ok(shown?.[0].startsWith(state), String(shown));
  return shown;
}, `job ${title} that is ${state}`);

/** Selects an entry of the right pane when it is listed. @param {string} name */
const select = (name) => firefox.until(name, (name) => {
  const rows = [...document.querySelectorAll('#right .space .row')];
  const row = rows.find((row) => row.querySelector('bdi').textContent === name);
  row?.click();
  document.querySelector('#right .grid').focus();
  return row !== undefined;
}, name);

/** Starts a download of the selected entry. @param {'private' | 'saves'} place that the dialog offers */
const download = async (place) => {
  await firefox.press(F5);
  await firefox.until('question', (place) => {
    const button = document.querySelector(`dialog button[value=${place}]`);
    button?.click();
    return button !== null;
  }, place);
};

/** Returns the SHA-256 of a file in the storage of the browser. @param {string} name */
const stored = (name) => firefox.run(async (name) => {
  const file = await (await (await navigator.storage.getDirectory()).getFileHandle(name)).getFile();
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', await file.arrayBuffer()));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}, name);

test('the link signs in, and the panes list both sides', async (t) => {
  t.diagnostic(`Firefox ${firefox.version}`);
  write(join(server.roots.data, 'there/file'), 'x');
  write(join(server.roots.data, 'down'), bytes(2, LARGE));
  await firefox.open(server.link);
  await ready();
  // "Automatic" depends on the round trip.
  await firefox.run(() => localStorage.setItem('haul-lanes', 'http'));
  await names('right', ['down', 'there']);
  // The code must not stay in the address.
  assert.equal(await firefox.run(() => location.hash), '');
});

test('chosen files and folders are uploaded, and are durable', async () => {
  const source = join(server.home, 'source');
  write(join(source, 'one'), bytes(1, LARGE));
  write(join(source, 'empty'), '');
  write(join(source, 'folder/deep/two'), 'second');
  await firefox.type('#file-input', ['one', 'empty'].map((name) => join(source, name)).join('\n'));
  await names('left', ['empty', 'one']);
  // No driver can use the dialog for folders. Its input has files with paths.
  await firefox.run(() => {
    const file = new File([new TextEncoder().encode('second')], 'two');
    Object.defineProperty(file, 'webkitRelativePath', { value: 'folder/deep/two' });
    const input = document.querySelector('#folder-input');
    Object.defineProperty(input, 'files', { value: [file], configurable: true });
    input.dispatchEvent(new Event('change'));
    delete input.files;
  });
  await names('left', ['empty', 'folder', 'one']);
  await firefox.press(CONTROL, 'a');
  await firefox.press(F5);
  const [, numbers] = await jobIs('3 entries', 'Complete');
  assert.match(numbers, /all durable/);
  await names('right', ['down', 'empty', 'folder', 'one', 'there']);
  const { down, 'there/file': file, ...uploaded } = digests(server.roots.data);
  assert.deepEqual(uploaded, digests(source));
  assert.ok(down && file);
});

/** Regression: Firefox reads a changed file, and the mixture of both contents was durable. */
test('a file that is rewritten during its upload fails', async () => {
  const path = join(server.home, 'rewritten');
  write(path, bytes(7, LONG));
  await firefox.type('#file-input', path);
  await names('left', ['empty', 'folder', 'one', 'rewritten']);
  await firefox.run(() => {
    const observer = new MutationObserver(() => {
      const bar = document.querySelector('[role=progressbar][aria-label="Upload of rewritten"]');
      if (Number(bar?.getAttribute('aria-valuenow')) >= 5) {
        document.querySelector('[aria-label="Pause: Upload of rewritten"]').click();
        observer.disconnect();
      }
    });
    observer.observe(document.querySelector('#jobs'), { subtree: true, childList: true, attributes: true });
    const row = [...document.querySelectorAll('#left .space .row')].find((row) => row.querySelector('bdi').textContent === 'rewritten');
    row.click();
    document.querySelector('#left .grid').focus();
  });
  await firefox.press(F5);
  await jobIs('rewritten', 'Paused');
  write(path, bytes(8, LONG));
  await firefox.run(() => document.querySelector('[aria-label="Resume: Upload of rewritten"]').click());
  await jobIs('rewritten', 'Not complete');
  assert.ok(!existsSync(join(server.roots.data, 'rewritten')));
});

test('a download goes to the storage of the browser, and is durable', async () => {
  await select('down');
  await download('private');
  const [, numbers] = await jobIs('down', 'Complete');
  assert.match(numbers, /all durable/);
  assert.equal(await stored('down'), sha256(bytes(2, LARGE)));
  await names('left', ['down']);
});

test('a download replaces a file of the storage', async () => {
  write(join(server.roots.data, 'down'), bytes(4, 100));
  await firefox.reload();
  await ready();
  await select('down');
  await download('private');
  await firefox.until('question', () => document.querySelector('dialog button[value=replace]'));
  await firefox.run(() => document.querySelector('dialog button[value=replace]').click());
  await eventually(async () => assert.equal(await stored('down'), sha256(bytes(4, 100))) ?? true, 'new file');
});

test('a download resumes after a reload', async () => {
  write(join(server.roots.data, 'long'), bytes(5, LONG));
  await firefox.reload();
  await ready();
  // Pauses the job when a part has arrived.
  await firefox.run(() => {
    const pause = () => {
      const bar = document.querySelector('[role=progressbar][aria-label="Download of long"]');
      if (Number(bar?.getAttribute('aria-valuenow')) >= 5) {
        document.querySelector('[aria-label="Pause: Download of long"]').click();
        observer.disconnect();
      }
    };
    const observer = new MutationObserver(pause);
    observer.observe(document.querySelector('#jobs'), { subtree: true, childList: true, attributes: true });
  });
  await select('long');
  await download('private');
  await jobIs('long', 'Paused');
  await firefox.reload();
  await ready();
  // Rows are drawn while the drawer is open.
  await firefox.run(() => document.querySelector('.drawer-toggle').click());
  await jobIs('long', 'Paused');
  const before = server.log.length;
  await firefox.run(() => document.querySelector('[aria-label="Resume: Download of long"]').click());
  await jobIs('long', 'Complete');
  assert.equal(await stored('long'), sha256(bytes(5, LONG)));
  // Bytes that the page had verified are not sent again.
  const [, amount] = await eventually(() => / ([\d.]+) MiB already transferred/.exec(server.log.slice(before)), 'end of the session');
  assert.ok(Number(amount) >= 4, server.log);
});

test('the console has no errors', async () => {
  const { origin } = new URL(server.link);
  assert.deepEqual(await firefox.errors(origin), []);
  // The list does contain those of the page.
  await firefox.run(() => {
    setTimeout(() => {
      throw new Error('made by the test');
    });
  });
  await eventually(async () => (await firefox.errors(origin)).some((text) => text.includes('made by the test')), 'error');
});

test('a download goes to the downloads of the browser', async () => {
  write(join(server.roots.data, 'saved'), bytes(6, LARGE));
  // Firefox reports the answer of the server to the first request of the frame.
  await firefox.reload();
  await ready();
  await select('saved');
  await download('saves');
  const [, numbers] = await jobIs('saved', 'Complete');
  assert.match(numbers, /all verified/);
  // Firefox reserves the name by an empty file, and stores the last bytes after the end of the job.
  const expected = sha256(bytes(6, LARGE));
  await eventually(() => sha256(readFileSync(join(firefox.profile, 'saved/saved'))) === expected, 'file on the disk');
});
