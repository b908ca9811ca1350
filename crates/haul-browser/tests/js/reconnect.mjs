// When a job connects again, and how it chooses its lanes. The module and the lanes are simulated.

import assert from 'node:assert/strict';
import { LaneChooser } from '../../js/lane-chooser.js';
import { LaneLost, LaneRefused } from '../../js/lane.js';
import { Transfer } from '../../js/transfer.js';

const DELAYS = { reconnect: 1, reconnectMax: 1, tick: 1, close: 10 };

/** A lane that says nothing until it is closed. */
function silentLane({ isStuck = false } = {}) {
  let close;
  const closed = new Promise((resolve) => {
    close = resolve;
  });
  const lost = () => closed.then(() => Promise.reject(new LaneLost('closed')));
  return {
    take: (bytes) => (isStuck ? 0 : bytes.length),
    space: lost,
    flush() {},
    async* pieces() {
      await closed;
    },
    finish: async () => {},
    close,
  };
}

/** Runs a job whose sessions end with these texts; an empty one is success. Returns its end and number of sessions. */
async function run(texts) {
  let sessions = 0;
  let isTold = true;
  const core = {
    output: () => null,
    nextEvent() {
      if (isTold) {
        return null;
      }
      isTold = true;
      const text = texts[sessions - 1];
      return { type: 'ended', ok: text === '' ? 1 : 0, text, done: 0, same: 0, failed: 0, unread: 0, bytes: 0, again: 0 };
    },
    tick() {},
    laneLost() {},
    stop() {},
  };
  const direction = {
    start() {
      sessions += 1;
      isTold = false;
    },
    handle() {},
    continue() {},
    isAtStorage: false,
    end: async () => {},
    fail() {},
  };
  const ended = await new Transfer(core, direction, async () => silentLane(), () => {}, DELAYS).run();
  return [ended.ok, ended.text, sessions];
}

// Texts of the module and of the server after which another session continues the job.
for (const text of [
  'the server is silent; connect again to resume',
  'cannot continue: the checksum of a frame is wrong; connect again to resume',
  'cannot start the job: the server does not answer; connect again',
  'the server refuses the job: busy: the job is held by another session; wait for it to finish, or stop it',
]) {
  assert.deepEqual(await run([text, text, '']), [1, '', 3], text);
}
for (const text of ['the server refuses the job: denied: the ticket allows only fetches', 'stopped']) {
  assert.deepEqual(await run([text, '']), [0, text, 1]);
}

// A job on a lane that is stuck can be stopped.
{
  let started;
  const isStarted = new Promise((resolve) => {
    started = resolve;
  });
  let isLost = false;
  const core = {
    output: () => new Uint8Array(1),
    outputSent() {},
    nextEvent() {
      if (!isLost) {
        return null;
      }
      isLost = false;
      return { type: 'ended', ok: 0, text: 'connection lost; connect again to resume', done: 0, bytes: 0 };
    },
    tick() {},
    laneLost() {
      isLost = true;
    },
    stop() {},
  };
  const direction = { start: started, handle() {}, continue() {}, isAtStorage: false, end: async () => {}, fail() {} };
  const transfer = new Transfer(core, direction, async () => silentLane({ isStuck: true }), () => {}, DELAYS);
  const running = transfer.run();
  await isStarted;
  transfer.stop();
  const { ok, text } = await running;
  assert.deepEqual([ok, text], [0, 'stopped']);
}

/** Opens two lanes of a job one after the other. Returns their paths, with `!` for a failure. */
async function paths(kind, { far = 50, tcp = 'cubic', has = true, supported = true, direction = 'download', webtransport = async () => silentLane() } = {}) {
  const openers = {
    http: async () => silentLane(),
    webtransport,
    probe: async () => ({ time: far, congestion: tcp }),
    isSupported: () => supported,
    fetch: async () => new Response(),
  };
  const chooser = new LaneChooser({ kind, token: '', webtransport: has, direction }, openers, 20);
  const found = [];
  for (let lane = 0; lane < 2; lane += 1) {
    await chooser.open().then(() => found.push(chooser.path), (error) => found.push(`!${error.status}`));
  }
  return found.join(' ');
}

const refused = (status) => async () => {
  throw new LaneRefused('refused', status);
};
assert.equal(await paths('http'), 'http http');
assert.equal(await paths('webtransport'), 'webtransport webtransport');
assert.equal(await paths('webtransport', { webtransport: refused(404) }), '!404 !404');
// A lane that was lost is followed by one over HTTP.
assert.equal(await paths('auto'), 'webtransport http');
assert.equal(await paths('auto', { far: 1 }), 'http http');
// A server whose TCP keeps its rate.
assert.equal(await paths('auto', { tcp: 'bbr' }), 'http http');
assert.equal(await paths('auto', { has: false }), 'http http');
assert.equal(await paths('auto', { supported: false }), 'http http');
assert.equal(await paths('auto', { webtransport: refused(404) }), 'http http');
assert.equal(await paths('auto', { webtransport: refused(401) }), '!401 http');
// UDP that is blocked without an answer.
assert.equal(await paths('auto', { webtransport: () => new Promise(() => {}) }), 'http http');

// An upload.
assert.equal(await paths('auto', { direction: 'upload' }), 'http http');

// Regression: a lane whose end did not reach the server kept the job from the next lane for a minute.
{
  const asked = [];
  let isReachable = true;
  const unless = (value) => (isReachable ? value : Promise.reject(new LaneLost('no connection')));
  let lanes = 0;
  const openers = {
    http: async () => unless({ ...silentLane(), url: `/lane/${lanes += 1}` }),
    fetch: async (url, { method }) => {
      asked.push(`${method} ${url}`);
      return unless(new Response());
    },
  };
  const chooser = new LaneChooser({ kind: 'http', token: '' }, openers);
  chooser.remove('/lane/0');
  await chooser.open();
  isReachable = false;
  await assert.rejects(chooser.open(), LaneLost);
  isReachable = true;
  await chooser.open();
  assert.deepEqual(asked, ['DELETE /lane/0', 'DELETE /lane/1', 'DELETE /lane/1']);
}

console.log('ok');
