// Repeats recorded calls of a session on a module and prints their results, one line for each.
//
//   node replay.mjs MODULE.wasm <CALLS
//
// Each line of the input is `call<TAB>numbers<TAB>bytes`: numbers separated by spaces, bytes in
// hexadecimal digits. The last number is the time.

import { readFileSync } from 'node:fs';
import { Buffer } from 'node:buffer';
import { instantiateCore } from '../../js/core.js';

let now = 0;
const core = await instantiateCore(readFileSync(process.argv[2]), () => now);

/** Calls by name. Each gets the numbers and the bytes, and returns a number. */
const CALLS = {
  upload: ([level, object], bytes) => core.wasm.haul_upload(level, object, 0, core.argument(bytes), now),
  download: ([level, object], bytes) => core.wasm.haul_download(level, object, core.argument(bytes), now),
  keep: ([complete, size, mtime, pathLen], bytes) =>
    core.wasm.haul_keep(complete, size, mtime, pathLen, core.argument(bytes)),
  input: (_, bytes) => {
    core.feed(bytes);
    core.advance();
    return core.taken;
  },
  offer: ([size, mtime], bytes) => core.wasm.haul_offer(size, mtime, core.argument(bytes), now),
  walk_ended: () => core.walkEnded(),
  read_done: ([request, ok], bytes) =>
    core.readDone({ request, len: bytes.length }, ok ? bytes : new TextDecoder().decode(bytes)),
  checked: ([request, , size, mtime]) => core.checked({ request }, { size, mtime }),
  written: ([request, ok], bytes) => core.written({ request }, ok ? undefined : new TextDecoder().decode(bytes)),
  synced: ([file, level]) => core.synced({ file }, level),
  finished: ([file, level], bytes) => core.finished({ file }, level || new TextDecoder().decode(bytes)),
  tick: () => core.tick(),
  lane_lost: () => core.laneLost(),
  stop: () => core.stop(),
};

function drained() {
  const output = [];
  for (let bytes = core.output(); bytes; bytes = core.output()) {
    output.push(Buffer.from(bytes));
    core.outputSent();
  }
  return Buffer.concat(output).toString('hex');
}

/** Takes the events in the form of the record, past the names that core.js gives them. */
function events() {
  const found = [];
  for (let kind = core.wasm.haul_next_event(); kind; kind = core.wasm.haul_next_event()) {
    const numbers = new Float64Array(core.wasm.memory.buffer, core.wasm.haul_record(), 8);
    found.push(`${kind} ${Array.from(numbers).join(' ')} ${Buffer.from(core.text()).toString('hex')}`);
  }
  return found.join(';');
}

const lines = [];
for (const line of readFileSync(0, 'latin1').split('\n').filter(Boolean)) {
  const [call, text, hex] = line.split('\t');
  const numbers = text.split(' ').map(Number);
  now = numbers.pop();
  const returned = CALLS[call](numbers, Buffer.from(hex, 'hex')) ?? 0;
  const output = call === 'keep' ? '' : drained();
  lines.push(`${call}\t${returned}\t${output}\t${call === 'keep' ? '' : events()}`);
}
process.stdout.write(`${lines.join('\n')}\n`);
