// A list of any length: only the rows that are visible are in the document.

/** Rows above and below the visible ones that are drawn too. */
const MARGIN = 8;

/**
 * Rows of one height in a scrolling element. The element has the role "grid" and the focus; its
 * first child is a header row that stays in place, its second one holds the rows.
 */
export class VirtualList {
  #count = 0;
  /**
   * Rows in the document. Row i of the list is at index i modulo the length.
   * @type {HTMLElement[]}
   */
  #pool = [];
  /** Index of the list that each row of the pool shows. @type {number[]} */
  #shown = [];
  #isPlanned = false;
  #isStale = true;

  /**
   * @param {HTMLElement} grid
   * @param {() => HTMLElement} createRow
   * @param {(row: HTMLElement, index: number) => void} fillRow
   */
  constructor(grid, createRow, fillRow) {
    this.grid = grid;
    [this.head, this.space] = grid.children;
    this.createRow = createRow;
    this.fillRow = fillRow;
    this.rowHeight = 24;
    grid.addEventListener("scroll", () => this.#plan(), { passive: true });
    new ResizeObserver(() => this.refresh()).observe(grid);
  }

  /** Height of the visible rows in pixels. */
  get height() {
    return Math.max(this.grid.clientHeight - this.head.offsetHeight, 0);
  }

  /** Rows that are wholly visible, at least one. */
  get pageRows() {
    return Math.max(Math.floor(this.height / this.rowHeight) - 1, 1);
  }

  /** Draws all visible rows anew, in the next frame. @param {number} [count] number of rows */
  refresh(count = this.#count) {
    this.#count = count;
    this.#isStale = true;
    this.#plan();
  }

  /** Scrolls as little as is needed to show a row. @param {number} index */
  reveal(index) {
    this.#measure();
    const top = index * this.rowHeight;
    const { scrollTop } = this.grid;
    if (top < scrollTop) {
      this.grid.scrollTop = top;
    } else if (top + this.rowHeight > scrollTop + this.height) {
      this.grid.scrollTop = top + this.rowHeight - this.height;
    }
  }

  /** Scrolls by rows after a change of their number. @param {number} count @param {number} rows */
  shift(count, rows) {
    this.refresh(count);
    this.#measure();
    this.grid.scrollTop += rows * this.rowHeight;
  }

  /** Returns the row of an index if it is in the document. @param {number} index */
  row(index) {
    const slot = index % this.#pool.length;
    return this.#shown[slot] === index ? this.#pool[slot] : undefined;
  }

  #plan() {
    if (!this.#isPlanned) {
      this.#isPlanned = true;
      requestAnimationFrame(() => {
        this.#isPlanned = false;
        this.#draw();
      });
    }
  }

  /** Takes the height of rows from the style sheet, which depends on the screen. */
  #measure() {
    const height = Number.parseFloat(getComputedStyle(this.grid).getPropertyValue("--row"));
    if (height > 0 && height !== this.rowHeight) {
      this.rowHeight = height;
      this.#isStale = true;
    }
    this.space.style.height = `${this.#count * this.rowHeight}px`;
  }

  #draw() {
    if (this.#isStale) {
      this.#measure();
      this.#resizePool();
      this.#shown.fill(-1);
      this.#isStale = false;
    }
    const length = this.#pool.length;
    const first = Math.max(Math.floor(this.grid.scrollTop / this.rowHeight) - MARGIN, 0);
    for (let index = first; index < first + length; index += 1) {
      const slot = index % length;
      if (this.#shown[slot] === index) {
        continue;
      }
      const row = this.#pool[slot];
      this.#shown[slot] = index;
      row.hidden = index >= this.#count;
      if (!row.hidden) {
        row.style.transform = `translateY(${index * this.rowHeight}px)`;
        this.fillRow(row, index);
      }
    }
  }

  #resizePool() {
    const wanted = Math.ceil(this.height / this.rowHeight) + 2 * MARGIN;
    while (this.#pool.length < wanted) {
      const row = this.createRow();
      this.#pool.push(row);
      this.space.append(row);
    }
    for (const row of this.#pool.splice(wanted)) {
      row.remove();
    }
    this.#shown.length = this.#pool.length;
  }
}
