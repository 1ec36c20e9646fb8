// Nodes and drives of the fleet, their counts, search and order; no elements of the document.

import { byName, size } from "./units.js";
import { bayText, isSevere, kindOf, rank } from "./words.js";

/** Largest number of state changes that are kept for the activity view. */
const KEPT = 60;

const keyOf = (node, id) => `${node}\n${id}`;

/** A node with its drives; `awayAt` is the Unix time of its disconnection or null, the other fields are those of the backend. */
class NodeEntry {
  constructor(name) {
    this.name = name;
    this.drives = new Map();
    this.state = null;
    this.findings = [];
    this.version = null;
    this.awayAt = null;
  }

  take(raw, now) {
    this.state = raw.state ?? null;
    this.version = raw.version ?? null;
    this.findings = Array.isArray(raw.findings) ? raw.findings : [];
    this.awayAt = this.state === "connected" ? null : raw.awaySince ?? (Number.isFinite(raw.awaySeconds) ? now - raw.awaySeconds : null);
  }
}

/** A drive: the fields of the backend in `raw`, and values derived from them. */
class DriveEntry {
  constructor(raw, node) {
    this.node = node;
    this.id = raw.id;
    this.take(raw);
  }

  take(raw) {
    this.raw = raw;
    this.kind = kindOf(raw);
    this.rank = rank(this.kind, raw);
    // The space of drives in no class does not count as capacity.
    this.bytes = raw.usableBytes ?? (raw.class ? raw.bytes : null);
    this.counted = this.bytes > 0 && Number.isFinite(raw.freeBytes);
    this.free = this.counted ? Math.min(this.bytes, raw.freeBytes) : null;
    this.used = this.counted ? 1 - this.free / this.bytes : null;
    const words = [this.node.name, raw.id, raw.serial, raw.model, raw.class, raw.media, raw.device, bayText(raw.bay),
      raw.bytes && size(raw.bytes), ...(raw.claims ?? []), ...(raw.findings ?? [])];
    this.hay = words.filter(Boolean).join("\n").toLowerCase();
  }
}

/** The fleet; listeners get `{all: true, turned}` or `{nodes: Set, drives: Set, removed: [DriveEntry], gone: [NodeEntry], turned: [event]}`. */
export class Store {
  constructor() {
    this.nodes = new Map();
    this.listeners = new Set();
    this.log = [];
    this.at = null;
    this.skew = 0;
    this.loaded = false;
  }

  /** Calls `listener` after each change until the returned function is called. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Returns the Unix time of the server's clock in seconds. */
  now() {
    return Date.now() / 1000 + this.skew;
  }

  /** Replaces the fleet by an answer of /api/fleet; entries of the same name stay the same objects, so that their elements can be kept. */
  fleet(body) {
    if (Number.isFinite(body.at)) this.skew = body.at - Date.now() / 1000;
    const before = this.nodes;
    this.nodes = new Map();
    const turned = [];
    for (const raw of body.nodes ?? []) {
      const entry = before.get(raw.name) ?? new NodeEntry(raw.name);
      entry.take(raw, this.now());
      this.nodes.set(raw.name, entry);
    }
    const old = new Map();
    for (const node of before.values()) for (const drive of node.drives.values()) old.set(keyOf(node.name, drive.id), drive);
    for (const node of before.values()) node.drives = new Map();
    for (const raw of body.drives ?? []) this.put(raw, old.get(keyOf(raw.node, raw.id)), turned);
    this.at = this.now();
    const first = !this.loaded;
    this.loaded = true;
    this.tell({ all: true, turned: first ? [] : turned });
  }

  /** Applies an event of /api/changes. */
  change(body) {
    const change = { nodes: new Set(), drives: new Set(), removed: [], gone: [], turned: [] };
    for (const raw of body.nodes ?? []) {
      const entry = this.node(raw.name);
      entry.take(raw, this.now());
      change.nodes.add(entry);
    }
    for (const raw of body.drives ?? []) {
      const entry = this.put(raw, this.drive(raw.node, raw.id), change.turned);
      change.drives.add(entry);
      change.nodes.add(entry.node);
    }
    for (const { node: name, id } of body.removed ?? []) {
      const node = this.nodes.get(name);
      if (!node) continue;
      if (id === null || id === undefined) {
        this.nodes.delete(name);
        change.gone.push(node);
        change.nodes.delete(node);
        continue;
      }
      const drive = node.drives.get(id);
      if (!drive) continue;
      node.drives.delete(id);
      change.removed.push(drive);
      change.nodes.add(node);
    }
    this.at = this.now();
    this.tell(change);
  }

