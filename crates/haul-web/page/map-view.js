// Draws a map of objects: a small square for each cell.

import { Cell } from "./object-map.js";
import { countText } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

const COLUMNS = 64;

/** Side and distance of the squares, in units of the drawing. */
const SIDE = 7;
const STEP = 8;

const NAMES = Object.keys(Cell);

/** Names of the states for the user. */
export const STATE_TEXTS = { intact: "intact", unproven: "not proven", changed: "modified", damaged: "damaged", missing: "missing" };

export class MapView {
  constructor() {
    this.drawing = document.createElementNS(SVG, "svg");
    this.drawing.setAttribute("class", "map");
    this.drawing.setAttribute("role", "img");
    this.paths = NAMES.map((name) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", `map-${name}`);
      return path;
    });
    this.drawing.append(...this.paths);
    this.caption = document.createElement("figcaption");
    this.element = document.createElement("figure");
    this.element.className = "map-figure";
    this.element.append(this.drawing, this.caption);
  }

  /** @param {import("./object-map.js").ObjectMap} map */
  draw(map) {
    const { length, cells, unit } = map;
    const rows = Math.max(1, Math.ceil(length / COLUMNS));
    this.drawing.setAttribute("viewBox", `0 0 ${COLUMNS * STEP} ${rows * STEP}`);
    const shapes = NAMES.map(() => "");
    const counts = NAMES.map(() => 0);
    for (let at = 0; at < length; at += 1) {
      const [x, y] = [(at % COLUMNS) * STEP, Math.floor(at / COLUMNS) * STEP];
      // A missing object is a frame, so that it does not differ by its color only.
      const hole = cells[at] === Cell.missing ? `M${x + 1} ${y + 1}v${SIDE - 2}h${SIDE - 2}v-${SIDE - 2}z` : "";
      shapes[cells[at]] += `M${x} ${y}h${SIDE}v${SIDE}h-${SIDE}z${hole}`;
      counts[cells[at]] += 1;
    }
    this.paths.forEach((path, state) => path.setAttribute("d", shapes[state]));
    const parts = NAMES.flatMap((name, state) => (counts[state] > 0 ? [`${counts[state].toLocaleString("en")} ${STATE_TEXTS[name]}`] : []));
    const each = unit === 1 ? "one object" : `up to ${countText(unit, "object")}`;
    const squares = unit === 1 ? "" : ` in ${countText(length, "square")}`;
    const text = `Map of ${countText(map.count, "object")}${squares}: ${parts.join(", ") || "none yet"}`;
    this.drawing.setAttribute("aria-label", text);
    this.caption.textContent = `${text}. A square is ${each}.`;
  }
}
