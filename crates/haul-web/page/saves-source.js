// The list of downloads of the browser, which the page cannot read.

import { saveRefusal } from "./save.js";

const REFUSAL = "The page sees nothing of the browser's downloads. It only adds files of the server.";

/** @implements {import("./item.js").Source} */
export class SavesSource {
  id = "saves";
  kind = "saves";
  title = "Browser downloads";
  unlisted =
    "The browser saves each file where it saves downloads, without its folder. Nothing resumes: a file that is interrupted starts again.";

  /** Fails if the browser cannot save files of the page. */
  async permit() {
    const refusal = await saveRefusal();
    if (refusal !== null) {
      throw new Error(`${refusal}; choose another place, or open a file with Enter to save it`);
    }
  }

  refusal() {
    return REFUSAL;
  }
}
