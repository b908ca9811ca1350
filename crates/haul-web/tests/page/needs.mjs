// What the tests of the page need: Debian's chromium and firefox-esr, and two packages of npm that
// scripts/install-test-needs.sh installs outside of the repository.
//
//   node needs.mjs
//
// prints `ok`, or what is missing.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
const tools = process.env.HAUL_PAGE_TOOLS || join(cache, 'haul', 'page-tools');
const require = createRequire(join(tools, 'none.js'));

/** The programs of the browsers. */
export const chromiumPath = process.env.HAUL_CHROMIUM || '/usr/bin/chromium';
export const firefoxPath = process.env.HAUL_FIREFOX || '/usr/bin/firefox-esr';

/** Returns what is missing, as text; empty if nothing is. */
export function missing() {
  const packages = ['playwright-core', 'axe-core'].filter((name) => !existsSync(join(tools, 'node_modules', name)));
  const found = [...packages, ...[chromiumPath, firefoxPath].filter((path) => !existsSync(path))];
  return found.length > 0 ? `${found.join(', ')}; run scripts/install-test-needs.sh` : '';
}

/** Returns Playwright's driver of Chromium. */
export const driver = () => require('playwright-core').chromium;

/** Returns the script of axe-core, to be run in a page. */
export const axeSource = () => readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

if (argv[1] === fileURLToPath(import.meta.url)) {
  console.log(missing() || 'ok');
}
