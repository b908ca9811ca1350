// Elements of the page.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an element with properties and children. Texts become text nodes, never HTML.
 * @param {string} tag
 * @param {Record<string, unknown>} [properties]
 * @param {(Node | string)[]} children
 */
export function create(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Creates a drawing of index.html that has the id `icon-NAME`. @param {string} name */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "use"));
  setIcon(svg, name);
  return svg;
}

/** @param {SVGElement} svg @param {string} name */
export function setIcon(svg, name) {
  const address = `#icon-${name}`;
  if (svg.firstChild.getAttribute("href") !== address) {
    svg.firstChild.setAttribute("href", address);
  }
}

/**
 * Creates a button with a drawing and a name for screen readers.
 * @param {string} name
 * @param {string} label
 * @param {() => void} action
 */
export function iconButton(name, label, action) {
  const button = create(
    "button",
    { type: "button", className: "icon-button", title: label, ariaLabel: label },
    icon(name),
  );
  button.addEventListener("click", action);
  return button;
}

/** Creates a button with a text. @param {string} label @param {() => void} action */
export function textButton(label, action) {
  const button = create("button", { type: "button", textContent: label });
  button.addEventListener("click", action);
  return button;
}

/** Lets the browser save an address as a file. @param {string} href @param {string} name */
export function saveAs(href, name) {
  create("a", { href, download: name }).click();
}

/**
 * Returns a function that draws after a time, once for all calls before.
 * @param {number} ms @param {() => void} draw
 */
export function drawLater(ms, draw) {
  let isWaiting = false;
  return () => {
    if (!isWaiting) {
      isWaiting = true;
      setTimeout(() => {
        isWaiting = false;
        draw();
      }, ms);
    }
  };
}
