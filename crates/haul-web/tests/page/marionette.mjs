// Firefox for the tests of the page, by its own protocol Marionette: messages of JSON over TCP, each
// after its length and a colon.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { firefoxPath } from './needs.mjs';
import { TIMEOUT, eventually } from './world.mjs';

/** Name of an element in messages (WebDriver, "web element identifier"). */
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** A Firefox with a profile of its own, which accepts the certificate of the server. */
export class Firefox {
  static async launch() {
    const profile = mkdtempSync(join(tmpdir(), 'haul-firefox-'));
    const preferences = { 'marionette.port': 0, 'browser.download.folderList': 2, 'browser.download.dir': join(profile, 'saved') };
    const lines = Object.entries(preferences).map((entry) => `user_pref(${entry.map((each) => JSON.stringify(each)).join(', ')});\n`);
    writeFileSync(join(profile, 'user.js'), lines.join(''));
    // The tests read its console, which needs the access to the system.
    const args = ['--headless', '--no-remote', '--profile', profile, '--marionette', '--remote-allow-system-access'];
    const child = spawn(firefoxPath, args, { env: { ...process.env, HOME: profile }, stdio: 'ignore' });
    const firefox = new Firefox(child, profile);
    try {
      const port = await eventually(() => Number(readFileSync(join(profile, 'MarionetteActivePort'), 'utf8')), 'port of Firefox');
      await firefox.#connect(port);
      const { capabilities } = await firefox.send('WebDriver:NewSession', { acceptInsecureCerts: true, unhandledPromptBehavior: 'accept' });
      firefox.version = capabilities.browserVersion;
      await firefox.send('WebDriver:SetTimeouts', { script: TIMEOUT, pageLoad: TIMEOUT });
      return firefox;
    } catch (error) {
      await firefox.close();
      throw error;
    }
  }

  /**
   * @param {import('node:child_process').ChildProcess} child
   * @param {string} profile
   */
  constructor(child, profile) {
    this.child = child;
    this.profile = profile;
    this.ended = new Promise((resolve) => child.once('exit', resolve));
    this.version = '';
    this.received = Buffer.alloc(0);
    this.last = 0;
    /** Answers that are awaited, by the number of the command. @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
  }

  /** @param {number} port */
  async #connect(port) {
    const socket = connect(port, '127.0.0.1');
    this.socket = socket;
    const lost = () => {
      this.waiting.forEach(({ reject }) => reject(new Error('Firefox has ended')));
      this.waiting.clear();
    };
    socket.on('error', lost).on('close', lost);
    await new Promise((resolve, reject) => {
      // Firefox greets first.
      this.waiting.set(0, { resolve, reject });
      socket.on('data', (data) => this.#take(data));
    });
  }

  /** @param {Buffer} data */
  #take(data) {
    this.received = Buffer.concat([this.received, data]);
    for (let colon = this.received.indexOf(':'); colon > 0; colon = this.received.indexOf(':')) {
      const end = colon + 1 + Number(this.received.toString('latin1', 0, colon));
      if (this.received.length < end) {
        return;
      }
      const message = JSON.parse(this.received.toString('utf8', colon + 1, end));
      this.received = this.received.subarray(end);
      const [, number, error, value] = Array.isArray(message) ? message : [1, 0, null, message];
      const { resolve, reject } = this.waiting.get(number) ?? {};
      this.waiting.delete(number);
      if (error) {
        reject?.(new Error(`${error.error}: ${error.message}`));
      } else {
        resolve?.(value);
      }
    }
  }

  /**
   * Sends a command and returns its result.
   * @param {string} name
   * @param {object} [parameters]
   * @returns {Promise<any>}
   */
  send(name, parameters = {}) {
    this.last += 1;
    const text = JSON.stringify([0, this.last, name, parameters]);
    return new Promise((resolve, reject) => {
      this.waiting.set(this.last, { resolve, reject });
      this.socket?.write(`${Buffer.byteLength(text)}:${text}`);
    });
  }

  /** @param {string} url */
  open(url) {
    return this.send('WebDriver:Navigate', { url });
  }

  reload() {
    return this.send('WebDriver:Refresh');
  }

  /**
   * Runs a function in the page, and returns what its promise gives.
   * @param {(...args: any[]) => any} work
   * @param {any[]} args
   */
  async run(work, ...args) {
    const script = `const done = arguments[arguments.length - 1];
      Promise.resolve((${work}).apply(null, arguments)).then((value) => done({ value }), (error) => done({ error: String(error) }));`;
    const { value } = await this.send('WebDriver:ExecuteAsyncScript', { script, args });
    if (value.error !== undefined) {
      throw new Error(value.error);
    }
    return value.value;
  }

  /**
   * Waits until a function in the page returns something true, and returns it.
   * @param {string} what
   * @param {(...args: any[]) => any} probe
   * @param {any[]} args
   */
  until(what, probe, ...args) {
    return eventually(() => this.run(probe, ...args), what);
  }

  /**
   * Types into an element. An input for files takes paths, in lines.
   * @param {string} selector
   * @param {string} text
   */
  async type(selector, text) {
    const { value } = await this.send('WebDriver:FindElement', { using: 'css selector', value: selector });
    await this.send('WebDriver:ElementSendKeys', { id: value[ELEMENT], text });
  }

  /**
   * Presses keys at once, and releases them. Keys without a character have codes (WebDriver, "keyboard actions").
   * @param {string[]} keys
   */
  press(...keys) {
    const down = keys.map((value) => ({ type: 'keyDown', value }));
    const up = keys.map((value) => ({ type: 'keyUp', value })).reverse();
    return this.send('WebDriver:PerformActions', { actions: [{ type: 'key', id: 'keys', actions: [...down, ...up] }] });
  }

  /**
   * Returns the errors of the console that belong to an origin.
   * @param {string} origin
   * @returns {Promise<string[]>}
   */
  async errors(origin) {
    await this.send('Marionette:SetContext', { value: 'chrome' });
    const script = `return Services.console.getMessageArray()
      .filter((entry) => entry instanceof Ci.nsIScriptError && !(entry.flags & Ci.nsIScriptError.warningFlag))
      .map((entry) => entry.sourceName + ': ' + entry.errorMessage)`;
    const { value } = await this.send('WebDriver:ExecuteScript', { script, args: [] });
    await this.send('Marionette:SetContext', { value: 'content' });
    return value.filter((/** @type {string} */ text) => text.includes(origin));
  }

  async close() {
    this.socket?.destroy();
    this.child.kill('SIGKILL');
    await this.ended;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}
