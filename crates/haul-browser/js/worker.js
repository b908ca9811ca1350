// A worker that owns the module and runs one job. The page starts one worker for each job.
//
// Messages of the page:
//   {type: 'start', direction: 'upload', roots, to, compares?, ...common}
//   {type: 'start', direction: 'download', paths, folder?, saves?, ...common}
//   {type: 'start', direction: 'copy', path, names, toRoot?, ticket?, to, ...common}
//   {type: 'start', direction: 'fetch', ticket, paths, to, ...common}   server-copy.js
//   {type: 'stop'}
// Common: {job, about, staleLane?, object?, level?, moves?, wasm, lane}. `job` has 32 hexadecimal digits;
// the same job resumes. `about` has the texts `root` and `run` of the waybill. `roots` are File objects or handles, `folder` is the handle of a folder that the user
// picked, else files go to OPFS, or into the list of downloads of the browser if `saves` is set. `wasm` is the URL of the modules. `lane` is
// {kind, base?, token, root?, webtransport?}: lane-chooser.js.
//
// Messages to the page:
//   {type: 'held'}           another tab runs this job; this worker is done
//   {type: 'started', resumes}, {type: 'reconnecting', text, delay}
//   {type: 'lane', url}      the lane over HTTP that is open
//   {type: 'leftOut', path}  the first of Surehaul's own files, which an upload leaves out
//   {type: 'save', id, path, size, port}   save-target.js has the messages of the port
//   {type: 'total', files, bytes, isWhole}
//   {type: 'progress', bytes, counts, waits, path}   at most ten times a second; tally.js has the
//     counts, transfer.js the waits, `path` is 'http' or 'webtransport'
//   {type: 'ended', ok, text, status?, counts, failures, receipt?, unproven?, copied?}   `status` is
//     the HTTP status of a lane that was refused, `receipt` a Blob with the waybill of all runs,
//     `unproven` the number of files that are not in it, because their digests are unknown, and
//     `copied` has the paths of the files at the target if `moves` is set

import { Level, fromHex, loadCore, reason } from './core.js';
import { Download } from './download.js';
import { JobLog } from './job-log.js';
import { logNames, removeEmpty } from './leftovers.js';
import { measurePaths, measureRoots } from './measure.js';
import { LaneChooser } from './lane-chooser.js';
import { Receipt, memoryLog, waybill } from './receipt.js';
import { SaveTarget } from './save-target.js';
import { copyOnServer } from './server-copy.js';
import { FolderTarget, PrivateTarget, openLogFile, removeLogFile } from './storage.js';
import { Tally } from './tally.js';
import { Transfer } from './transfer.js';
import { Upload, versionKey, walk } from './upload.js';

/** Size of an object in bytes. */
const OBJECT_BYTES = 4 << 20;

/** Interval of `progress`, in milliseconds. */
const PROGRESS = 100;

/** True in Chromium, which reads no chosen file that has changed. Firefox reads it, and keeps its old size and time. */
const REFUSES_CHANGED = 'userAgentData' in navigator;

/** @type {Transfer | null} */
let transfer = null;
/** @type {SaveTarget | null} */
let saves = null;
/** Stops a copy at the server. */
const copyEnd = new AbortController();
let isStopped = false;

self.addEventListener('message', ({ data }) => {
  if (data.type === 'stop') {
    isStopped = true;
    saves?.end('the job was stopped');
    transfer?.stop();
    copyEnd.abort();
  } else if (data.type === 'start' && !transfer) {
    const tally = new Tally();
    run(data, tally).catch((error) => end(tally, { ok: 0, text: reason(error) }));
  }
});

/**
 * Reports the end of the job.
 * @param {Tally} tally
 * @param {Record<string, any>} ended
 */
function end(tally, { ok, text, status, receipt, unproven, copied, counts = tally.summary(), failures = tally.failed() }) {
  const result = { counts, failures, receipt, unproven, copied };
  self.postMessage({ type: 'ended', ok: Boolean(ok), text, status, ...result });
}

/**
 * @param {any} message
 * @param {Tally} tally
 */
async function run(message, tally) {
  // Two tabs never run one job: both would write the same files.
  await navigator.locks.request(`haul-job-${message.job}`, { ifAvailable: true }, async (lock) => {
    if (lock) {
      end(tally, ['copy', 'fetch'].includes(message.direction)
        ? await copyOnServer(message, copyEnd.signal, (told) => self.postMessage(told))
        : await runLocked(message, tally));
    } else {
      self.postMessage({ type: 'held' });
    }
  });
}

