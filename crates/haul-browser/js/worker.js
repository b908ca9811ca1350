// A worker that owns the module and runs one job. The page starts one worker for each job.
//
// Messages of the page:
//   {type: 'start', direction: 'upload', roots, to, ...common}
//   {type: 'start', direction: 'download', paths, folder?, ...common}
//   {type: 'stop'}
// Common: {job, object?, level?, wasm, lane}. `job` has 32 hexadecimal digits; the same job
// resumes. `roots` are File objects or handles, `folder` is the handle of a folder that the user
// picked, else files go to OPFS. `wasm` is the URL of the modules. `lane` is
// {kind: 'http', base?, csrf, root?} or {kind: 'webtransport', base?, csrf, root?}.
//
// Messages to the page are the events of the module that it can show (core.js), with the path of
// their file; `reconnecting`; `progress` at most ten times a second; and at the end `ended`.

import { Level, fromHex, loadCore } from './core.js';
import { Download } from './download.js';
import { JobLog } from './job-log.js';
import { HttpLane } from './lane-http.js';
import { WebTransportLane } from './lane-webtransport.js';
import { FolderTarget, PrivateTarget, openLogFile, removeLogFile } from './storage.js';
import { Transfer } from './transfer.js';
import { Upload, reason, walk } from './upload.js';

/** Size of an object in bytes. */
const OBJECT_BYTES = 4 << 20;

/** Interval of `progress`, in milliseconds. */
const PROGRESS = 100;

/** @type {Transfer | null} */
let transfer = null;
let isStopped = false;

self.addEventListener('message', ({ data }) => {
  if (data.type === 'stop') {
    isStopped = true;
    transfer?.stop();
  } else if (data.type === 'start' && !transfer) {
    run(data).catch((error) => self.postMessage({ type: 'ended', ok: 0, text: reason(error) }));
  }
});

/** @param {any} message */
async function run(message) {
  // Two tabs never run one job: both would write the same files.
  await navigator.locks.request(`haul-job-${message.job}`, { ifAvailable: true }, async (lock) => {
    if (!lock) {
      throw new Error('another tab runs this job; close it, or wait until it ends');
    }
    await runLocked(message);
  });
}

/** @param {any} message */
async function runLocked({ direction, job, object = OBJECT_BYTES, level = Level.durable, wasm, lane, ...rest }) {
  const core = await loadCore(wasm);
  const settings = { job: fromHex(job), object, level };
  const settle = () => transfer?.settle();
  const report = (/** @type {any} */ event) => {
    if (event.type !== 'synced' && event.type !== 'present') {
      self.postMessage(event);
    }
  };
  const open = lane.kind === 'http'
    ? () => HttpLane.open(lane.base ?? '', lane.csrf, lane.root)
    : () => WebTransportLane.open(lane.base ?? '', lane.csrf, lane.root);
  let logFile = null;
  let timer;
  let ended;
  try {
    let side;
    if (direction === 'upload') {
      side = new Upload({ ...settings, to: rest.to }, () => walk(rest.roots), report, settle);
    } else {
      logFile = await openLogFile(job);
      const target = rest.folder
        ? new FolderTarget(rest.folder)
        : new PrivateTarget(await navigator.storage.getDirectory(), job);
      side = new Download({ ...settings, paths: rest.paths }, target, new JobLog(logFile), report, settle);
    }
    const running = new Transfer(core, side, open, report);
    transfer = running;
    if (isStopped) {
      running.stop();
    }
    let reported = 0;
    timer = setInterval(() => {
      const bytes = side instanceof Upload ? core.settledBytes() : side.writtenBytes;
      if (bytes !== reported) {
        reported = bytes;
        self.postMessage({ type: 'progress', bytes });
      }
    }, PROGRESS);
    ended = await running.run();
  } finally {
    clearInterval(timer);
    logFile?.close();
  }
  if (logFile && ended.ok && ended.failed === 0) {
    await removeLogFile(job);
  }
  self.postMessage(ended);
}
