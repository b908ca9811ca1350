// Chooses how the lanes of a job reach the server.

import { HttpLane } from './lane-http.js';

/**
 * @typedef {object} LaneSettings
 * @property {'http'} kind
 * @property {string} [base] URL of the server without a trailing slash; empty for that of the page
 * @property {string} csrf token of the HTTP session
 * @property {number} [root] number of the server's root
 */

export class LaneChooser {
  /** @param {LaneSettings} settings */
  constructor(settings) {
    this.settings = settings;
    /** The path of the current lane. */
    this.path = 'http';
  }

  /** @returns {Promise<import('./lane-http.js').Lane>} */
  open() {
    const { base = '', csrf, root = 0 } = this.settings;
    return HttpLane.open(base, csrf, root);
  }
}
