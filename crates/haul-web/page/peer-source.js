// Another server, which the server of the page reaches by a ticket. The page does not list it.

/** @implements {import("./item.js").Source} */
export class PeerSource {
  kind = "peer";
  unlisted = "The page does not list another server.";

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
}
