// A private CA that Chromium trusts, a server with its certificates, and a proxy between both.

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, before } from 'node:test';
import { chromiumPath } from './needs.mjs';
import { Server, Visitor, eventually, launch } from './world.mjs';

const CONFIGURATION = `[ca]
default_ca = own
[own]
database = index
serial = serial
new_certs_dir = .
certificate = ca.pem
private_key = ca.key
default_md = sha256
policy = names
unique_subject = no
[names]
commonName = supplied
`;

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** A CA in a temporary directory. `certificate` and `key` are the files of a server. */
export class Authority {
  /** Place in the log of the server behind which it tells the end of a certificate. */
  from = 0;

  constructor() {
    this.home = mkdtempSync(join(tmpdir(), 'haul-ca-'));
    this.certificate = join(this.home, 'certificate.pem');
    this.key = join(this.home, 'key.pem');
    writeFileSync(join(this.home, 'ca.cnf'), CONFIGURATION);
    writeFileSync(join(this.home, 'index'), '');
    writeFileSync(join(this.home, 'serial'), '01');
    writeFileSync(join(this.home, 'extensions'), 'subjectAltName = IP:127.0.0.1\n');
    this.#openssl('req', '-x509', ...KEY, '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '30', '-subj', '/CN=private');
  }

  /** @param {string[]} values */
  #openssl(...values) {
    return execFileSync('openssl', values, { cwd: this.home, stdio: ['ignore', 'pipe', 'pipe'] });
  }

  /** Replaces the certificate and its key, as a renewer does. @param {number} seconds for which it is valid */
  issue(seconds) {
    const time = (/** @type {number} */ from) => `${new Date(Date.now() + from * 1000).toISOString().replace(/[-T:]|\..*/g, '')}Z`;
    this.#openssl('req', ...KEY, '-keyout', 'new.key', '-out', 'request', '-subj', '/CN=haul');
    this.#openssl('ca', '-batch', '-notext', '-config', 'ca.cnf', '-in', 'request', '-out', 'new.pem', '-extfile', 'extensions',
      '-startdate', time(-3600), '-enddate', time(seconds));
    chmodSync(join(this.home, 'new.key'), 0o600);
    renameSync(join(this.home, 'new.pem'), this.certificate);
    renameSync(join(this.home, 'new.key'), this.key);
  }

  /** Returns the SHA-256 of the certificate as the server logs it. */
  sha256() {
    const text = this.#openssl('x509', '-in', this.certificate, '-noout', '-fingerprint', '-sha256').toString();
    return text.split('=')[1].replace(/[:\s]/g, '').toLowerCase();
  }

  /** Lines of the configuration of a server. */
  get settings() {
    return [`web-cert = "${this.certificate}"`, `web-key = "${this.key}"`];
  }

  /**
   * Waits until a server uses a certificate that expires soon.
   * @param {import('./world.mjs').Server} server
   */
  async shorten(server) {
    const isUsed = () => server.log.includes(`renewed the certificate; its SHA-256 is ${this.sha256()}`);
    do {
      this.issue(12);
      this.from = server.log.length;
      // A server that was late refuses the certificate.
      await eventually(() => isUsed() || this.#isExpired(server), 'a certificate that expires');
    } while (!isUsed());
  }

  /** Waits until that certificate has expired. @param {import('./world.mjs').Server} server */
  async expire(server) {
    await eventually(() => this.#isExpired(server), 'the end of the certificate');
  }

  /** @param {import('./world.mjs').Server} server */
  #isExpired(server) {
    return server.log.includes('the certificate expired 0 days ago', this.from);
  }

  /** Issues a certificate that is valid, and waits until a server uses it. @param {import('./world.mjs').Server} server */
  async renew(server) {
    this.issue(3600);
    const sha256 = this.sha256();
    await eventually(() => server.log.includes(sha256), 'the renewed certificate');
  }

  /**
   * Starts Chromium with a policy that trusts this CA. Its directory of policies is mounted for this
   * process only.
   */
  launch() {
    const der = this.#openssl('x509', '-in', 'ca.pem', '-outform', 'DER');
    const [policy, program] = [join(this.home, 'policy.json'), join(this.home, 'chromium')];
    writeFileSync(policy, JSON.stringify({ CACertificates: [der.toString('base64')] }));
    writeFileSync(program, `#!/bin/sh
exec unshare --mount sh -ec '
  mount -t tmpfs haul-policies /etc/chromium
  mkdir -p /etc/chromium/policies/managed
  cp ${policy} /etc/chromium/policies/managed/
  exec ${chromiumPath} "$@"' sh "$@"
`);
    chmodSync(program, 0o755);
    return launch(program);
  }

  close() {
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** A proxy of HTTP (CONNECT), which can hold back the bytes to the server and cut its connections. */
export class Proxy {
  /** Number of bytes to the server. */
  sent = 0;
  /** Number of bytes to the server from which on they are held back. */
  limit = Infinity;
  /** @type {Set<import('node:net').Socket>} */
  #sockets = new Set();

  static async start() {
    const proxy = new Proxy();
    proxy.server = createServer().on('connect', (request, client) => proxy.#carry(request, client)).listen(0, '127.0.0.1');
    await new Promise((resolve) => proxy.server?.once('listening', resolve));
    return proxy;
  }

  /** Options of a context of the browser. */
  get options() {
    const { port } = /** @type {import('node:net').AddressInfo} */ (this.server?.address());
    return { proxy: { server: `http://127.0.0.1:${port}` } };
  }

  /** @param {import('node:http').IncomingMessage} request @param {import('node:stream').Duplex} client */
  #carry(request, client) {
    const [host, port] = (request.url ?? '').split(':');
    const server = connect(Number(port), host, () => client.write('HTTP/1.1 200 OK\r\n\r\n'));
    for (const [one, other] of [[client, server], [server, client]]) {
      this.#sockets.add(one);
      one.on('error', () => {}).on('close', () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
    server.pipe(client);
    client.on('data', (bytes) => {
      this.sent += bytes.length;
      if (!server.write(bytes)) {
        client.pause();
        server.once('drain', () => client.resume());
      }
      if (this.sent >= this.limit) {
        client.pause();
        server.removeAllListeners('drain');
      }
    });
  }

  /** Cuts all connections, and holds back nothing any more. */
  cut() {
    this.limit = Infinity;
    this.#sockets.forEach((socket) => socket.destroy());
  }

  close() {
    this.cut();
    this.server?.close();
  }
}

/** Options of a test: the policies of Chromium are in a directory of root. */
export const options = { skip: process.getuid?.() !== 0 && 'needs root' };

/**
 * Starts a CA and a browser that trusts it, for a file of tests. Returns a function that starts a
 * server with a valid certificate, and a visitor of it.
 */
export function inWorlds() {
  /** @type {Authority} */
  let authority;
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => {
    if (!options.skip) {
      authority = new Authority();
      browser = await authority.launch();
    }
  });
  after(async () => {
    await browser?.close();
    authority?.close();
  });
  return async (/** @type {import('node:test').TestContext} */ t, context = {}) => {
    authority.issue(3600);
    const server = await Server.start({ data: {} }, { settings: authority.settings });
    const visitor = await Visitor.create(browser, { ignoreHTTPSErrors: false, ...context });
    t.after(async () => {
      await visitor.close();
      await server.close();
    });
    return { authority, server, visitor };
  };
}
