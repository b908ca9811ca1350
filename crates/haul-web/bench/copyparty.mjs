// Measures uploads by the page of `haul serve --web` and by copyparty in turn, over HTTPS on loopback
// in Chromium: the time from the choice of a file to its first MiB at the server and to its end.
//
//   HAUL_BIN=.../haul HAUL_COPYPARTY=.../copyparty node crates/haul-web/bench/copyparty.mjs [--size=MiB] [--rounds=N] [--first=N]
//
// The first time is measured with a sparse file of 10 GiB that starts with data. copyparty hashes a
// file before it sends any of it; the page hashes what it sends. Its end includes the sync of the file
// at the server. copyparty syncs nothing, so that the benchmark syncs its file, and prints this time. Each
// run has a browser of its own, whose network nothing observes: Playwright observes each request, which makes
// the many requests of the page slow.

import { spawn } from 'node:child_process';
import { randomFillSync } from 'node:crypto';
import {
  closeSync, fsync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync, statSync, truncateSync, writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Server, freePort } from '../tests/page/world.mjs';
import { Chromium } from './chromium.mjs';

const options = Object.fromEntries(process.argv.slice(2).map((word) => word.slice(2).split('=')));
const MIB = Number(options.size ?? 512);
const ROUNDS = Number(options.rounds ?? 3);
const FIRST_ROUNDS = Number(options.first ?? ROUNDS);

/** Time between two looks at the files of a server, in milliseconds. */
const LOOK = 4;

const home = mkdtempSync(join(tmpdir(), 'haul-bench-'));
const [large, whole] = [join(home, 'large'), join(home, 'whole')];
writeFileSync(large, randomFillSync(Buffer.alloc(64 << 20)));
truncateSync(large, 10 * 2 ** 30);
for (let at = 0; at < MIB; at += 64) {
  writeFileSync(whole, randomFillSync(Buffer.alloc(Math.min(64, MIB - at) << 20)), { flag: 'a' });
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Returns the files beneath a directory. */
function files(directory) {
  const names = readdirSync(directory, { recursive: true, withFileTypes: true });
  return names.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

/** Waits until a condition on a directory holds. Files can vanish meanwhile. */
async function until(directory, holds) {
  for (;;) {
    try {
      if (holds(files(directory))) {
        return;
      }
    } catch (error) {
      if (error.code !== 'ENOENT') {
        throw error;
      }
    }
    await sleep(LOOK);
  }
}

/** Returns true if a server accepts connections at this port. @param {number} port */
function isListening(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true));
    socket.once('error', () => resolve(false)).once('connect', () => socket.destroy());
  });
}

const hasMiB = (found) => found.some((file) => statSync(file).blocks * 512 >= 1 << 20);

/** Returns the seconds of an action until a promise. */
async function seconds(action, end) {
  const begin = performance.now();
  await action();
  await end();
  return (performance.now() - begin) / 1000;
}

/** Returns the seconds until a file and its directory are durable. */
function syncTime(file) {
  return seconds(() => {}, async () => {
    for (const path of [file, dirname(file)]) {
      const descriptor = openSync(path);
      await promisify(fsync)(descriptor);
      closeSync(descriptor);
    }
  });
}

/** Returns the seconds of the upload, and those of a sync that follows it. */
async function byCopyparty(file, isFirst) {
  const data = join(home, 'copyparty');
  mkdirSync(data);
  const port = await freePort();
  const history = join(home, 'history');
  const args = ['-i', '127.0.0.1', '-p', String(port), '-v', `${data}::rw`, '-q', '--hist', history];
  const child = spawn(process.env.HAUL_COPYPARTY, args, { stdio: 'ignore' });
  const browser = await Chromium.start();
  const address = `https://127.0.0.1:${port}/`;
  while (!await isListening(port)) {
    await sleep(100);
  }
  await browser.open(address);
  await browser.run(async () => {
    while (!document.querySelector('#file1')) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
  // Its scripts load after the page.
  await sleep(1500);
  const start = async () => {
    await browser.choose('#file1', [file]);
    await browser.run(async () => {
      while (!document.querySelector('#modal-ok')) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      document.querySelector('#modal-ok').click();
    });
  };
  const end = () => until(data, isFirst ? hasMiB : (found) => found.some((path) => path.endsWith('/whole')));
  const time = await seconds(start, end);
  const sync = isFirst ? 0 : await syncTime(files(data).find((path) => path.endsWith('/whole')));
  await browser.close();
  child.kill();
  await once(child, 'exit');
  [data, history].forEach((directory) => rmSync(directory, { recursive: true, force: true }));
  return [time, sync];
}

async function byHaul(file, isFirst) {
  const server = await Server.start({ data: {} });
  const browser = await Chromium.start();
  await browser.open(server.link);
  await browser.run(async () => {
    while (document.querySelector('#right .grid')?.ariaBusy !== 'false') {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
  const start = async () => {
    await browser.choose('#file-input', [file]);
    await browser.run(async () => {
      for (;;) {
        const name = document.querySelector('#left .row bdi');
        if (name) {
          name.click();
          break;
        }
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    });
    const key = { key: 'F5', code: 'F5', windowsVirtualKeyCode: 116 };
    await browser.call('Input.dispatchKeyEvent', { type: 'keyDown', ...key });
    await browser.call('Input.dispatchKeyEvent', { type: 'keyUp', ...key });
  };
  const complete = () => browser.run(async () => {
    while (!document.querySelector('#status')?.textContent.includes('is complete')) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });
  const time = await seconds(start, isFirst ? () => until(server.roots.data, hasMiB) : complete);
  await browser.close();
  await server.close();
  return time;
}

try {
  for (const [file, rounds, title] of [[large, FIRST_ROUNDS, 'first MiB of 10 GiB'], [whole, ROUNDS, `${MIB} MiB`]]) {
    const isFirst = file === large;
    for (let round = 0; round < rounds; round += 1) {
      const [[peer, sync], ours] = [await byCopyparty(file, isFirst), await byHaul(file, isFirst)];
      const ratios = [peer, peer + sync].map((time) => (ours / time).toFixed(3)).join(', with the sync ');
      const times = `copyparty ${peer.toFixed(2)} s, its sync ${sync.toFixed(2)} s, haul ${ours.toFixed(2)} s`;
      console.log(`${title}: ${times}, ratio ${ratios}`);
    }
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
process.exit(0);
