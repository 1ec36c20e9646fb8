// The view of volumes: a table with search, claims, conditions and snapshots.

import { json } from "./api.js";
import { batched, h, text } from "./dom.js";
import { Table, meter } from "./table.js";
import { NONE, NOT_KNOWN, count, day, percent, size, whole } from "./units.js";
import { bayText, driveHref, sentence } from "./words.js";

/** Shortest interval of fetches after changes, milliseconds. */
const PAUSE = 5000;

/** Returns the words of a search in lower case. */
const wordsOf = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);

/** Returns the columns of volumes; `store` names their drives by bay, and null leaves out the column of the drive. */
export function volumeColumns(store) {
  const place = (row) => {
    const bay = bayText(store?.drive(row.node, row.drive)?.raw.bay);
    return bay ? ` ${bay}` : null;
  };
  const columns = [
    { key: "volume", title: "Volume", value: (row) => row.name ?? row.id, wide: true,
      cell: (row) => [h("span", { class: "strong" }, row.claim ?? row.name ?? row.id),
        h("span", { class: "under mono" }, row.claim && row.name ? `${row.name} ` : null, h("span", { class: "id" }, row.id))] },
    store && { key: "drive", title: "Drive", value: (row) => `${row.node ?? ""} ${row.drive ?? ""}`,
      cell: (row) => (row.node && row.drive
        ? h("a", { href: driveHref(row.node, row.drive), data: { key: `drive ${row.id}` } }, row.node, place(row), h("span", { class: "under mono" }, row.drive))
        : row.node ?? NONE) },
    { key: "size", title: "Size", number: true, value: (row) => row.bytes, cell: (row) => size(row.bytes) },
    { key: "used", title: "Used", number: true, value: (row) => (row.usedBytes === null || row.usedBytes === undefined ? null : row.usedBytes / row.bytes),
      cell: (row) => (Number.isFinite(row.usedBytes) && row.bytes > 0
        ? meter(row.usedBytes / row.bytes, percent(row.usedBytes, row.bytes), row.usedBytes / row.bytes > 0.97 ? "suspect" : "") : NONE) },
    { key: "kind", title: "Kind", value: (row) => row.filesystem ?? "block",
      cell: (row) => [row.filesystem || "block", row.layout ? h("span", { class: "under" }, row.layout) : null] },
    { key: "state", title: "State", value: (row) => row.state, cell: (row) => [row.state ?? NONE, row.inUse ? h("span", { class: "under" }, "in use") : null] },
    { key: "snapshots", title: "Snapshots", number: true, value: (row) => row.snapshots?.length, cell: snapshots },
    { key: "conditions", title: "Conditions", wide: true, value: (row) => (row.conditions ? -row.conditions.length : null), cell: conditions },
  ];
  return columns.filter(Boolean);
}

function snapshots(row) {
  const list = row.snapshots;
  if (!Array.isArray(list)) return NOT_KNOWN;
  if (list.length === 0) return NONE;
  return h("details", {}, h("summary", { data: { key: `snapshots ${row.id}` } }, String(list.length)), h("ul", { class: "plain" }, list.map((snapshot) =>
    h("li", {}, h("span", { class: snapshot.name ? "strong" : "mono" }, snapshot.name ?? snapshot.id),
      h("span", { class: "under" }, Number.isFinite(snapshot.createdAt) ? day(snapshot.createdAt, true) : "",
      snapshot.state ? ` · ${snapshot.state}` : "")))));
}

function conditions(row) {
  const list = row.conditions;
  if (!Array.isArray(list)) return NOT_KNOWN;
  if (list.length === 0) return h("span", { class: "quiet-text" }, "none");
  return list.map((condition) => h("details", { class: condition.status === null ? "condition note" : "condition" }, h("summary", { data: { key: `condition ${row.id} ${condition.reason}` } },
    h("b", { "aria-hidden": "true" }, "!"), condition.reason),
    condition.status ? h("p", { class: "under" }, condition.status.replace(/_/g, " ").toLowerCase(), Number.isFinite(condition.since) ? ` since ${day(condition.since, true)}` : "") : null,
    condition.text ? h("p", {}, sentence(condition.text)) : null));
}