  node(name) {
    let entry = this.nodes.get(name);
    if (!entry) {
      entry = new NodeEntry(name);
      this.nodes.set(name, entry);
    }
    return entry;
  }

  put(raw, known, turned) {
    const node = this.node(raw.node);
    const before = known?.kind;
    let drive = known;
    if (drive) {
      drive.node = node;
      drive.take(raw);
    } else drive = new DriveEntry(raw, node);
    node.drives.set(raw.id, drive);
    if (before !== undefined && before !== drive.kind) turned.push({ at: this.now(), drive, from: before, to: drive.kind });
    return drive;
  }

  tell(change) {
    this.log.unshift(...change.turned.slice().reverse());
    this.log.length = Math.min(this.log.length, KEPT);
    for (const listener of this.listeners) listener(change);
  }

  /** Returns a drive, or undefined. */
  drive(node, id) {
    return this.nodes.get(node)?.drives.get(id);
  }

  /** Yields all drives. */
  *drives() {
    for (const node of this.nodes.values()) yield* node.drives.values();
  }

  /** Returns the number of drives by kind, of cordoned drives and of nodes by state, and the capacity in bytes. */
  counts() {
    const counts = { drives: 0, bad: 0, missing: 0, suspect: 0, warning: 0, unknown: 0, good: 0, cordoned: 0, bytes: 0, free: 0, nodes: 0, away: 0, starting: 0 };
    for (const node of this.nodes.values()) {
      counts.nodes += 1;
      if (node.state === "away") counts.away += 1;
      else if (node.state === "starting") counts.starting += 1;
      for (const drive of node.drives.values()) {
        counts.drives += 1;
        counts[drive.kind] += 1;
        if (drive.raw.cordoned) counts.cordoned += 1;
        if (drive.kind === "missing" || !drive.counted) continue;
        counts.bytes += drive.bytes;
        counts.free += drive.free;
      }
    }
    return counts;
  }
}

/** Returns a predicate for drives: all words of `query` occur, and the kind is `filter`, which may be "cordoned", or null for any. */
export function matcher(query, filter) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  // "bay 7" is one term, since "7" alone matches nearly every serial number.
  const terms = [];
  for (let index = 0; index < words.length; index += 1) {
    if (words[index] === "bay" && words[index + 1]) {
      terms.push({ bay: words[index + 1] });
      index += 1;
    } else terms.push({ word: words[index] });
  }
  return (drive) => (filter === null || (filter === "cordoned" ? Boolean(drive.raw.cordoned) : drive.kind === filter))
    && terms.every(({ word, bay }) => (bay === undefined ? drive.hay.includes(word) : bayText(drive.raw.bay).toLowerCase() === `bay ${bay}`));
}

/** Orders drives by severity, worst first, then by node and bay. */
export function worstFirst(a, b) {
  return a.rank - b.rank || byName(a.node.name, b.node.name) || byBay(a, b);
}

/** Orders drives of a node by bay. */
export function byBay(a, b) {
  return byName(a.raw.bay, b.raw.bay) || byName(a.raw.device, b.raw.device) || byName(a.id, b.id);
}

/** Returns a number that is larger the worse a node is: BAD drives count most, then missing ones, severe problems, SUSPECT, other problems, a lost session. */
export function badness(node) {
  let sum = node.state === "away" ? 50 : node.state === "starting" ? 5 : 0;
  for (const drive of node.drives.values()) {
    if (drive.kind === "bad") sum += 10000;
    else if (drive.kind === "missing") sum += 4000;
    else if (drive.kind === "suspect") sum += 100;
    else if (drive.kind === "warning") sum += isSevere(drive.rank) ? 1000 : 60;
    else if (drive.kind === "unknown") sum += 1;
  }
  return sum + (node.findings?.length ? 20 : 0);
}
