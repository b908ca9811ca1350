// Speed of BLAKE3 in the modules, beside hash-wasm if it is installed, in turn: megabytes for each
// second of processor time, so that other load disturbs little.
//
//   node bench.mjs [DIRECTORY]   DIRECTORY has node_modules/hash-wasm (npm install hash-wasm)

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { instantiateCore } from '../../js/core.js';

const OBJECT = 4 << 20;
const BYTES = 256 << 20;
const ROUNDS = 5;
const data = new Uint8Array(OBJECT);
for (let at = 0; at < OBJECT; at += 1) {
  data[at] = (at * 31) & 255;
}

const wasm = new URL('../../wasm/', import.meta.url);
const hashers = {};
for (const name of ['haul-simd', 'haul']) {
  const core = await instantiateCore(readFileSync(new URL(`${name}.wasm`, wasm)));
  hashers[name] = async () => {
    core.hashBegin(BYTES, OBJECT);
    for (let index = 0; index < BYTES / OBJECT; index += 1) {
      core.hashObject(index);
      core.hashUpdate(data);
      core.hashObjectEnd();
    }
    return core.hashEnd();
  };
}
if (process.argv[2]) {
  const { createBLAKE3 } = createRequire(`${process.argv[2]}/`)('hash-wasm');
  const hasher = await createBLAKE3();
  hashers['hash-wasm'] = async () => {
    hasher.init();
    for (let at = 0; at < BYTES; at += OBJECT) {
      hasher.update(data);
    }
    return hasher.digest('hex');
  };
}

const rates = Object.fromEntries(Object.keys(hashers).map((name) => [name, []]));
const digests = new Set();
for (let round = 0; round < ROUNDS; round += 1) {
  for (const [name, hash] of Object.entries(hashers)) {
    const begin = process.cpuUsage();
    digests.add(await hash());
    const { user, system } = process.cpuUsage(begin);
    rates[name].push(BYTES / (user + system));
  }
}
if (digests.size !== 1) {
  throw new Error('the digests differ');
}
for (const [name, values] of Object.entries(rates)) {
  const median = values.sort((one, two) => one - two)[ROUNDS >> 1];
  console.log(`${name} ${Math.round(median)} MB/s (${values.map(Math.round).join(' ')})`);
}