/**
 * Measures the job beside its work.
 * @param {any} message
 */
async function measure({ direction, roots, paths, lane }) {
  const total = direction === 'upload' ? measureRoots(roots) : measurePaths(lane.base ?? '', lane.root ?? 0, paths, lane.token);
  self.postMessage({ type: 'total', ...await total });
}

/**
 * @param {any} message
 * @param {Tally} tally
 */
async function runLocked(message, tally) {
  const { direction, job, about, object = OBJECT_BYTES, level = Level.durable, wasm, lane, ...rest } = message;
  const started = Date.now();
  const core = await loadCore(wasm);
  // No browser confirms that a file in its list of downloads is durable.
  const settings = { job: fromHex(job), object, level: rest.saves ? Level.verified : level };
  const settle = () => transfer?.settle();
  let hasLeftOut = false;
  const report = (/** @type {any} */ event) => {
    tally.add(event);
    receipt.add(event);
    const isFirstLeftOut = event.type === 'leftOut' && !hasLeftOut;
    hasLeftOut ||= isFirstLeftOut;
    if (event.type === 'started' || event.type === 'reconnecting' || isFirstLeftOut) {
      self.postMessage(event);
    }
  };
  const chooser = new LaneChooser({ ...lane, direction });
  // Without storage, the waybill has the files of this run only.
  const [logName, receiptName] = logNames(job);
  const receiptFile = await openLogFile(receiptName).catch(memoryLog);
  const receipt = new Receipt(receiptFile, object);
  /** @type {{write: () => void}[]} */
  const logs = [receipt];
  let logFile = null;
  let timer;
  let ended;
  try {
    let side;
    if (direction === 'upload') {
      const sent = () => new Map([...receipt.files().values()].map(({ path, size, mtime, objects = [] }) =>
        [versionKey(path, { size, lastModified: mtime }), objects]));
      const reread = REFUSES_CHANGED ? null : { core: await loadCore(wasm), sent: sent() };
      side = new Upload({ ...settings, to: rest.to, compares: rest.compares }, (leaveOut) => walk(rest.roots, leaveOut), report, settle, reread);
    } else {
      // Files in the list of downloads do not resume. A folder resumes after a reload with a log only.
      logFile = rest.saves ? memoryLog() : await openLogFile(logName).catch((error) => rest.folder ? memoryLog() : Promise.reject(error));
      const log = new JobLog(logFile);
      logs.push(log);
      if (rest.folder) {
        await removeEmpty(rest.folder, log);
      }
      let target;
      if (rest.saves) {
        target = new SaveTarget(object, (file) => self.postMessage({ type: 'save', ...file }, [file.port]));
        saves = target;
      } else if (rest.folder) {
        target = new FolderTarget(rest.folder, (path, created) => log.created(path, created));
      } else {
        target = new PrivateTarget(await navigator.storage.getDirectory(), job);
      }
      side = new Download({ ...settings, paths: rest.paths }, target, log, report, settle);
    }
    // A page that was closed or reloaded leaves its lane open, and the server keeps the job with it.
    chooser.remove(message.staleLane);
    const open = async () => {
      const opened = await chooser.open();
      self.postMessage({ type: 'lane', url: opened.url ?? '' });
      return opened;
    };
    const running = new Transfer(core, side, open, report);
    transfer = running;
    if (isStopped) {
      running.stop();
    }
    // A job whose total is unknown still shows its bytes.
    measure(message).catch(() => {});
    const progress = () => {
      try {
        logs.forEach((lines) => lines.write());
      } catch (error) {
        side.fail(error);
      }
      const isUpload = side instanceof Upload;
      const bytes = isUpload ? core.settledBytes() : side.settledBytes;
      const waits = running.waits[isUpload ? 'send' : 'receive'];
      self.postMessage({ type: 'progress', bytes, counts: tally.summary(), waits, path: chooser.path });
    };
    timer = setInterval(progress, PROGRESS);
    ended = await running.run();
    progress();
    const { entries, unknown } = receipt.read();
    ended.receipt = entries.length > 0 ? waybill(core, { at: started, ...about }, entries, object) : null;
    ended.unproven = unknown;
    ended.copied = rest.moves ? tally.copied() : undefined;
  } finally {
    clearInterval(timer);
    saves?.end('the job ended');
    logFile?.close();
    receiptFile.close();
  }
  if (ended.ok && ended.failed === 0) {
    // Without storage there are none.
    await Promise.all([logName, receiptName].map((name) => removeLogFile(name).catch(() => {})));
  }
  return ended;
}
