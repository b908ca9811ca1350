// Hashes the bytes of the input, in hexadecimal digits, as objects in reverse order, and prints the
// digest of the file: by one core, and by two that merge. Then tries it without an object.
//
//   node hash.mjs MODULE.wasm <BYTES

import { readFileSync } from 'node:fs';
import { Buffer } from 'node:buffer';
import { instantiateCore } from '../../js/core.js';

const OBJECT = 64 << 10;
const bytes = Buffer.from(readFileSync(0, 'latin1'), 'hex');
const count = Math.ceil(bytes.length / OBJECT);
const [one, two] = await Promise.all([0, 1].map(() => instantiateCore(readFileSync(process.argv[2]))));

function hashObject(core, index) {
  if (!core.hashObject(index)) {
    throw new Error(`no object ${index}`);
  }
  core.hashUpdate(bytes.subarray(index * OBJECT, (index + 1) * OBJECT));
  return core.hashObjectEnd();
}

one.hashBegin(bytes.length, OBJECT);
for (let index = count - 1; index >= 0; index -= 1) {
  hashObject(one, index);
}
console.log(one.hashEnd());

one.hashBegin(bytes.length, OBJECT);
two.hashBegin(bytes.length, OBJECT);
for (let index = 0; index < count; index += 1) {
  if (index % 2 === 0) {
    hashObject(one, index);
  } else if (!one.hashMerge(index, hashObject(two, index))) {
    throw new Error(`cannot merge ${index}`);
  }
}
console.log(one.hashEnd());

one.hashBegin(bytes.length, OBJECT);
hashObject(one, 0);
try {
  one.hashEnd();
} catch (error) {
  console.log(`incomplete: ${error.message}`);
}
