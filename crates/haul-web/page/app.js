// The page: sign-in and sign-out, messages, and the start of the workspace.

import { Activity } from "./activity.js";
import * as api from "./api.js";
import { showLink } from "./dialog.js";
import { Drawer } from "./drawer.js";
import { Jobs } from "./jobs.js";
import { installTheme } from "./theme.js";
import { Workspace } from "./workspace.js";

const element = (id) => document.getElementById(id);

/** @param {string} text @param {boolean} [isError] */
function say(text, isError = false) {
  const status = element("status");
  status.textContent = text;
  status.classList.toggle("error", isError);
}

/** Runs an action and shows its failure. @param {() => unknown} action */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    // The user closed a dialog of the browser, or has signed out.
    if (error.name === "AbortError" || error.isLate) {
      return;
    }
    say(error.message, true);
    if (error instanceof api.ApiError && error.status === 401) {
      showSignIn();
    }
  }
}

function showSignIn() {
  ["files", "sign-out", "share", "activity-toggle"].forEach((id) => (element(id).hidden = true));
  element("sign-in").hidden = false;
  element("code").focus();
}

/** @type {Workspace | null} */
let workspace = null;
/** @type {Jobs} */
let jobs;
/** The roots that the panes show, as JSON. */
let roots = "";

/** @param {api.Session} session */
async function showFiles(session) {
  element("sign-in").hidden = true;
  ["files", "sign-out", "share", "activity-toggle"].forEach((id) => (element(id).hidden = false));
  element("server").textContent = `${location.host} \u00b7 ${session.version}`;
  if (workspace !== null) {
    if (JSON.stringify(session.roots) !== roots) {
      // The panes show directories of a server that was started again with others.
      location.reload();
      return;
    }
    jobs.signedIn(session);
    return workspace.continue();
  }
  roots = JSON.stringify(session.roots);
  jobs = new Jobs(session);
  jobs.addEventListener("signed-out", () => {
    showSignIn();
    say("The session ended. Sign in, and the jobs continue.", true);
  });
  workspace = new Workspace(session, jobs, { say, attempt });
  new Drawer(element("jobs"), jobs, (job) => attempt(() => workspace.verifyJob(job)));
  new Activity(element("activity"), element("activity-toggle"), session, attempt);
  await workspace.start();
  await jobs.load();
}

/** Signs in with the code of the link, or continues the session of an earlier visit. */
async function start() {
  const code = location.hash.slice(1);
  if (code !== "") {
    // The code works once; it must not stay in the history.
    history.replaceState(null, "", location.pathname);
    return showFiles(await api.signIn(code).catch((error) => {
      // A link that was opened before: its session may still be valid.
      return api.session().catch(() => Promise.reject(error));
    }));
  }
  try {
    await showFiles(await api.session());
  } catch (error) {
    if (!(error instanceof api.ApiError) || error.status !== 401) {
      throw error;
    }
    showSignIn();
  }
}

/** Number of codes that were entered or accepted: a refusal counts only for the latest. */
let codes = 0;

/** Signs in with the code that the user entered. */
async function enterCode() {
  codes += 1;
  const own = codes;
  let session;
  try {
    session = await api.signIn(element("code").value.trim());
  } catch (error) {
    // The server delays a refusal. Another code can have been entered or accepted meanwhile.
    if (own === codes) {
      throw error;
    }
    return;
  }
  codes += 1;
  element("code").value = "";
  // Before the panes load: a later message stays.
  say("");
  await showFiles(session);
}

installTheme(element("theme"));
element("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(enterCode);
});
element("share").addEventListener("click", () =>
  attempt(async () => {
    await showLink(`${location.origin}/#${await api.newCode()}`);
  }),
);
element("sign-out").addEventListener("click", () =>
  attempt(async () => {
    await api.signOut();
    showSignIn();
    say("Signed out.");
  }),
);

attempt(async () => {
  try {
    await start();
  } catch (error) {
    if (workspace === null) {
      showSignIn();
    }
    throw error;
  }
});
