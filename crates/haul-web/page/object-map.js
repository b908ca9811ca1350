// The objects of many files as a bounded row of cells. Without the DOM.

/** States of a cell, the worst one last. @enum {number} */
export const Cell = { unread: 0, intact: 1, unproven: 2, changed: 3, damaged: 4, missing: 5 };

/** Cells of a map. With more objects, each cell stands for 2, 4, 8, ... of them. */
export const CELLS_MAX = 1024;

/** Size of an object where the waybill has no digests of objects, in bytes. */
const OBJECT_BYTES = 4 << 20;

/** Returns the number of objects of a file. @param {number} size @param {number} [object] bytes of an object */
export const objectsOf = (size, object = OBJECT_BYTES) => Math.max(1, Math.ceil(size / object));

/**
 * Returns the objects of damaged ranges of bytes, as ranges with exclusive ends.
 * @param {[number, number][]} ranges @param {number} size @param {number} [object] bytes of an object
 */
export function damagedObjects(ranges, size, object = OBJECT_BYTES) {
  const most = objectsOf(size, object);
  return ranges.map(([start, end]) => [Math.min(Math.floor(start / object), most), Math.min(Math.ceil(end / object), most)]);
}

export class ObjectMap {
  cells = new Uint8Array(CELLS_MAX);
  /** Objects of a cell. */
  unit = 1;
  /** Objects so far. */
  count = 0;

  /** Number of cells in use. */
  get length() {
    return Math.ceil(this.count / this.unit);
  }

  /**
   * Adds the objects of a file.
   * @param {number} objects
   * @param {number} state of the objects in `ranges`; the others are intact
   * @param {number[][]} ranges of objects, with exclusive ends
   */
  add(objects, state, ranges) {
    const first = this.count;
    this.count += objects;
    while (this.length > CELLS_MAX) {
      this.#halve();
    }
    this.#mark(first, this.count, Cell.intact);
    ranges.forEach(([start, end]) => this.#mark(first + start, first + end, state));
  }

  #halve() {
    const { cells } = this;
    for (let at = 0; at < CELLS_MAX / 2; at += 1) {
      cells[at] = Math.max(cells[2 * at], cells[2 * at + 1]);
    }
    cells.fill(Cell.unread, CELLS_MAX / 2);
    this.unit *= 2;
  }

  #mark(start, end, state) {
    const last = Math.ceil(end / this.unit);
    for (let at = Math.floor(start / this.unit); at < last; at += 1) {
      this.cells[at] = Math.max(this.cells[at], state);
    }
  }
}
