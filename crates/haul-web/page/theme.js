// Light or dark: as the system says, or as the user chose.

import { setIcon } from "./dom.js";

const KEY = "haul-theme";
const THEMES = ["auto", "light", "dark"];
const TEXTS = { auto: "Colors as the system", light: "Light colors", dark: "Dark colors" };

/** Reads a setting; private modes of browsers may have no storage. */
function read() {
  try {
    const theme = localStorage.getItem(KEY);
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

/** Lets a button switch between the themes. @param {HTMLButtonElement} button */
export function installTheme(button) {
  let theme = read();
  const show = () => {
    document.documentElement.dataset.theme = theme;
    button.title = `${TEXTS[theme]}. Press for: ${TEXTS[following()].toLowerCase()}`;
    button.ariaLabel = button.title;
    setIcon(button.querySelector("svg"), theme);
  };
  const following = () => THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  button.addEventListener("click", () => {
    theme = following();
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // The choice then lasts until the page is closed.
    }
    show();
  });
  show();
}
