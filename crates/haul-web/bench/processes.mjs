// Memory and processor time of the processes of a browser.

import { readFileSync, readdirSync } from 'node:fs';

/** Ticks of the processor's clock per second, which /proc counts in. */
const TICKS = 100;

/** Returns the processes that descend from one. @param {number} top */
export function tree(top) {
  const stats = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).flatMap((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      const type = /--utility-sub-type=([\w.]+)/.exec(command)?.[1].split('.')[0] ?? /--type=([\w-]+)/.exec(command)?.[1];
      const status = readFileSync(`/proc/${name}/status`, 'utf8');
      const kib = (/** @type {string} */ field) => Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)?.[1] ?? 0);
      const memory = (kib('RssAnon') + kib('RssShmem')) / 1024;
      const time = (Number(fields[11]) + Number(fields[12])) / TICKS;
      return [{ id: Number(name), parent: Number(fields[1]), type: type ?? 'browser', memory, time }];
    } catch {
      return [];
    }
  });
  const found = new Set([top]);
  for (let count = 0; count !== found.size;) {
    count = found.size;
    stats.filter(({ parent }) => found.has(parent)).forEach(({ id }) => found.add(id));
  }
  return stats.filter(({ id }) => found.has(id));
}
