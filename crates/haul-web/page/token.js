// The token of the session. It is in sessionStorage, which no other port of this host can read. Other
// tabs with the page get it by a message; it is in no cookie and in no storage that outlives the tab.

/** Key in sessionStorage, and name of the channel and of the lock. */
const NAME = "haul-token";

/** Time for the answer of another tab, which the browser can have stopped, in milliseconds. */
const ANSWER = 5000;

const channel = new BroadcastChannel(NAME);
let current = sessionStorage.getItem(NAME) ?? "";
/** Releases the lock that tells other tabs that this one has a token. */
let release = () => {};

channel.addEventListener("message", ({ data }) => {
  if (data.asks && current !== "") {
    channel.postMessage({ token: current });
  }
});

/** Tells other tabs by a lock whether this one has a token. */
function announce() {
  release();
  if (current !== "") {
    const done = new Promise((resolve) => (release = () => resolve(undefined)));
    navigator.locks.request(NAME, { mode: "shared" }, () => done);
  }
}

/** Returns the token, empty without a session. */
export const token = () => current;

/** Keeps the token of a new session; empty after its end. @param {string} value */
export function setToken(value) {
  current = value;
  if (value === "") {
    sessionStorage.removeItem(NAME);
  } else {
    sessionStorage.setItem(NAME, value);
  }
  announce();
}

/** Returns the token of another tab, or an empty text. @returns {Promise<string>} */
export async function askOtherTabs() {
  const { held = [] } = await navigator.locks.query();
  if (!held.some(({ name }) => name === NAME)) {
    return "";
  }
  return new Promise((resolve) => {
    const end = (value) => {
      clearTimeout(timer);
      channel.removeEventListener("message", hear);
      resolve(value);
    };
    const hear = ({ data }) => typeof data.token === "string" && end(data.token);
    const timer = setTimeout(() => end(""), ANSWER);
    channel.addEventListener("message", hear);
    channel.postMessage({ asks: true });
  });
}

announce();
