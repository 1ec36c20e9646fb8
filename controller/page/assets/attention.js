// The list beside the racks: drives that need attention, worst first, or the matches of a search.

import { h, replace, text } from "./dom.js";
import { worstFirst } from "./store.js";
import { count, whole } from "./units.js";
import { driveHref, kindEntry, kindText, sentence, shortDrive, spoken } from "./words.js";

/** Returns the initial number of rows, which is smaller where the racks are below the list. */
const few = () => (matchMedia("(min-width: 1080px)").matches ? 12 : matchMedia("(min-width: 640px)").matches ? 6 : 4);
/** Largest number of rows. */
const MANY = 200;

/** Returns the badge of a kind: symbol and word. */
export function badge(kind) {
  const { letter, word } = kindEntry(kind);
  return h("span", { class: `badge ${kind}` }, letter ? h("b", { "aria-hidden": "true" }, letter) : null, word);
}

/** Returns the `most` worst drives that `accepts` accepts, in order, and the number of all of them. */
export function worst(drives, accepts, most) {
  const first = [];
  let sum = 0;
  for (const drive of drives) {
    if (!accepts(drive)) continue;
    sum += 1;
    // Comparing names is slow, so most drives are compared with the last of the list only.
    if (first.length === most && worstFirst(drive, first[most - 1]) >= 0) continue;
    let at = first.length;
    while (at > 0 && worstFirst(drive, first[at - 1]) < 0) at -= 1;
    first.splice(at, 0, drive);
    first.length = Math.min(first.length, most);
  }
  return { drives: first, sum };
}

/** The list. */
export class Attention {
  constructor() {
    this.title = h("h2", { id: "attention-title" });
    this.sum = h("span", { class: "side-sum" });
    this.list = h("ol", { class: "side-list" });
    this.none = h("p", { class: "side-none", hidden: true });
    this.more = h("button", { type: "button", class: "more", hidden: true, on: { click: () => { this.all = !this.all; this.redraw(); } } });
    this.all = false;
    this.rows = new Map();
    this.element = h("section", { class: "side", "aria-labelledby": "attention-title" },
      h("div", { class: "side-head" }, this.title, this.sum), this.none, this.list, this.more);
  }

  /** Draws the drives that `matches` accepts; with null, those with a problem. */
  draw(store, matches) {
    this.store = store;
    this.matches = matches;
    this.redraw();
  }

  redraw() {
    const accepts = this.matches ?? ((drive) => drive.kind !== "good" && drive.kind !== "unknown");
    const { drives, sum } = worst(this.store.drives(), accepts, this.all ? MANY : few());
    text(this.title, this.matches ? "Matches" : "Needs attention");
    this.found = sum;
    text(this.sum, whole(sum));
    this.none.hidden = sum > 0;
    text(this.none, this.matches ? "No drive matches." : "No drive needs attention.");
    const rows = new Map();
    for (const drive of drives) {
      const key = `${drive.node.name}\n${drive.id}`;
      const shown = JSON.stringify([drive.kind, drive.raw.severity, drive.raw.bay, drive.raw.model, drive.raw.serial, drive.raw.findings, drive.raw.volumes, drive.raw.claims,
        drive.raw.cordoned, drive.raw.acknowledged]);
      const before = this.rows.get(key);
      rows.set(key, before?.shown === shown ? before : { shown, element: row(drive, key) });
    }
    const wanted = [...rows.values()].map(({ element }) => element);
    const same = wanted.length === this.list.children.length && wanted.every((element, index) => this.list.children[index] === element);
    if (!same) replace(this.list, wanted);
    this.rows = rows;
    this.more.hidden = sum <= few();
    const hidden = Math.min(sum, MANY);
    text(this.more, this.all ? "Show fewer" : `Show ${hidden === sum ? `all ${whole(sum)}` : `the worst ${MANY}`}`);
    return sum;
  }
}

function row(drive, key) {
  const { raw } = drive;
  const claims = raw.claims ?? [];
  const affected = claims.length > 0 ? `${claims.slice(0, 2).join(", ")}${claims.length > 2 ? `, ${claims.length - 2} more` : ""}`
    : raw.volumes > 0 ? count(raw.volumes, "volume") : raw.volumes === 0 ? "no volumes" : "volumes not known";
  return h("li", {}, h("a", { href: driveHref(drive.node.name, drive.id), class: `item ${drive.kind}`, data: { key } },
    h("span", { class: "item-top" }, badge(drive.kind), h("span", { class: "item-where" }, drive.node.name, h("span", {}, ` ${shortDrive(drive)}`))),
    raw.findings?.length ? h("span", { class: "item-why" }, raw.findings.map(spoken).join(", "))
      : drive.kind === "warning" ? h("span", { class: "item-why" }, sentence(kindText(drive.kind, raw))) : null,
    h("span", { class: "item-what" }, [raw.model, raw.serial ?? raw.id].filter(Boolean).join(" · ")),
    h("span", { class: "item-claims" }, raw.acknowledged ? "acknowledged · " : null, raw.cordoned ? "cordoned · " : null, affected)));
}
