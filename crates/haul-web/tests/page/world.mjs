// A server with temporary roots and a browser that is signed in, for the tests of the page.
//
//   HAUL_BIN=.../haul node --test FILE.test.mjs
//
// HAUL_BIN is the binary. HAUL_SHOTS is a directory for screenshots; without it there are none. With
// HAUL_PAGE_SOURCES=1, scripts, styles and modules come from this repository and not from the binary, so that
// a change of them needs no build.

import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromiumPath, driver } from './needs.mjs';

/** Time for an event, in milliseconds: a test waits for events, and fails after this time. */
export const TIMEOUT = 45_000;

/**
 * Returns bytes that depend on a seed only, without a period.
 * @param {number} seed
 * @param {number} length
 */
export function bytes(seed, length) {
  const words = new Uint32Array(Math.ceil(length / 4));
  let state = (seed + 1) * 0x9e3779b1 >>> 0;
  for (let at = 0; at < words.length; at += 1) {
    // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[at] = state;
  }
  return Buffer.from(words.buffer, 0, length);
}

/** @param {Uint8Array} data */
export const sha256 = (data) => createHash('sha256').update(data).digest('hex');

/**
 * Writes a file, with its directories.
 * @param {string} path
 * @param {Uint8Array | string} data
 */
export function write(path, data) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, data);
}

/**
 * Returns the SHA-256 of each file beneath a directory, by its path.
 * @param {string} top
 * @returns {Record<string, string>}
 */
export function digests(top) {
  const found = readdirSync(top, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = found.map((entry) => join(entry.parentPath ?? entry.path, entry.name));
  return Object.fromEntries(paths.sort().map((path) => [relative(top, path), sha256(readFileSync(path))]));
}

/** Returns a port of TCP that is free now. */
export function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}

/** A server on roots beneath a temporary directory. It can be killed and started again. */
export class Server {
  /**
   * @param {Record<string, {access?: 'read' | 'write' | 'both', quota?: string, dir?: string}>} shares
   *   the roots by their names; `dir` is a directory that exists already
   * @param {{host?: string, within?: string[], settings?: string[]}} [side] address, the command before that of
   *   the program, and further lines of its configuration
   */
  static async start(shares = { data: {} }, { host = '127.0.0.1', within = [], settings = [] } = {}) {
    const home = mkdtempSync(join(tmpdir(), 'haul-page-'));
    const lines = [`identity = "${home}/identity.pem"`, 'listen = ["127.0.0.1:0"]', `state-dir = "${home}/state"`,
      `web = "${host}:${await freePort()}"`, `web-link = "${home}/link"`, 'web-peers = true', ...settings];
    const roots = {};
    for (const [name, { access = 'both', quota, dir }] of Object.entries(shares)) {
      roots[name] = dir ?? join(home, name);
      mkdirSync(roots[name], { recursive: true });
      lines.push('[[share]]', `root = "${roots[name]}"`, `ticket = "${home}/${name}.ticket"`, `access = "${access}"`);
      lines.push(...(quota ? [`quota = "${quota}"`] : []));
    }
    writeFileSync(join(home, 'serve.toml'), `${lines.join('\n')}\n`);
    const server = new Server(home, roots, within);
    await server.run();
    return server;
  }

  /**
   * @param {string} home
   * @param {Record<string, string>} roots directories by name
   * @param {string[]} within command before that of the program
   */
  constructor(home, roots, within) {
    this.home = home;
    this.roots = roots;
    this.within = within;
    this.log = '';
    this.link = '';
  }

  /** Starts the program, on the same port each time. */
  async run() {
    const binary = process.env.HAUL_BIN;
    assert.ok(binary, 'HAUL_BIN is the path of haul');
    rmSync(join(this.home, 'link'), { force: true });
    const env = { ...process.env, XDG_STATE_HOME: join(this.home, 'state') };
    const [program, ...values] = [...this.within, binary, 'serve', '--config', join(this.home, 'serve.toml')];
    const child = spawn(program, values, { env, stdio: ['ignore', 'ignore', 'pipe'] });
    this.child = child;
    this.ended = new Promise((resolve) => child.once('exit', resolve));
    await new Promise((resolve, reject) => {
      let printed = '';
      child.stderr.setEncoding('utf8').on('data', (text) => {
        printed += text;
        this.log += text;
        // The server prints this line before it writes the link, and accepts connections after that.
        if (printed.includes('serving browsers on')) {
          resolve(undefined);
        }
      });
      child.once('exit', (code) => reject(new Error(`the server ended with ${code}: ${printed}`)));
    });
    this.link = await eventually(() => readFileSync(join(this.home, 'link'), 'utf8').trim(), 'the link');
  }

