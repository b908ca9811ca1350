// The elements of a pane, without their contents.

import { create, iconButton } from "./dom.js";
import { createHead } from "./row.js";

/**
 * Creates the elements of a pane in `pane.element`.
 * @param {import("./pane.js").Pane} pane
 */
export function createFrame(pane) {
  const { side } = pane;
  const command = (name, label, command) => iconButton(name, label, () => pane.run(command));
  const places = create("select", { ariaLabel: `Location of the ${side} pane` });
  const openButton = command("open", "Open a folder of this computer", "openFolder");
  const filesButton = command("add", "Choose files of this computer", "chooseFiles");
  const filterButton = command("filter", "Filter (/)", "filter");
  const hiddenButton = command("hidden", "Hidden entries (.)", "hidden");
  const reloadButton = command("reload", "Load again (F9)", "reload");
  const tools = [openButton, filesButton, filterButton, hiddenButton, reloadButton];
  const bar = create(
    "div",
    { className: "pane-bar" },
    places,
    create("div", { className: "tools" }, ...tools),
  );

  const crumbs = create("nav", { className: "crumbs", ariaLabel: `Path in the ${side} pane` });
  const filterInput = create("input", {
    type: "search",
    ariaLabel: `Filter of the ${side} pane`,
    placeholder: "Text in the name",
    autocomplete: "off",
    spellcheck: false,
  });
  const closeButton = command("close", "Close the filter", "closeFilter");
  const filterBar = create("div", { className: "filter", hidden: true }, filterInput, closeButton);

  const head = createHead((by) => pane.listing.sortBy(by));
  const space = create("div", { className: "space", role: "rowgroup" });
  const grid = create("div", { className: "grid", role: "grid", tabIndex: 0 }, head, space);
  grid.ariaLabel = `Entries in the ${side} pane`;
  grid.ariaMultiSelectable = "true";
  grid.ariaColCount = "4";
  const notice = create("div", { className: "notice", hidden: true });
  const hint = create("p", { className: "hint", hidden: true });
  const body = create("div", { className: "pane-body" }, grid, notice, hint);

  const moreButton = create("button", { type: "button", className: "more", hidden: true });
  const summary = create("p", { className: "summary" });
  pane.element.replaceChildren(bar, crumbs, filterBar, body, moreButton, summary);
  return {
    places,
    openButton,
    filesButton,
    filterButton,
    hiddenButton,
    crumbs,
    filterInput,
    filterBar,
    grid,
    notice,
    hint,
    moreButton,
    summary,
  };
}
