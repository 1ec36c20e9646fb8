// The view of activities: progress of moves, copies and erases, running and last checks, events of the last week, and state changes of drives since
// the page was opened.

import { h, text } from "./dom.js";
import { badge } from "./attention.js";
import { EventsPanel } from "./events.js";
import { Poll } from "./poll.js";
import { Table, meter } from "./table.js";
import { NONE, NOT_KNOWN, clock, count, day, percent, seconds, size } from "./units.js";
import { driveHref, kindEntry, shortDrive } from "./words.js";

/** Interval of fetches while the view is shown, milliseconds. */
const EVERY = 2000;

/** Returns a link to a drive, with its bay if the fleet has the drive. */
function link(store, node, id) {
  if (!node || !id) return id ?? NONE;
  const drive = store.drive(node, id);
  return h("a", { href: driveHref(node, id), class: drive ? null : "mono", data: { key: `${node} ${id}` } }, drive ? shortDrive(drive) : id,
    drive ? h("span", { class: "under mono" }, id) : null);
}

function share(row) {
  return Number.isFinite(row.doneBytes) && row.totalBytes > 0 ? row.doneBytes / row.totalBytes : null;
}

const volume = { key: "volume", title: "Volume", wide: true, value: (row) => row.claim ?? row.name ?? row.volume,
  cell: (row) => [h("span", { class: "strong" }, row.claim ?? row.name ?? row.volume ?? NONE), row.name && row.volume ? h("span", { class: "under mono" }, row.volume) : null] };
const node = { key: "node", title: "Node", value: (row) => row.node, cell: (row) => row.node ?? NONE };
const state = { key: "state", title: "State", wide: true, value: (row) => row.state, cell: (row) => [row.state ?? NONE, row.text ? h("span", { class: "under" }, row.text) : null] };
const progress = [
  { key: "progress", title: "Progress", number: true, value: share,
    cell: (row) => (share(row) === null ? NOT_KNOWN : meter(share(row), `${percent(row.doneBytes, row.totalBytes)} of ${size(row.totalBytes)}`, "going")) },
  { key: "rate", title: "Rate", number: true, value: (row) => row.bytesPerSecond, cell: (row) => (Number.isFinite(row.bytesPerSecond) ? `${size(row.bytesPerSecond)}/s` : NOT_KNOWN) },
  { key: "left", title: "Time left", number: true, value: (row) => row.secondsLeft, cell: (row) => (Number.isFinite(row.secondsLeft) ? seconds(row.secondsLeft) : NOT_KNOWN) },
];

function kinds(store) {
  const drive = (key, title) => ({ key, title, value: (row) => row[key], cell: (row) => link(store, row.node, row[key]) });
  const way = [volume, node, drive("from", "From"), drive("to", "To"), state, ...progress];
  return [
    { kind: "moves", title: "Moves", empty: "No volume is being moved.", columns: way },
    { kind: "copies", title: "Copies", empty: "No copy is being made.", columns: way, optional: true },
    { kind: "erases", title: "Erases", empty: "Nothing is being erased.", columns: [volume, node, drive("drive", "Drive"), state, ...progress.filter(({ key }) => key !== "rate")] },
    { kind: "checks", title: "Checks", empty: "No volume has been checked.", columns: [volume, node,
      { key: "outcome", title: "Outcome", value: (row) => row.outcome ?? row.state, cell: (row) => h("span", { class: "strong" }, row.outcome ?? row.state ?? NONE) },
      { key: "text", title: "Details", wide: true, cell: (row) => row.text ?? NONE },
      { key: "method", title: "Method", value: (row) => row.method, cell: (row) => row.method ?? NONE },
      { key: "at", title: "When", number: true, value: (row) => row.at, cell: (row) => (Number.isFinite(row.at) ? day(row.at, true) : NONE) }] },
  ];
}

/** The view. */
export class ActivityView {
  constructor(store) {
    this.title = "Activity";
    this.store = store;
    this.heading = h("h1", { tabindex: "-1" }, "Activity");
    this.trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    this.silent = h("p", { class: "trouble", hidden: true });
    this.parts = kinds(store).map(({ kind, title, empty, columns, optional, sort }) => {
      const table = new Table({ label: title, columns, empty, sort, rowKey: (row) => [row.node, row.volume, row.from ?? row.drive, row.to, row.at, row.outcome].join(" ") });
      const sum = h("span", { class: "side-sum" }, NONE);
      return { kind, empty, table, sum, optional, element: h("section", { class: "panel", "aria-labelledby": `activity-${kind}`, hidden: optional }, h("div", { class: "panel-head" },
        h("h2", { id: `activity-${kind}` }, title), sum), table.element) };
    });
    this.events = new EventsPanel(store);
    this.log = h("ol", { class: "log" });
    this.noLog = h("p", { class: "table-none" }, "No drive has changed its state since the page was opened.");
    this.element = h("div", { class: "view" }, h("div", { class: "view-head" }, this.heading), this.trouble, this.silent, this.parts.map(({ element }) => element), this.events.element,
      h("section", { class: "panel", "aria-labelledby": "activity-log" }, h("div", { class: "panel-head" }, h("h2", { id: "activity-log" }, "State changes of drives"),
        h("span", { class: "quiet-text" }, "while this page was open")), this.noLog, this.log));
    this.poll = new Poll({ path: () => "api/activity", every: EVERY, draw: (body) => this.draw(body), failed: (error) => this.failed(error) });
    store.listen(({ turned }) => { if (this.visible && turned.length > 0) this.drawLog(); });
  }

  show() {
    this.visible = true;
    this.drawLog();
    this.poll.show();
    this.events.poll.show();
  }

  hide() {
    this.visible = false;
    this.poll.hide();
    this.events.poll.hide();
  }

  failed(error) {
    this.trouble.hidden = false;
    text(this.trouble, `Activities cannot be fetched: ${error.message}. The last answer is shown.`);
  }

  draw(body) {
    this.trouble.hidden = true;
    const silent = body.silent ?? [];
    for (const { kind, empty, table, sum, element, optional } of this.parts) {
      const rows = body[kind] ?? [];
      // With moves and copies that could not be read, a list without rows does not mean that there are none.
      const isPartial = !body[kind] || (silent.length > 0 && (kind === "moves" || kind === "copies"));
      text(table.none, isPartial ? "Not known for all nodes." : empty);
      table.rows(rows);
      text(sum, isPartial ? (rows.length > 0 ? `at least ${rows.length}` : NOT_KNOWN) : String(rows.length));
      if (optional) element.hidden = rows.length === 0 && !isPartial;
    }
    this.silent.hidden = silent.length === 0 && !body.more;
    text(this.silent, [silent.length > 0 && `Moves and copies of ${count(silent.length, "node")} could not be read: ${silent.slice(0, 8).join(", ")}${silent.length > 8 ? " and others" : ""}.`,
      body.more && "The lists are not complete."].filter(Boolean).join(" "));
  }

  drawLog() {
    const { log } = this.store;
    this.noLog.hidden = log.length > 0;
    this.log.replaceChildren(...log.map(({ at, drive, from, to }) => h("li", {}, h("time", {}, clock(at)), badge(to),
      h("a", { href: driveHref(drive.node.name, drive.id) }, drive.node.name, ` ${shortDrive(drive)}`), h("span", { class: "quiet-text" }, `before: ${kindEntry(from).word}`))));
  }
}
