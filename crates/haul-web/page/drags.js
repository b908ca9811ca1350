// Drags of entries to the other pane, and of files from the desktop.

import { visible } from "./text.js";

/** Type of the data of a drag between the panes of this window. Other windows have other types. */
export const DRAG_TYPE = `application/x-haul-pane-${crypto.randomUUID()}`;

/**
 * @param {import("./pane.js").Pane} pane
 * @param {(event: DragEvent) => number} indexAt returns the index of the row under the pointer, or -1
 */
export function listenToDrags(pane, indexAt) {
  const { element, grid, hint, listing } = pane;
  let isOwn = false;
  grid.addEventListener("dragstart", (event) => {
    const index = indexAt(event);
    if (index < 0) {
      event.preventDefault();
      return;
    }
    if (!listing.selected.has(listing.view[index])) {
      listing.clearSelection();
      listing.moveTo(index);
    }
    isOwn = true;
    event.dataTransfer.setData(DRAG_TYPE, pane.side);
    event.dataTransfer.effectAllowed = "copy";
  });
  grid.addEventListener("dragend", () => {
    isOwn = false;
  });

  const accepts = ({ types }) => types.includes("Files") || (types.includes(DRAG_TYPE) && !isOwn);
  // Children send these events too: the pointer has left when each "enter" had its "leave".
  let depth = 0;
  element.addEventListener("dragenter", (event) => {
    depth += 1;
    if (accepts(event.dataTransfer)) {
      const isChoice = event.dataTransfer.types.includes("Files") && pane.source?.kind !== "server";
      hint.textContent = isChoice ? "Add to the chosen files" : `Copy to ${visible(pane.placeText)}`;
      hint.hidden = false;
    }
  });
  const leave = () => {
    depth = 0;
    hint.hidden = true;
  };
  element.addEventListener("dragleave", () => {
    depth -= 1;
    if (depth <= 0) {
      leave();
    }
  });
  element.addEventListener("dragover", (event) => {
    if (accepts(event.dataTransfer)) {
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
    }
  });
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    leave();
    if (accepts(event.dataTransfer)) {
      pane.perform("drop", pane, event.dataTransfer);
    }
  });
}