/** The view. */
export class VolumesView {
  constructor(store) {
    this.title = "Volumes";
    this.volumes = [];
    this.heading = h("h1", { tabindex: "-1" }, "Volumes");
    this.sum = h("p", { class: "result", role: "status", "aria-live": "polite" });
    this.trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    this.more = h("p", { class: "trouble cut-off", role: "status", hidden: true });
    this.only = h("input", { type: "checkbox", id: "only-conditions", on: { change: () => this.draw() } });
    this.search = h("input", { type: "search", id: "volume-search", class: "search", placeholder: "Search claim, name, id, node, condition", autocomplete: "off",
      spellcheck: "false", "aria-keyshortcuts": "/", on: { input: batched(() => this.draw()) } });
    this.table = new Table({ label: "Volumes", columns: volumeColumns(store), rowKey: (row) => `${row.node} ${row.drive} ${row.id}`, sort: "volume", empty: "No volume matches." });
    this.element = h("div", { class: "view" }, h("div", { class: "view-head" }, this.heading, this.sum),
      h("div", { class: "find", role: "search" }, h("label", { class: "unseen", for: "volume-search" }, "Search volumes"), h("span", { class: "search-box" }, this.search,
        h("kbd", { class: "slash", "aria-hidden": "true" }, "/")), h("label", { class: "check" }, this.only, " only with conditions")), this.trouble, this.more, this.table.element);
    store.listen(() => this.stir());
    this.slash = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
      event.preventDefault();
      this.search.focus();
    };
  }

  show() {
    this.visible = true;
    document.addEventListener("keydown", this.slash);
    this.fetch();
  }

  hide() {
    this.visible = false;
    document.removeEventListener("keydown", this.slash);
    this.abort?.abort();
    clearTimeout(this.timer);
    this.timer = null;
  }

  /** Fetches again after a change, at most once in [PAUSE]. */
  stir() {
    if (!this.visible || this.timer || document.hidden) return;
    this.timer = setTimeout(() => { this.timer = null; this.fetch(); }, PAUSE);
  }

  async fetch() {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    try {
      const body = await json("api/volumes", abort.signal);
      this.volumes = body.volumes ?? [];
      this.more.hidden = !body.more;
      text(this.more, body.more ? `There are more volumes than the first ${whole(this.volumes.length)}: the others are neither shown nor searched nor counted here.` : "");
      this.trouble.hidden = true;
      this.loaded = true;
      this.draw();
    } catch (error) {
      if (abort.signal.aborted) return;
      this.trouble.hidden = false;
      text(this.trouble, `Volumes cannot be fetched: ${error.message}.${this.loaded ? " The last answer is shown." : ""}`);
      this.stir();
    }
  }

  draw() {
    if (!this.loaded) return;
    const words = wordsOf(this.search.value);
    const only = this.only.checked;
    const rows = this.volumes.filter((row) => (!only || row.conditions?.length > 0) && (words.length === 0 || matches(row, words)));
    const bytes = rows.reduce((sum, row) => sum + (row.bytes ?? 0), 0);
    const abnormal = rows.filter((row) => row.conditions?.length > 0).length;
    text(this.sum, `${count(rows.length, "volume")}${rows.length < this.volumes.length ? ` of ${whole(this.volumes.length)}` : ""}, ${size(bytes)}, ${abnormal} with conditions`);
    this.table.rows(rows);
  }
}

const hays = new WeakMap();
function matches(row, words) {
  let hay = hays.get(row);
  if (hay === undefined) {
    hay = [row.id, row.name, row.claim, row.persistentVolume, row.node, row.drive, row.filesystem, row.state, row.layout, ...(row.conditions ?? []).map(({ reason }) => reason)]
      .filter(Boolean).join("\n").toLowerCase();
    hays.set(row, hay);
  }
  return words.every((word) => hay.includes(word));
}
