// A link between the browser and the server: two network namespaces of `haul-lab link`
// (docs/emulated-link.md), which removes them when this program ends for any reason.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A side of a connection: its address, and the command that runs a program there. */
export class Side {
  /**
   * @param {string} host
   * @param {string[]} within command and arguments before those of the program
   */
  constructor(host = '127.0.0.1', within = []) {
    [this.host, this.within] = [host, within];
  }

  /**
   * Starts a program.
   * @param {string} program
   * @param {string[]} values
   * @param {import('node:child_process').SpawnOptions} options
   */
  spawn(program, values, options) {
    const [first, ...rest] = [...this.within, program, ...values];
    return spawn(first, rest, options);
  }
}

/**
 * Makes a link. Returns its two sides, and the function that removes it.
 * @param {string[]} conditions options of `haul-lab link`
 */
export async function makeLink(conditions) {
  // A process group of its own: a signal to that of this program would end it with the link in place.
  const options = /** @type {const} */ ({ stdio: ['pipe', 'pipe', 'inherit'], detached: true });
  const child = spawn(process.env.HAUL_LAB ?? 'haul-lab', ['link', ...conditions], options);
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const [near, far] = [await lines.next(), await lines.next()].map(({ value, done }) => {
    if (done) {
      throw new Error('haul-lab makes no link');
    }
    const [namespace, host] = value.split(' ');
    return new Side(host, ['ip', 'netns', 'exec', namespace]);
  });
  const close = async () => {
    child.stdin.end();
    await ended;
  };
  return { near, far, close };
}

/**
 * Returns the conditions of a link with a round trip and losses in each direction.
 * @param {string} text for example `30ms,0.1%` or `30ms,0.1%,cubic`
 */
export function conditions(text) {
  const [roundTrip, loss, congestion] = text.split(',');
  const milliseconds = /^([\d.]+)ms$/.exec(roundTrip)?.[1];
  if (!milliseconds || !loss) {
    throw new Error(`not ROUND-TRIP,LOSS[,CONGESTION]: ${text}`);
  }
  return ['--round-trip', milliseconds, '--loss', loss, '--rate', '1G', '--queue', '16M',
    ...(congestion ? ['--congestion', congestion] : [])];
}
