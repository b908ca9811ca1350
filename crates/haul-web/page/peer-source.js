// Another server, which the server of the page reaches by a ticket.

import { listPeer } from "./api.js";
import { ids, pagesOf } from "./server-source.js";

/** @implements {import("./item.js").Source} */
export class PeerSource {
  kind = "peer";
  unlisted = null;

  /** @param {number} number @param {string} ticket */
  constructor(number, ticket) {
    this.id = `peer-${number}`;
    this.title = `Other server ${number}`;
    this.ticket = ticket;
  }

  /** @param {import("./item.js").Action} action */
  refusal(action) {
    return action === "read" || action === "receive" ? null : "The page does not change names of another server.";
  }

  /** @param {import("./item.js").Item[]} path */
  list(path) {
    return pagesOf((after) => listPeer(this.ticket, ids(path), after));
  }
}
