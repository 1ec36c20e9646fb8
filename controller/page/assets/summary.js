// The summary of the fleet: drives by kind as filter buttons, capacity, nodes.

import { attr, h, text } from "./dom.js";
import { NONE, count, percent, size, whole } from "./units.js";
import { KINDS } from "./words.js";

/** Draws counts; calls `choose` with a kind, or null, when a filter is pressed. */
export class Summary {
  constructor(choose) {
    this.stats = new Map();
    this.filter = null;
    const stat = (kind, word, letter, title) => {
      const number = h("span", { class: "stat-number" }, NONE);
      const button = h("button", { type: "button", class: `stat ${kind}`, "aria-pressed": "false", title, data: { key: `stat ${kind}` },
        on: { click: () => choose(this.filter === kind || kind === "all" ? null : kind) } },
      h("span", { class: "stat-mark", "aria-hidden": "true" }, letter), number, h("span", { class: "stat-word" }, word));
      this.stats.set(kind, { button, number });
      return button;
    };
    const kinds = KINDS.map(({ kind, word, letter, text: title }) => stat(kind, word, letter, title));
    const all = stat("all", "drives", "", "All drives");
    const cordoned = stat("cordoned", "cordoned", "", "Drives that an operator has excluded from new volumes");
    this.bar = h("span", { class: "meter-fill" });
    this.capacity = h("span", { class: "capacity-text" });
    this.nodes = h("span", { class: "nodes-text" });
    this.away = h("span", { class: "nodes-away", hidden: true });
    this.element = h("section", { class: "summary", "aria-label": "Summary" },
      h("div", { class: "stats", role: "group", "aria-label": "Filter by state" }, all, kinds, cordoned),
      h("div", { class: "totals" },
        h("p", { class: "capacity" }, h("span", { class: "meter", "aria-hidden": "true" }, this.bar), this.capacity),
        h("p", { class: "nodes" }, this.nodes, this.away)));
  }

  /** Draws the counts of [Store.counts]. */
  draw(counts) {
    for (const [kind, { button, number }] of this.stats) {
      const sum = kind === "all" ? counts.drives : counts[kind];
      text(number, whole(sum));
      button.classList.toggle("none", sum === 0);
      attr(button, "hidden", sum === 0 && (kind === "cordoned" || kind === "unknown") && this.filter !== kind);
    }
    const used = counts.bytes - counts.free;
    this.bar.style.setProperty("--use", counts.bytes > 0 ? `${(used / counts.bytes) * 100}%` : "0%");
    text(this.capacity, counts.bytes > 0
      ? `${percent(used, counts.bytes)} used, ${size(counts.free)} free of ${size(counts.bytes)}` : "No capacity is known");
    text(this.nodes, count(counts.nodes, "node"));
    const missing = [counts.away > 0 && `${counts.away} disconnected`, counts.starting > 0 && `${counts.starting} starting`].filter(Boolean);
    this.away.hidden = missing.length === 0;
    text(this.away, missing.join(", "));
  }

  /** Shows the active filter. */
  choose(filter) {
    this.filter = filter;
    for (const [kind, { button }] of this.stats) attr(button, "aria-pressed", String(filter === null ? kind === "all" : kind === filter));
  }
}
