// One node of the fleet: a heading, and one element per drive in the order of the bays, since ten thousand are drawn.

import { attr, h, text } from "./dom.js";
import { byBay } from "./store.js";
import { percent, roughly, seconds, size, count } from "./units.js";
import { driveHref, kindEntry, kindText, nodeState, sentence, severityKind, shortDrive, spoken } from "./words.js";

/** Returns the accessible name of a drive's tile. */
export function tileLabel(drive) {
  const { raw } = drive;
  const parts = [shortDrive(drive), kindEntry(drive.kind).word];
  if (drive.kind === "warning") parts.push(kindText(drive.kind, raw));
  if (raw.findings?.length) parts.push(raw.findings.map(spoken).join(", "));
  if (raw.acknowledged) parts.push("acknowledged");
  if (raw.cordoned) parts.push("cordoned");
  if (drive.used !== null) parts.push(`${percent(drive.used, 1)} used of ${size(drive.bytes)}`);
  else if (raw.state && raw.state !== "missing") parts.push(raw.state);
  return parts.join(", ");
}

/** The element of a node; `tile.drive` is the drive of a tile. */
export class Rack {
  constructor(node) {
    this.node = node;
    this.tiles = new Map();
    this.name = h("h3", { class: "rack-name" });
    this.state = h("span", { class: "rack-state", hidden: true });
    this.sums = h("span", { class: "rack-sums" });
    this.notes = h("div", { class: "rack-notes", hidden: true });
    this.bays = h("div", { class: "bays", role: "group" });
    this.element = h("li", { class: "rack" }, h("div", { class: "rack-head" }, this.name, this.state, this.sums), this.notes, this.bays);
    this.marked = false;
    this.draw();
  }

  /** Draws the heading and all tiles. */
  draw() {
    this.head();
    const drives = [...this.node.drives.values()].sort(byBay);
    const kept = new Set();
    const wanted = [];
    for (const drive of drives) {
      let tile = this.tiles.get(drive.id);
      if (!tile) {
        tile = document.createElement("a");
        tile.tabIndex = -1;
        this.tiles.set(drive.id, tile);
      }
      this.tile(drive, tile);
      kept.add(drive.id);
      wanted.push(tile);
    }
    for (const [id, tile] of this.tiles) {
      if (kept.has(id)) continue;
      tile.remove();
      this.tiles.delete(id);
    }
    if (wanted.length !== this.bays.children.length || wanted.some((tile, index) => this.bays.children[index] !== tile)) {
      const active = this.bays.contains(document.activeElement) ? document.activeElement : null;
      this.bays.replaceChildren(...wanted);
      active?.focus({ preventScroll: true });
    }
  }

  /** Draws a drive; returns false if it has no tile yet or its bay has changed, which needs [draw]. */
  update(drive) {
    const tile = this.tiles.get(drive.id);
    if (!tile || tile.bay !== drive.raw.bay) return false;
    this.tile(drive, tile);
    return true;
  }

  tile(drive, tile) {
    tile.drive = drive;
    tile.bay = drive.raw.bay;
    const hit = tile.classList.contains("hit");
    const name = `tile ${drive.kind}${drive.raw.cordoned ? " cordoned" : ""}${drive.used === null ? " unused" : ""}${hit ? " hit" : ""}`;
    if (tile.className !== name) tile.className = name;
    attr(tile, "href", driveHref(drive.node.name, drive.id));
    attr(tile, "aria-label", tileLabel(drive));
    text(tile, kindEntry(drive.kind).letter);
    const use = drive.used === null ? "0%" : `${Math.round(drive.used * 100)}%`;
    if (tile.use !== use) {
      tile.use = use;
      tile.style.setProperty("--use", use);
    }
  }

  /** Draws the heading: name, state, number of drives by kind, use. */
  head() {
    const { node } = this;
    text(this.name, node.name);
    attr(this.bays, "aria-label", `Drives of ${node.name}`);
    const counts = { bad: 0, missing: 0, suspect: 0, warning: 0 };
    let bytes = 0;
    let free = 0;
    for (const drive of node.drives.values()) {
      if (drive.kind in counts) counts[drive.kind] += 1;
      if (!drive.counted || drive.kind === "missing") continue;
      bytes += drive.bytes;
      free += drive.free;
    }
    const shown = `${Object.values(counts).join(" ")} ${node.drives.size} ${percent(bytes - free, bytes)}`;
    if (shown !== this.shown) {
      this.shown = shown;
      const badges = Object.entries(counts).filter(([, sum]) => sum > 0).map(([kind, sum]) => {
        const { letter, word } = kindEntry(kind);
        return h("span", { class: `count ${kind}`, title: `${sum} ${word}` }, h("b", { "aria-hidden": "true" }, letter), String(sum),
          h("span", { class: "unseen" }, ` ${word}`));
      });
      this.sums.replaceChildren(...badges, h("span", {}, count(node.drives.size, "drive")), ...(bytes > 0
        ? [h("span", { class: "rack-use", title: `${size(free)} free of ${size(bytes)}` }, percent(bytes - free, bytes))] : []));
    }
    this.clock();
    this.note();
  }

  /** Draws the state of the node and its duration at `now`, Unix seconds. */
  clock(now = this.now?.() ?? Date.now() / 1000) {
    const word = nodeState(this.node);
    this.state.hidden = word === "";
    this.element.classList.toggle("away", word !== "");
    if (word === "") return;
    const since = this.node.awayAt;
    text(this.state, since === null ? word : `${word} ${roughly(now - since)}`);
    this.state.title = since === null ? "" : `for ${seconds(now - since)}; drives as last known`;
  }

  note() {
    const shown = JSON.stringify(this.node.findings);
    if (shown === this.noted) return;
    this.noted = shown;
    this.notes.hidden = this.node.findings.length === 0;
    this.notes.replaceChildren(...this.node.findings.map((finding) => h("details", { class: severityKind(finding.severity) },
      h("summary", {}, h("b", {}, spoken(finding.code ?? "Finding")), " ", h("span", {}, finding.text ?? "")),
      finding.text ? h("p", {}, finding.text) : null, finding.todo ? h("p", { class: "todo" }, sentence(finding.todo)) : null)));
  }

  /** Marks the tiles that `matches` accepts unless all match, and hides the node if none does; returns the number of matches (null matches all). */
  mark(matches) {
    const hits = new Set();
    if (matches !== null) for (const tile of this.tiles.values()) if (matches(tile.drive)) hits.add(tile);
    const some = hits.size > 0 && hits.size < this.tiles.size;
    if (some || this.marked) {
      for (const tile of this.tiles.values()) {
        const hit = some && hits.has(tile);
        if (tile.classList.contains("hit") !== hit) tile.classList.toggle("hit", hit);
      }
    }
    this.marked = some;
    this.element.classList.toggle("filtered", some);
    this.element.hidden = matches !== null && hits.size === 0;
    return matches === null ? this.tiles.size : hits.size;
  }
}
