// A plot of the rate over time.

import { durationText } from "./job-text.js";
import { sizeText } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

/** Size of the drawing in its own units. It stretches to the width of the row. */
const WIDTH = 480;
const HEIGHT = 48;

/** @param {string} tag @param {Record<string, string | number>} attributes */
function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, String(value)));
  return element;
}

/** Returns a bound of the axis: 1, 2 or 5 times a power of 2 to the 10th. @param {number} rate */
export function bound(rate) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(rate, 1)) / Math.log(1024)));
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024];
  return unit * (steps.find((step) => step * unit >= rate) ?? 1024);
}

export class RatePlot {
  constructor() {
    this.area = shape("path", { class: "plot-area" });
    this.line = shape("path", { class: "plot-line", "vector-effect": "non-scaling-stroke" });
    this.drawing = shape("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.drawing.append(this.area, this.line);
    this.caption = document.createElement("figcaption");
    this.element = document.createElement("figure");
    this.element.className = "plot-figure";
    this.element.append(this.drawing, this.caption);
  }

  /** @param {import("./rate.js").RateHistory} rates */
  draw({ points, step }) {
    this.element.hidden = points.length < 2;
    if (this.element.hidden) {
      return;
    }
    const most = Math.max(...points);
    const top = bound(most);
    const place = (rate, at) => `${((at * WIDTH) / (points.length - 1)).toFixed(1)} ${(HEIGHT - (rate / top) * HEIGHT).toFixed(1)}`;
    const path = `M${points.map(place).join("L")}`;
    this.line.setAttribute("d", path);
    this.area.setAttribute("d", `${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`);
    const mean = points.reduce((sum, rate) => sum + rate, 0) / points.length;
    const span = durationText((points.length * step) / 1000);
    const text = `Rate over ${span}: mean ${sizeText(Math.round(mean))}/s, highest ${sizeText(Math.round(most))}/s`;
    this.caption.textContent = `${text}; the top of the plot is ${sizeText(top)}/s`;
    this.drawing.setAttribute("aria-label", text);
  }
}
