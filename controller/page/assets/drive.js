// The view of one drive; a section is drawn again only if its part of the answer has changed, and keeps the focus.

import { h, replace, text } from "./dom.js";
import { Poll } from "./poll.js";
import { meter } from "./table.js";
import { count, percent, roughly, size } from "./units.js";
import { bayText, kindOf, kindText, nodeState, shortDrive } from "./words.js";
import * as sections from "./sections.js";

/** Delay of a fetch after a change, and interval of fetches without one, milliseconds. */
const SOON = 700;
const EVERY = 15000;

const PARTS = [
  { key: "findings", title: "Findings", make: sections.findings, from: (body) => [body.findings, body.kind, body.notes], place: "main" },
  { key: "volumes", title: "Volumes", make: sections.volumes, from: (body) => body.volumes, place: "main" },
  { key: "unreadable", title: "Unreadable ranges", make: sections.unreadable, from: (body) => [body.unreadable, body.unreadableMore], place: "main" },
  { key: "commands", title: "Commands", make: sections.commands, from: (body) => body.commands, place: "main" },
  { key: "facts", title: "Drive", make: sections.facts, from: (body) => ({ ...body, smart: 0, latency: 0, commands: 0, notes: 0, claims: 0, volumes: 0, findings: 0, unreadable: 0 }), place: "side" },
  { key: "latency", title: "Latency", make: sections.latencies, from: (body) => body.latency, place: "side" },
  { key: "smart", title: "SMART", make: sections.smart, from: (body) => [body.smart, body.smartFailure, body.smartAnsweredAt], place: "side" },
];

/** Returns a sentence about the volumes of a drive, "" for none. */
function on(raw) {
  if (raw.volumes === 0) return "";
  if (!Number.isFinite(raw.volumes)) return " Its volumes are not known.";
  const claims = raw.claims ?? [];
  const more = claims.length > 3 ? ` and ${claims.length - 3} more` : "";
  return ` On it: ${count(raw.volumes, "volume")}${claims.length > 0 ? `, of ${claims.slice(0, 3).join(", ")}${more}` : ""}.`;
}

/** The view. */
export class DriveView {
  constructor(store) {
    this.store = store;
    this.heading = h("h1", { tabindex: "-1" });
    this.crumb = h("p", { class: "crumb" }, h("a", { href: "#/", data: { key: "back" } }, "← Fleet"), this.node = h("span", {}));
    this.marks = h("div", { class: "drive-marks" });
    this.lead = h("p", { class: "drive-lead" });
    this.use = h("div", { class: "drive-use" });
    this.away = h("p", { class: "trouble", hidden: true });
    this.trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    this.columns = { main: h("div", { class: "drive-main" }), side: h("div", { class: "drive-side" }) };
    this.parts = PARTS.map((part) => {
      const body = h("div", { class: "panel-body" });
      const element = h("section", { class: `panel part-${part.key}`, "aria-labelledby": `drive-${part.key}`, hidden: true },
        h("div", { class: "panel-head" }, h("h2", { id: `drive-${part.key}` }, part.title)), body);
      this.columns[part.place].append(element);
      return { ...part, body, element, shown: null };
    });
    this.element = h("div", { class: "view drive" }, this.crumb, h("div", { class: "drive-head" }, h("div", { class: "drive-name" }, this.marks, this.heading), this.use), this.lead,
      this.away, this.trouble, h("div", { class: "drive-columns" }, this.columns.main, this.columns.side));
    this.poll = new Poll({ path: () => `api/drive?${new URLSearchParams({ node: this.name, id: this.id })}`, every: EVERY,
      draw: (body) => this.draw(body), failed: (error) => this.failed(error) });
    store.listen((change) => this.changed(change));
  }

  /** Shows the drive with this node and id. */
  show([node, id]) {
    this.visible = true;
    this.name = node;
    this.id = id;
    this.body = null;
    this.title = `Drive ${id} of ${node}`;
    for (const part of this.parts) {
      part.shown = null;
      part.element.hidden = true;
      part.body.replaceChildren();
    }
    this.trouble.hidden = true;
    this.head();
    this.poll.show();
    this.clock = setInterval(() => this.head(), 5000);
  }

  hide() {
    this.visible = false;
    this.poll.hide();
    clearInterval(this.clock);
  }

  changed(change) {
    if (!this.visible) return;
    const own = this.store.drive(this.name, this.id);
    const mine = change.all || change.drives.has(own) || change.removed.some((drive) => drive.node.name === this.name && drive.id === this.id);
    if (mine) {
      this.head();
      this.poll.later(SOON);
    } else if ([...change.nodes].some(({ name }) => name === this.name)) this.head();
  }

  /** Draws the drive as the fleet has it, also before the answer has arrived. */
  head() {
    const drive = this.store.drive(this.name, this.id);
    const node = this.store.nodes.get(this.name);
    const raw = drive?.raw ?? this.body ?? {};
    text(this.node, ` / ${this.name}${raw.bay ? ` / ${bayText(raw.bay)}` : ""}`);
    text(this.heading, raw.model ? `${raw.model}` : shortDrive({ raw: { ...raw, id: this.id } }));
    this.title = `${raw.model ?? this.id}, ${this.name} ${bayText(raw.bay)}`.trim();
    const shown = JSON.stringify([drive?.kind, raw.severity, raw.verdict, raw.cordoned, raw.acknowledged, raw.bytes, raw.freeBytes, raw.serial, raw.class, raw.volumes, raw.claims]);
    const word = nodeState(node);
    this.away.hidden = word === "";
    if (word) {
      const since = node.awayAt;
      text(this.away, `${this.name} is ${word}${since === null ? "" : ` since ${roughly(this.store.now() - since)}`}: the last known state is shown.`);
    }
    if (shown === this.headed && this.headedId === this.id) return;
    this.headed = shown;
    this.headedId = this.id;
    this.marks.replaceChildren(...(drive ? sections.marks(drive).filter(Boolean) : []));
    if (drive) text(this.lead, `${drive.node.name}${raw.bay ? `, ${bayText(raw.bay)}` : ""}: ${kindText(drive.kind, raw)}.${on(raw)}`);
    else text(this.lead, this.store.loaded ? "This drive is no longer in the fleet." : "");
    replace(this.use, drive && drive.used !== null
      ? meter(drive.used, `${percent(drive.used, 1)} used, ${size(drive.free)} free of ${size(drive.bytes)}`) : raw.bytes ? size(raw.bytes) : "");
  }

  failed(error) {
    this.trouble.hidden = false;
    text(this.trouble, error.status === 404 ? "The server does not know this drive."
      : `The drive cannot be fetched: ${error.message}.${this.body ? " The last answer is shown." : ""}`);
  }

  draw(body) {
    this.body = { ...body, kind: kindOf(body) };
    this.trouble.hidden = true;
    this.head();
    for (const part of this.parts) {
      const shown = JSON.stringify(part.from(this.body) ?? null);
      if (shown === part.shown) continue;
      part.shown = shown;
      const made = part.make(this.body);
      part.element.hidden = made === null;
      const open = new Set([...part.body.querySelectorAll("details[open] > summary")].map((summary) => summary.dataset.key));
      replace(part.body, made);
      for (const summary of part.body.querySelectorAll("details > summary")) if (open.has(summary.dataset.key)) summary.parentElement.open = true;
    }
  }
}
