// The view of the fleet: summary, search, drives that need attention, and racks, worst first; changes are drawn once per frame.

import { announce, batched, h, place, text } from "./dom.js";
import { Attention } from "./attention.js";
import { Keys } from "./keys.js";
import { Rack } from "./rack.js";
import { badness, matcher } from "./store.js";
import { Summary } from "./summary.js";
import { Tip } from "./tip.js";
import { byName, count } from "./units.js";
import { kindEntry, shortDrive } from "./words.js";

/** The view; it keeps its search and scroll position while another view is shown. */
export class FleetView {
  constructor(store) {
    this.store = store;
    this.title = "Fleet";
    this.racks = new Map();
    this.filter = null;
    this.query = "";
    this.stale = false;
    this.pending = { all: true, nodes: new Set(), drives: new Set() };
    this.draw = batched(() => this.drawPending());

    this.heading = h("h1", { class: "unseen", tabindex: "-1" }, "Fleet");
    this.summary = new Summary((filter) => this.choose(filter));
    this.search = h("input", { type: "search", id: "search", class: "search", placeholder: "Search serial, claim, model, node, bay, id", autocomplete: "off",
      spellcheck: "false", "aria-keyshortcuts": "/", "aria-describedby": "search-result",
      on: { input: batched(() => { this.query = this.search.value; this.remark(); }), keydown: (event) => this.searchKey(event) } });
    this.result = h("p", { id: "search-result", class: "result", role: "status", "aria-live": "polite" });
    this.attention = new Attention();
    this.list = h("ul", { class: "racks", "aria-label": "Nodes, worst first" });
    this.empty = h("p", { class: "empty", hidden: true });
    const side = h("div", { class: "rack-area" },
      h("div", { class: "rack-title" }, h("h2", {}, "Nodes"), h("p", { class: "legend", id: "tile-keys" }, "filled by use; ", h("kbd", {}, "←↑↓→"),
        " move between drives, ", h("kbd", {}, "Enter"), " opens")), this.empty, this.list);
    this.keys = new Keys(this.list, this.search);
    this.tip = new Tip(this.list);
    this.element = h("div", { class: "view fleet" }, this.heading, this.summary.element,
      h("div", { class: "find", role: "search" }, h("label", { class: "unseen", for: "search" }, "Search drives"),
        h("span", { class: "search-box" }, this.search, h("kbd", { class: "slash", "aria-hidden": "true" }, "/")), this.result),
      h("div", { class: "columns" }, this.attention.element, side));

    // Racks are not sorted while one of them has the pointer or the focus.
    this.held = false;
    this.list.addEventListener("pointerenter", () => { this.held = true; });
    this.list.addEventListener("pointerleave", () => { this.held = false; this.sort(); });
    this.list.addEventListener("focusout", () => setTimeout(() => this.sort()));
    store.listen((change) => this.changed(change));
    setInterval(() => this.tick(), 5000);
    this.summary.choose(null);
  }

  show(_params, back) {
    this.visible = true;
    this.drawPending();
    document.addEventListener("keydown", this.slash ??= (event) => this.slashKey(event));
    if (back) {
      scrollTo({ top: this.scroll ?? 0, behavior: "instant" });
      const target = this.returnTo?.isConnected ? this.returnTo : this.keys.current() ?? this.heading;
      target.focus({ preventScroll: this.scroll !== undefined });
    }
  }

  hide() {
    this.visible = false;
    this.tip.hide();
    document.removeEventListener("keydown", this.slash);
  }

  /** Saves scroll position and focus for the return to this view. */
  leave() {
    this.scroll = scrollY;
    const active = document.activeElement;
    if (this.element.contains(active)) this.returnTo = active;
  }

  changed(change) {
    if (change.all) this.pending.all = true;
    else {
      change.nodes.forEach((node) => this.pending.nodes.add(node));
      change.drives.forEach((drive) => this.pending.drives.add(drive));
      change.gone.forEach((node) => this.pending.nodes.add(node));
      change.removed.forEach((drive) => this.pending.nodes.add(drive.node));
    }
    for (const { drive, to } of change.turned.slice(0, 6)) {
      const { now, word } = kindEntry(to);
      announce(`${shortDrive(drive)} of ${drive.node.name} ${now ?? `is now ${word}`}`);
    }
    for (const { drive } of change.turned) this.flash(drive);
    this.draw();
  }

