// The panel of events of the last week that are still known.

import { h, text } from "./dom.js";
import { Poll } from "./poll.js";
import { Table } from "./table.js";
import { NONE, NOT_KNOWN, day } from "./units.js";
import { driveHref, shortDrive, spoken } from "./words.js";

/** Interval of fetches while the panel is shown, milliseconds. */
const EVERY = 15000;

const identity = (row) => JSON.stringify([row.at, row.node, row.drive, row.volume, row.what, row.text]);

/** Returns the claim or volume of an event and a link to its drive, in one line; null without them. */
function about(store, row) {
  const { node, drive, volume, claim } = row;
  const known = node && drive ? store.drive(node, drive) : null;
  const name = claim ?? volume;
  if (!name && !drive) return null;
  return h("span", { class: "under" }, name ? h("span", { class: claim ? null : "mono" }, name) : null, name && drive ? ", " : null,
    drive ? h("a", { href: driveHref(node, drive), class: known ? null : "mono", data: { key: `drive of ${identity(row)}` } }, known ? shortDrive(known) : drive) : null);
}

/** The panel. */
export class EventsPanel {
  constructor(store) {
    this.trouble = h("p", { class: "table-none", role: "alert", hidden: true });
    this.sum = h("span", { class: "side-sum" }, NONE);
    this.table = new Table({ label: "Last week", sort: "-at", empty: "No event is known.", rowKey: identity, columns: [
      { key: "at", title: "When", value: (row) => row.at, cell: (row) => (Number.isFinite(row.at) ? h("time", { datetime: new Date(row.at * 1000).toISOString() }, day(row.at, true)) : NONE) },
      { key: "node", title: "Node", value: (row) => row.node, cell: (row) => row.node ?? NONE },
      { key: "what", title: "What", value: (row) => row.what, cell: (row) => h("span", { class: "strong" }, spoken(row.what ?? NONE)) },
      { key: "text", title: "Details", wide: true, cell: (row) => [row.text ?? NONE, about(store, row)] }] });
    this.element = h("section", { class: "panel", "aria-labelledby": "activity-events" }, h("div", { class: "panel-head" }, h("h2", { id: "activity-events" }, "Last week"), this.sum,
      h("span", { class: "quiet-text" }, "as far as still known: a cleared finding is not listed")), this.trouble, this.table.element);
    this.poll = new Poll({ path: () => "api/history", every: EVERY, draw: (body) => this.draw(body), failed: (error) => this.failed(error) });
  }

  failed(error) {
    this.trouble.hidden = false;
    text(this.trouble, `Events cannot be fetched: ${error.message}.`);
    if (this.table.all.length === 0) text(this.sum, NOT_KNOWN);
  }

  draw({ events, more }) {
    const rows = events ?? [];
    this.table.rows(rows);
    text(this.sum, more ? `newest ${rows.length}` : String(rows.length));
    this.trouble.hidden = true;
  }
}
