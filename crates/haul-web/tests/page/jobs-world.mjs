// A window with the jobs and the drawer alone, for tests that need no panes. It has the headers of
// the page, so that its content security policy holds here too.

import assert from 'node:assert/strict';
import { Server, Visitor, eventually, withoutFlows } from './world.mjs';

const BODY = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>jobs</title>
<link rel="stylesheet" href="/style.css"><link rel="stylesheet" href="/drawer.css"></head>
<body><main><h1>Jobs</h1><section id="jobs" aria-label="Jobs"></section></main></body></html>`;

/** Runs in the window: functions for the tests. */
function defineTools() {
  window.tools = {
    /** The same bytes as `bytes` of world.mjs. */
    bytes(seed, length) {
      const words = new Uint32Array(Math.ceil(length / 4));
      let state = (seed + 1) * 0x9e3779b1 >>> 0;
      for (let at = 0; at < words.length; at += 1) {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        words[at] = state;
      }
      return new Uint8Array(words.buffer, 0, length);
    },
    file: (name, seed, length) => new File([window.tools.bytes(seed, length)], name, { lastModified: 1_700_000_000_000 }),
    async directory(path) {
      let directory = await navigator.storage.getDirectory();
      for (const part of path.split('/').filter((name) => name !== '')) {
        directory = await directory.getDirectoryHandle(part, { create: true });
      }
      return directory;
    },
    /** Writes a file of OPFS. */
    async plant(path, seed, length) {
      const parts = path.split('/');
      const name = parts.pop();
      const file = await (await window.tools.directory(parts.join('/'))).getFileHandle(name, { create: true });
      const stream = await file.createWritable();
      await stream.write(window.tools.bytes(seed, length));
      await stream.close();
    },
    /** Returns the SHA-256 of each file beneath a directory of OPFS, by its path. */
    async digests(top) {
      const found = {};
      const visit = async (directory, prefix) => {
        for await (const child of directory.values()) {
          if (child.kind === 'directory') {
            await visit(child, `${prefix}${child.name}/`);
          } else if (!child.name.startsWith('.haul-')) {
            const hash = await crypto.subtle.digest('SHA-256', await (await child.getFile()).arrayBuffer());
            found[prefix + child.name] = Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
          }
        }
      };
      await visit(await window.tools.directory(top), '');
      return found;
    },
    /** Waits until a job is in one of these states. */
    reaches: (job, ...states) => new Promise((resolve, reject) => {
      const look = () => states.includes(job.state) && resolve(job.state);
      setTimeout(() => reject(new Error(`the job is ${job.state}: ${job.reason}`)), 45_000);
      job.addEventListener('change', look);
      look();
    }),
    /** Waits until a job has this many bytes. */
    passes: (job, bytes) => new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`the job has ${job.progress.bytes} bytes and is ${job.state}`)), 45_000);
      const look = () => job.progress.bytes >= bytes && resolve(job.progress.bytes);
      job.addEventListener('change', look);
      look();
    }),
    /** Waits until a job has ended. Returns what a test compares. */
    async ended(job) {
      await window.tools.reaches(job, 'ended');
      return { ...job.result, failures: job.failures };
    },
  };
}

/**
 * Opens a window with the jobs.
 * @param {import('./world.mjs').Visitor} visitor
 * @param {import('./world.mjs').Server} server
 * @param {boolean} [signsIn] false for a later window of the visitor
 */
export async function openJobs(visitor, server, signsIn = true) {
  const [base, code] = server.link.split('/#');
  await visitor.context.route(`${base}/harness`, async (route) => {
    const response = await route.fetch({ url: `${base}/`, ignoreHTTPSErrors: true });
    await route.fulfill({ response, body: BODY });
  });
  const page = await visitor.open(`${base}/harness`);
  await startJobs(page, signsIn ? code : null);
  return page;
}

/**
 * Starts the jobs in a window, also after a reload.
 * @param {import('playwright-core').Page} page
 * @param {string | null} [code]
 */
export async function startJobs(page, code = null) {
  await page.evaluate(defineTools);
  await page.evaluate(async (given) => {
    const [api, { Jobs }, { Drawer }] = await Promise.all([import('/api.js'), import('/jobs.js'), import('/drawer.js')]);
    const session = given === null ? await api.session() : await api.signIn(given);
    window.jobs = new Jobs(session);
    // LaneRequests sees only these.
    window.jobs.lanes = 'http';
    window.drawer = new Drawer(document.getElementById('jobs'), window.jobs, () => {});
    await window.jobs.load();
    window.drawer.open(true);
  }, code);
}

/**
 * Returns a function that runs a test with a server and a window of its own. Without flows, a test
 * can hold back and change the requests of an upload. `side` is that of `Server.start`.
 * @param {() => import('playwright-core').Browser} browser
 * @param {{prepare?: (context: import('playwright-core').BrowserContext) => Promise<unknown>}} [options]
 */
export const inWindows = (browser, { prepare } = {}) => async (shares, work, { hasFlows = true, side = {} } = {}) => {
  const server = await Server.start(shares, side);
  const visitor = await Visitor.create(browser());
  try {
    await prepare?.(visitor.context);
    if (!hasFlows) {
      await withoutFlows(visitor.context);
    }
    const lanes = await LaneRequests.create(visitor);
    await work({ server, visitor, lanes, page: await openJobs(visitor, server) });
    assert.deepEqual(visitor.errors, []);
  } finally {
    await visitor.close();
    await server.close();
  }
};

/** Requests of the lanes of a visitor: they are counted, held back and changed here. */
export class LaneRequests {
  /** @param {import('./world.mjs').Visitor} visitor */
  static async create(visitor) {
    const requests = new LaneRequests();
    await visitor.context.route(/\/lane\/[^/]+\/\d+$/, (route) => requests.handle(route).catch(() => {}));
    return requests;
  }

  constructor() {
    this.puts = 0;
    /** Requests that are held back, until `release`. @type {(() => void)[]} */
    this.held = [];
    /** Returns true for a request that is to be held back. @type {(method: string, number: number) => boolean} */
    this.holds = () => false;
    /** Handles a request itself, or returns false. @type {(route: import('playwright-core').Route, method: string, number: number) => Promise<boolean>} */
    this.change = async () => false;
  }

  /** @param {import('playwright-core').Route} route */
  async handle(route) {
    const request = route.request();
    const number = Number(request.url().split('/').pop());
    const method = request.method();
    this.puts += method === 'PUT' ? 1 : 0;
    if (this.holds(method, number)) {
      await new Promise((resolve) => this.held.push(() => resolve(undefined)));
    }
    if (!await this.change(route, method, number)) {
      await route.continue();
    }
  }

  /** Waits until a request is held back. */
  async holding() {
    await eventually(() => this.held.length > 0, 'request that is held back');
  }

  release() {
    this.holds = () => false;
    this.held.splice(0).forEach((go) => go());
  }
}
