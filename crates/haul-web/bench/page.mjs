// Measures the page of `haul serve --web` in Chromium, over loopback or over a link.
//
//   HAUL_BIN=.../haul HAUL_BARE=.../bare node crates/haul-web/bench/page.mjs [OPTION...] [ROW...]
//
// Rows: http-up, http-down, webtransport-up, webtransport-down: in turn the page and the same bytes
// over the bare path (examples/bare.rs) in the same browser. up, down: in turn the page by HTTP, by
// WebTransport, and by the one that it chooses itself. These rows need no HAUL_BARE.
//
// Options: --size=MiB, --rounds=N, --sides=webtransport,auto for a part of the rows up and down, and
// --sparse=1 for a file without data, which takes no space at the source. --link=30ms,0.1% runs the
// rows up and down over 1 Gbit/s with this round trip and this loss in each direction; HAUL_LAB is
// the path of haul-lab, and a third part is the congestion control of TCP (bbr, cubic), by default
// that of the kernel.
//
// The report has the medians, in MB/s, and their ratio. It also has the largest memory of the tab
// without the pages of files (RssAnon and RssShmem of its process), and the processor time of each
// process in seconds.

import { spawn } from 'node:child_process';
import { copyFileSync, createWriteStream, existsSync, rmSync, statSync, truncateSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { Server, bytes } from '../tests/page/world.mjs';
import { Chromium } from './chromium.mjs';
import { Side, conditions, makeLink } from './link.mjs';
import { tree } from './processes.mjs';

const options = Object.fromEntries(process.argv.slice(2).filter((word) => word.startsWith('--'))
  .map((word) => word.slice(2).split('=')));
const MIB = Number(options.size ?? 512);
const ROUNDS = Number(options.rounds ?? 3);
const SIZE = MIB * 2 ** 20;
const OVER_LINKS = ['up', 'down'];
const SIDES = options.sides?.split(',') ?? ['http', 'webtransport', 'auto'];
const ALL = ['http-up', 'http-down', 'webtransport-up', 'webtransport-down', ...OVER_LINKS];
const chosen = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const rows = chosen.length > 0 ? chosen : options.link ? OVER_LINKS : ALL;
if (options.link && rows.some((row) => !OVER_LINKS.includes(row))) {
  throw new Error('the bare path has no rows over a link');
}

/** Processor time by kind of process. @param {number[]} tops */
function times(tops) {
  const sums = {};
  for (const [at, top] of tops.entries()) {
    for (const { type, time } of tree(top)) {
      const name = at === 0 ? type : 'server';
      sums[name] = (sums[name] ?? 0) + time;
    }
  }
  return sums;
}

/**
 * Measures a function: its time, the processor time, and the largest memory of a renderer in MiB.
 * @param {number[]} tops browser and server
 * @param {() => Promise<any>} work
 */
async function measured(tops, work) {
  const before = times(tops);
  let memory = 0;
  const look = () => {
    const renderers = tree(tops[0]).filter(({ type }) => type === 'renderer');
    memory = Math.max(memory, ...renderers.map((process) => process.memory));
  };
  const looks = setInterval(look, 200);
  const since = performance.now();
  await work();
  const seconds = (performance.now() - since) / 1000;
  clearInterval(looks);
  look();
  const after = times(tops);
  const spent = Object.entries(after).map(([name, time]) => [name, time - (before[name] ?? 0)]);
  const cpu = Object.fromEntries(spent.filter(([, time]) => time >= 0.1).map(([name, time]) => [name, Number(time.toFixed(1))]));
  return { rate: SIZE / 1e6 / seconds, memory, cpu };
}

/** Starts the bare server. Returns its process, port and hash. @param {string} protocol */
async function startBare(protocol) {
  const child = spawn(process.env.HAUL_BARE ?? '', [protocol], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(child.stdout.setEncoding('utf8'), 'data');
  const [port, hash] = line.trim().split(' ');
  return { child, port, hash };
}

// Functions of the page

/** Discards `size` bytes at the bare server, in slices of 8 MiB of which four are in flight. */
async function bareHttpUp(size) {
  const slice = new Uint8Array(8 << 20).fill(104);
  let left = size / slice.length;
  const put = async () => {
    while (left > 0) {
      left -= 1;
      await (await fetch('/0', { method: 'PUT', body: slice })).arrayBuffer();
    }
  };
  await Promise.all([put(), put(), put(), put()]);
}

async function bareHttpDown(size) {
  const slice = 8 << 20;
  let left = size / slice;
  const get = async () => {
    while (left > 0) {
      left -= 1;
      await (await fetch(`/${slice}`, { cache: 'no-store' })).arrayBuffer();
    }
  };
  await Promise.all([get(), get(), get(), get()]);
}

async function bareStream(size, hash, isUpload) {
  const value = Uint8Array.from(hash.match(/../g), (pair) => parseInt(pair, 16));
  const transport = new WebTransport(location.origin, { serverCertificateHashes: [{ algorithm: 'sha-256', value }] });
  await transport.ready;
  const { readable, writable } = await transport.createBidirectionalStream();
  const writer = writable.getWriter();
  if (isUpload) {
    await writer.write(new Uint8Array([85]));
    for (let at = 0; at < size; at += 4 << 20) {
      await writer.write(new Uint8Array(4 << 20));
    }
    await writer.close();
  } else {
    const head = new Uint8Array(9);
    head[0] = 68;
    new DataView(head.buffer).setBigUint64(1, BigInt(size), true);
    await writer.write(head);
  }
  const reader = readable.getReader({ mode: 'byob' });
  let read = 0;
  for (let buffer = new ArrayBuffer(1 << 20); ;) {
    const { value: piece, done } = await reader.read(new Uint8Array(buffer));
    read += piece?.length ?? 0;
    if (done) {
      break;
    }
    buffer = piece.buffer;
  }
  transport.close();
  if (read !== (isUpload ? 1 : size)) {
    throw new Error(`received ${read} bytes`);
  }
}

/** Runs a job of the page and waits for its end. */
async function runJob(direction, lanes, name) {
  const [{ Jobs }, api] = await Promise.all([import('/jobs.js'), import('/api.js')]);
  window.benchJobs ??= new Jobs(await api.session());
  window.benchJobs.lanes = lanes;
  const [root] = window.benchJobs.session.roots;
  const job = direction === 'up'
    ? window.benchJobs.upload({ roots: [...document.querySelector('#bench').files], root: root.id, to: '', title: name })
    : window.benchJobs.download({ root: root.id, paths: [name], folder: null, title: name });
  const since = performance.now();
  let first = 0;
  const paths = [];
  await new Promise((resolve, reject) => {
    job.addEventListener('change', () => {
      const now = performance.now() - since;
      first ||= job.progress.bytes > 0 ? now : 0;
      if (job.progress.path && job.progress.path !== paths.at(-1)?.split(' ')[0]) {
        paths.push(`${job.progress.path} from ${(now / 1000).toFixed(1)} s, ${Math.round(job.progress.bytes / 1e6)} MB`);
      }
      if (job.state === 'ended' || job.state === 'paused') {
        const isDone = job.result?.ok && (lanes === 'auto' || job.progress.path === lanes);
        isDone ? resolve() : reject(new Error(`${job.state}: ${job.reason} ${job.result?.text} over ${job.progress.path}`));
      }
    });
  });
  const { waits } = job.progress;
  job.forget();
  const top = await navigator.storage.getDirectory();
  await top.removeEntry(name).catch(() => {});
  return { paths, first, waits };
}

/** Returns the median. @param {number[]} values */
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Opens the page of a server that has just started, and prepares a job. Returns the job. */
async function prepare(browser, direction, lanes) {
  await server.kill();
  rmSync(direction === 'up' ? target : join(server.home, 'none'), { force: true });
  await server.run();
  await browser.open(server.link);
  await browser.run(async () => {
    while (document.querySelector('#right .grid')?.ariaBusy !== 'false') {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
  if (direction === 'up') {
    await browser.run(() => {
      document.body.append(Object.assign(document.createElement('input'), { type: 'file', id: 'bench' }));
    });
    await browser.choose('#bench', [source]);
  } else if (!existsSync(target)) {
    copyFileSync(source, target);
  }
  return async () => {
    const { paths, ...waited } = await browser.run(runJob, direction, lanes, 'source.bin');
    // Milliseconds until bytes were durable, and those that the job waited.
    console.log(`  ${paths.join('; ')} ${JSON.stringify(waited, (_, value) => typeof value === 'number' ? Math.round(value) : value)}`);
  };
}

/** Measures one run of a row. @param {string} row @param {string} side */
async function run(row, side) {
  const direction = row.split('-').at(-1);
  // A browser of its own for each run, so that none inherits the memory of another.
  const browser = await Chromium.start(near);
  try {
    let work;
    if (side === 'bare') {
      await browser.open(`https://127.0.0.1:${bare.port}/`);
      work = () => row.startsWith('http')
        ? browser.run(direction === 'up' ? bareHttpUp : bareHttpDown, SIZE)
        : browser.run(bareStream, SIZE, bare.hash, direction === 'up');
    } else {
      work = await prepare(browser, direction, side === 'page' ? row.split('-')[0] : side);
    }
    const top = side === 'bare' ? bare.child.pid : server.child.pid;
    const result = await measured([browser.child.pid, top], work);
    if (side !== 'bare' && direction === 'up' && statSync(target).size !== SIZE) {
      throw new Error('the upload is incomplete');
    }
    console.log(`${row} ${side} ${result.rate.toFixed(1)} MB/s, ${result.memory.toFixed(0)} MiB, ${JSON.stringify(result.cpu)}`);
    return result;
  } finally {
    await browser.close();
  }
}

const bare = rows.every((row) => OVER_LINKS.includes(row)) ? null : await startBare(options.bare ?? 'h2');
const link = options.link ? await makeLink(conditions(options.link)) : null;
const near = link?.near ?? new Side();
const server = await Server.start(undefined, link?.far ?? new Side());
process.once('exit', () => [bare?.child, server.child].forEach((child) => child?.kill('SIGKILL')));
['SIGINT', 'SIGTERM'].forEach((signal) => process.once(signal, () => process.exit(1)));
const source = join(server.home, 'source.bin');
const target = join(server.roots.data, 'source.bin');
const written = createWriteStream(source);
for (let part = 0; part < MIB && !options.sparse; part += 1) {
  written.write(bytes(part, 1 << 20)) || await once(written, 'drain');
}
await new Promise((resolve) => written.end(resolve));
truncateSync(source, SIZE);

try {
  for (const row of rows) {
    const sides = OVER_LINKS.includes(row) ? SIDES : ['bare', 'page'];
    const found = Object.fromEntries(sides.map((side) => [side, []]));
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const side of sides) {
        found[side].push(await run(row, side));
      }
    }
    const rates = sides.map((side) => median(found[side].map(({ rate }) => rate)));
    const memory = median(found[sides.at(-1)].map((result) => result.memory));
    // The last side is compared with the best one of the others.
    const ratio = rates.at(-1) / Math.max(...rates.slice(0, -1));
    const named = sides.map((side, at) => `${side} ${rates[at].toFixed(0)}`).join(', ');
    console.log(`= ${row}: ${named} MB/s, ratio ${ratio.toFixed(2)}, the tab ${memory.toFixed(0)} MiB`);
  }
} finally {
  await server.close();
  bare?.child.kill();
  await link?.close();
}
