// Drives headless Chromium by its DevTools protocol over a pipe. Nothing observes the network: a
// driver that does, such as Playwright, slows transfers several times.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromiumPath } from '../tests/page/needs.mjs';
import { Side } from './link.mjs';

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--ignore-certificate-errors', '--remote-debugging-pipe'];

export class Chromium {
  /**
   * Starts the program with a profile of its own, and opens a page.
   * @param {Side} [side]
   * @param {object} [preferences] of the profile
   */
  static async start(side = new Side(), preferences = {}) {
    const profile = mkdtempSync(join(tmpdir(), 'haul-bench-'));
    mkdirSync(join(profile, 'Default'));
    writeFileSync(join(profile, 'Default/Preferences'), JSON.stringify(preferences));
    const stdio = /** @type {any} */ (['ignore', 'ignore', 'ignore', 'pipe', 'pipe']);
    const child = side.spawn(chromiumPath, [...FLAGS, `--user-data-dir=${profile}`, 'about:blank'], { stdio });
    const browser = new Chromium(child, profile);
    const { targetInfos } = await browser.call('Target.getTargets');
    const { targetId } = targetInfos.find((target) => target.type === 'page');
    browser.session = (await browser.call('Target.attachToTarget', { targetId, flatten: true })).sessionId;
    await browser.call('Page.enable');
    return browser;
  }

  constructor(child, profile) {
    [this.child, this.profile, this.session, this.last] = [child, profile, undefined, 0];
    /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void}>} */
    this.calls = new Map();
    /** @type {Map<string, () => void>} */
    this.events = new Map();
    let text = '';
    child.stdio[4].setEncoding('utf8').on('data', (part) => {
      const messages = (text + part).split('\0');
      text = messages.pop() ?? '';
      messages.forEach((message) => this.#take(JSON.parse(message)));
    });
  }

  #take({ id, method, result, error }) {
    this.events.get(method)?.();
    const call = this.calls.get(id);
    this.calls.delete(id);
    if (call) {
      error ? call.reject(new Error(error.message)) : call.resolve(result);
    }
  }

  call(method, params = {}) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    });
  }

  /** @param {string} address */
  async open(address) {
    const loaded = new Promise((resolve) => this.events.set('Page.loadEventFired', resolve));
    await this.call('Page.navigate', { url: address });
    await loaded;
  }

  /**
   * Runs a function in the page and returns its result.
   * @param {Function} work
   * @param {...any} values
   */
  async run(work, ...values) {
    const expression = `(${work})(...${JSON.stringify(values)})`;
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', {
      expression, awaitPromise: true, returnByValue: true,
    });
    if (exceptionDetails) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value;
  }

  /**
   * Chooses files in an input.
   * @param {string} selector
   * @param {string[]} files
   */
  async choose(selector, files) {
    const { root } = await this.call('DOM.getDocument');
    const { nodeId } = await this.call('DOM.querySelector', { nodeId: root.nodeId, selector });
    await this.call('DOM.setFileInputFiles', { nodeId, files });
  }

  async close() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.call('Browser.close').catch(() => {});
    await ended;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}
