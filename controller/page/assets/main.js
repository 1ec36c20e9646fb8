// Start of the page: session, views by fragment, state of the connection.

import { ActivityView } from "./activity.js";
import { hasToken, json, setToken } from "./api.js";
import { announce, attr, h, text } from "./dom.js";
import { DriveView } from "./drive.js";
import { FleetView } from "./fleet.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { tokenForm } from "./token.js";
import { clock, roughly } from "./units.js";
import { VolumesView } from "./volumes.js";

const at = (id) => document.getElementById(id);
const store = new Store();
const views = { fleet: new FleetView(store), drive: new DriveView(store), volumes: new VolumesView(store), activity: new ActivityView(store) };
const main = at("main");
let current = null;
let session = null;
let link = { name: "starting" };

const stream = new Stream({
  fleet: (body) => store.fleet(body),
  change: (body) => store.change(body),
  heard: () => { store.at = store.now(); },
  state: (state) => {
    if (state.name === "refused") refused(state.error);
    else shown(state);
  },
});

// Routes: #/, #/drive/NODE/ID, #/volumes, #/activity; any other fragment is the fleet.
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  let params = [];
  try { params = parts.slice(1).map(decodeURIComponent); } catch { return { name: "fleet", params: [] }; }
  if (parts[0] === "drive" && params.length === 2) return { name: "drive", params };
  return { name: ["volumes", "activity"].includes(parts[0]) ? parts[0] : "fleet", params: [] };
}

function go() {
  // The link to the contents is a fragment of this document, not a route.
  if (location.hash === "#main") {
    main.focus();
    history.replaceState(null, "", current?.hash ?? "#/");
    return;
  }
  if (!session || signingIn()) return;
  const { name, params } = route();
  const before = current;
  if (before?.name === "fleet") views.fleet.leave();
  if (before) views[before.name].hide();
  const view = views[name];
  current = { name, hash: location.hash || "#/" };
  main.replaceChildren(view.element);
  const back = name === "fleet" && before !== null && before.name !== "fleet";
  if (!back) scrollTo({ top: 0, behavior: "instant" });
  view.show(params, back);
  document.title = `${view.title} · Drivebay`;
  for (const tab of document.querySelectorAll("[data-view]")) attr(tab, "aria-current", tab.dataset.view === name ? "page" : null);
  if (before && !back) view.heading.focus({ preventScroll: true });
}

const signingIn = () => main.querySelector(".sign-in") !== null;

function signIn(reason) {
  stream.forget();
  if (current) views[current.name].hide();
  current = null;
  const form = tokenForm(() => {
    main.replaceChildren(h("p", { class: "empty" }, "Loading"));
    start();
  }, reason);
  main.replaceChildren(form.element);
  document.title = `${form.title} · Drivebay`;
  at("forget-token").hidden = true;
  shown({ name: "signed-out" });
  form.focus();
}

function refused(error) {
  if (error.status === 401) setToken(null);
  signIn(error.status === 401 ? `The token was refused: ${error.message}.` : `This token has no access: ${error.message}.`);
}

function start() {
  at("forget-token").hidden = !hasToken();
  if (!document.hidden) stream.start();
  go();
}

// Shows the state of the connection: a word in the header, and a line below it while the data is stale.
function shown(state) {
  if (state.name === "lost" && link.name !== "lost") announce("Disconnected. The data is no longer current");
  if (state.name === "live" && link.name === "lost") announce("Connected again");
  link = state;
  draw();
}

function draw() {
  const { name } = link;
  const words = { starting: "Connecting", live: "Live", lost: "Disconnected", paused: "Paused", "signed-out": "Signed out" };
  attr(at("link"), "data-state", name);
  text(at("link-text"), words[name] ?? name);
  const lost = name === "lost";
  document.body.classList.toggle("is-stale", lost && store.loaded);
  at("stale").hidden = !lost;
  if (!lost) return;
  const now = Date.now() / 1000;
  text(at("stale-title"), `Disconnected since ${clock(link.since)}`);
  const wait = Math.ceil(link.retryAt - now);
  text(at("stale-text"), `(${roughly(now - link.since)}): ${link.reason}. ${store.at === null ? "No data yet." : `What is shown is from ${clock(store.at - store.skew)}.`} ${
    wait > 0 ? `Next attempt in ${wait} s.` : "Trying now."}`);
}

addEventListener("hashchange", go);
at("stale-retry").addEventListener("click", () => stream.start());
at("forget-token").addEventListener("click", () => {
  setToken(null);
  store.fleet({ nodes: [], drives: [] });
  store.log = [];
  location.hash = "#/";
  signIn(null);
});
setInterval(() => { if (link.name === "lost" && !document.hidden) draw(); }, 1000);
// A hidden page sends no requests; when it is visible again, it continues with the changes since the last one.
document.addEventListener("visibilitychange", () => {
  if (!session || signingIn()) return;
  if (document.hidden) stream.pause();
  else stream.start();
});

async function open() {
  for (let wait = 1; ; wait = Math.min(30, wait * 2)) {
    try {
      session = await json("api/session");
      break;
    } catch (error) {
      const now = Date.now() / 1000;
      shown({ name: "lost", since: link.since ?? now, retryAt: now + wait, reason: error.message });
      await new Promise((resolve) => { setTimeout(resolve, wait * 1000); });
    }
  }
  text(at("foot-version"), session.version ? `Drivebay ${session.version}` : "");
  text(at("foot-host"), session.host ? `Host ${session.host}` : "");
  if (session.needsToken && !hasToken()) signIn(null);
  else start();
}
open();