  flash(drive) {
    requestAnimationFrame(() => {
      const tile = this.racks.get(drive.node.name)?.tiles.get(drive.id);
      if (!tile || tile.classList.contains("turned")) return;
      tile.classList.add("turned");
      setTimeout(() => tile.classList.remove("turned"), 4000);
    });
  }

  drawPending() {
    const { all, nodes, drives } = this.pending;
    if (!this.store.loaded) return;
    this.pending = { all: false, nodes: new Set(), drives: new Set() };
    if (!all && nodes.size === 0 && drives.size === 0) return;
    const redrawn = new Set();
    for (const [name, rack] of this.racks) {
      if (this.store.nodes.has(name)) continue;
      rack.element.remove();
      this.racks.delete(name);
    }
    for (const node of all ? this.store.nodes.values() : nodes) {
      if (!this.store.nodes.has(node.name)) continue;
      let rack = this.racks.get(node.name);
      if (!rack) {
        rack = new Rack(node);
        rack.now = () => this.store.now();
        rack.clock();
        this.racks.set(node.name, rack);
        redrawn.add(node);
        continue;
      }
      rack.node = node;
      if (all || rack.tiles.size !== node.drives.size) {
        rack.draw();
        redrawn.add(node);
      } else rack.head();
    }
    for (const drive of drives) {
      const rack = this.racks.get(drive.node.name);
      if (!rack || redrawn.has(drive.node)) continue;
      if (!rack.update(drive)) rack.draw();
      this.tip.update(drive);
    }
    this.sort();
    this.summary.draw(this.store.counts());
    this.remark();
    this.keys.settle();
  }

  /** Sorts the racks, worst first, unless one has the pointer or the focus. */
  sort() {
    const within = this.held || this.list.contains(document.activeElement);
    const racks = [...this.racks.values()];
    if (within && racks.every((rack) => rack.element.isConnected)) return;
    for (const rack of racks) rack.badness = badness(rack.node);
    racks.sort((a, b) => b.badness - a.badness || byName(a.node.name, b.node.name));
    if (this.list.childElementCount === 0) {
      this.list.append(...racks.map((rack) => rack.element));
      return;
    }
    let next = this.list.firstElementChild;
    for (const rack of racks) {
      if (rack.element === next) next = next.nextElementSibling;
      else place(this.list, rack.element, next);
    }
  }

  choose(filter) {
    this.filter = filter;
    this.summary.choose(filter);
    this.remark();
  }

  /** Applies search and filter. */
  remark() {
    const on = this.filter !== null || this.query.trim() !== "";
    const matches = on ? matcher(this.query, this.filter) : null;
    if (on || this.marked) {
      let nodes = 0;
      for (const rack of this.racks.values()) if (rack.mark(matches) > 0) nodes += 1;
      this.marked = on;
      this.shownNodes = nodes;
    }
    const sum = (this.attention.draw(this.store, matches), on ? this.attention.found : 0);
    text(this.result, on ? `${count(sum, "drive")} on ${count(this.shownNodes ?? 0, "node")}` : "");
    this.empty.hidden = this.racks.size > 0 && !(on && sum === 0);
    text(this.empty, this.racks.size === 0 ? "No node has ever been connected." : "No drive matches. Escape clears the search.");
    this.keys.settle();
  }

  searchKey(event) {
    if (event.key === "Escape") {
      this.search.value = "";
      this.query = "";
      this.choose(null);
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      this.query = this.search.value;
      this.remark();
      if (this.keys.first()) event.preventDefault();
    }
  }

  slashKey(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
    event.preventDefault();
    this.search.focus();
    this.search.select();
  }

  tick() {
    if (!this.visible) return;
    for (const rack of this.racks.values()) if (rack.node.state !== "connected") rack.clock();
  }
}