  /**
   * Ends the program, by default at once, as a power cut does.
   * @param {NodeJS.Signals} signal
   */
  async kill(signal = 'SIGKILL') {
    this.child?.kill(signal);
    await this.ended;
  }

  async close() {
    await this.kill();
    rmSync(this.home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/**
 * Waits until a function returns something true, and returns it. Failures of the function count as not yet.
 * @template T
 * @param {() => T | Promise<T>} probe
 * @param {string} what
 * @returns {Promise<NonNullable<T>>}
 */
export async function eventually(probe, what) {
  let last;
  for (const end = Date.now() + TIMEOUT; Date.now() < end;) {
    try {
      const found = await probe();
      if (found) {
        return found;
      }
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`no ${what} within ${TIMEOUT} ms`, { cause: last });
}

/** Makes `showDirectoryPicker` return a directory of OPFS, because a test cannot use the dialog. */
function pickPrivateDirectory() {
  window.showDirectoryPicker = async () => {
    const top = await navigator.storage.getDirectory();
    return top.getDirectoryHandle('picked', { create: true });
  };
}

/** Returns where this repository has a file of the page. @param {string} pathname of its address */
export function sourceOf(pathname) {
  const crates = fileURLToPath(new URL('../../..', import.meta.url));
  return pathname.startsWith('/client/')
    ? join(crates, 'haul-browser', pathname.endsWith('.wasm') ? 'wasm' : 'js', pathname.slice('/client/'.length))
    : join(crates, 'haul-web/page', pathname);
}

/** Headers of scripts that a test serves. */
export const ISOLATED = { 'Cross-Origin-Embedder-Policy': 'require-corp' };

/** Answers a request for a file of the page from this repository. @param {import('playwright-core').Route} route */
async function fromSources(route) {
  await route.fulfill({ path: sourceOf(new URL(route.request().url()).pathname), headers: ISOLATED });
}

/**
 * Lets lanes over HTTP send pieces only: a test sees no body that is written while it is sent.
 * @param {import('playwright-core').BrowserContext} context
 */
export const withoutFlows = (context) => withClient(context, 'lane-http.js', 'hasFlows = canStreamBodies()', 'hasFlows = false');

/**
 * Replaces text of a script of the client.
 * @param {import('playwright-core').BrowserContext} context
 * @param {string} name @param {string} from @param {string} to
 */
export async function withClient(context, name, from, to) {
  await context.route(`**/client/${name}`, async (route) => {
    const text = readFileSync(sourceOf(`/client/${name}`), 'utf8');
    const body = text.replace(from, to);
    assert.notEqual(body, text);
    await route.fulfill({ body, contentType: 'text/javascript', headers: ISOLATED });
  });
}

/**
 * Starts Chromium. Its contexts accept the certificate of the server, as a user does once.
 * @param {string} [executablePath]
 * @param {string[]} [flags]
 */
export async function launch(executablePath = chromiumPath, flags = []) {
  // Chromium needs a sandbox that root has not.
  const args = [...flags, '--no-sandbox', '--disable-background-networking', '--disable-component-update'];
  return driver().launch({ executablePath, args });
}

/** A browser with one visitor: windows of one context have the same storage. */
export class Visitor {
  /**
   * @param {import('playwright-core').Browser} browser
   * @param {object} [options] of the context
   */
  static async create(browser, options = {}) {
    const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, ...options });
    context.setDefaultTimeout(TIMEOUT);
    await context.addInitScript(pickPrivateDirectory);
    if (process.env.HAUL_PAGE_SOURCES === '1') {
      await context.route(/\.(js|css|wasm)$/, fromSources);
    }
    return new Visitor(context);
  }

  /** @param {import('playwright-core').BrowserContext} context */
  constructor(context) {
    this.context = context;
    /** Errors of pages: a test that expects none checks that this is empty. @type {string[]} */
    this.errors = [];
  }

  /**
   * Opens a window with the page. The link signs in; the address without a code is that of a later visit.
   * @param {string} address
   */
  async open(address) {
    const page = await this.context.newPage();
    page.on('pageerror', (error) => this.errors.push(String(error)));
    page.on('dialog', (dialog) => dialog.accept().catch(() => {}));
    await page.goto(address);
    return page;
  }

  /**
   * Signs in, and waits until the page shows the files.
   * @param {Server} server
   */
  async signIn(server) {
    const page = await this.open(server.link);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    return page;
  }

  async close() {
    await this.context.close();
  }
}

/**
 * Takes a screenshot if HAUL_SHOTS is set.
 * @param {import('playwright-core').Page} page
 * @param {string} name
 */
export async function shot(page, name) {
  if (process.env.HAUL_SHOTS) {
    mkdirSync(process.env.HAUL_SHOTS, { recursive: true });
    await page.screenshot({ path: join(process.env.HAUL_SHOTS, `${name}.png`) });
  }
}
