// A copy between two directories of the server, or to and from another server. The server carries it
// out, and this job follows it.

import { jsonLines } from './json-lines.js';
import { reason } from './requests.js';

/** Failures that are kept with their reasons. */
const FAILURES_MAX = 200;

/** Returns a whole number that is not negative. @param {unknown} value */
const whole = (value) => (Number.isSafeInteger(value) && Number(value) >= 0 ? Number(value) : 0);

/** @param {unknown} value */
const text = (value) => (typeof value === 'string' ? value : '');

/**
 * Copies. Returns how the copy ended, as for the message `ended` of the worker.
 * @param {{direction: 'copy' | 'fetch', lane: {base?: string, token: string, root: number}, ticket?: string,
 *   path?: unknown, names?: unknown[], paths?: unknown[], toRoot?: number, to: unknown}} job paths as
 *   in a JSON body of the server; `lane.root` is the directory of this server, of a copy its source
 * @param {AbortSignal} signal
 * @param {(message: Record<string, any>) => void} tell gets the messages `total` and `progress`
 */
export async function copyOnServer({ direction, lane, ticket, path, names, paths, toRoot, to }, signal, tell) {
  /** @type {{path: string, text: string}[]} */
  const failures = [];
  let failed = 0;
  const counts = { done: 0, same: 0, failed: 0, level: 'none' };
  const source = direction === 'fetch' ? { paths, to_root: lane.root } : { root: lane.root, path, names, to_root: toRoot };
  const body = JSON.stringify({ ...source, to, ticket });
  const headers = { 'X-Haul-Token': lane.token, 'Content-Type': 'application/json' };
  try {
    const response = await fetch(`${lane.base ?? ''}/${direction}`, { method: 'POST', headers, body, signal, cache: 'no-store' });
    if (!response.ok || !response.body) {
      return { ok: 0, text: await reason(response), status: response.status, counts, failures };
    }
    for await (const event of jsonLines(response.body)) {
      switch (event?.event) {
        case 'progress':
          counts.done = Math.max(0, whole(event.files) - failed);
          tell({ type: 'total', files: whole(event.files_found), bytes: whole(event.bytes_found), isWhole: event.walked === true });
          tell({ type: 'progress', bytes: whole(event.bytes), counts: { ...counts, failed }, waits: null, path: '' });
          break;
        case 'failed':
          failed += 1;
          if (failures.length < FAILURES_MAX) {
            failures.push({ path: text(event.path), text: text(event.message) });
          }
          break;
        case 'copied': {
          const { done, same, failed: all, level } = event;
          const result = { done: whole(done), same: whole(same), failed: whole(all), level: text(level) };
          return { ok: Number(event.whole === true), text: text(event.message), counts: result, failures };
        }
        case 'error':
          return { ok: 0, text: text(event.message), counts, failures };
        default:
      }
    }
  } catch (error) {
    if (!signal.aborted) {
      const why = error instanceof Error ? error.message : String(error);
      return { ok: 0, text: `the connection was lost, and the copy stopped: ${why}`, counts, failures };
    }
  }
  return { ok: 0, text: signal.aborted ? '' : 'the connection was lost, and the copy stopped', counts, failures };
}
