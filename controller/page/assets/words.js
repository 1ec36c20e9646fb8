// Words, symbols and order of verdicts, states and severities. Pure.

/**
 * Kinds of tiles, worst first; tiles and badges show `letter`, so that colour is never the only sign. `now` ends the announcement of a drive
 * that gets this kind; without it the announcement is "is now WORD".
 */
export const KINDS = [
  { kind: "bad", word: "BAD", letter: "B", text: "failing: move its data now" },
  { kind: "missing", word: "missing", letter: "M", text: "known and not present" },
  { kind: "suspect", word: "SUSPECT", letter: "S", text: "first signs of failure: no new volumes" },
  { kind: "warning", word: "warning", letter: "!", text: "verdict GOOD or UNKNOWN, with another problem", now: "has a warning" },
  { kind: "unknown", word: "UNKNOWN", letter: "?", text: "health is not known" },
  { kind: "good", word: "GOOD", letter: "", text: "no findings" },
];
const RANK = new Map(KINDS.map(({ kind }, index) => [kind, index]));
const BY_KIND = new Map(KINDS.map((entry) => [entry.kind, entry]));

/** Problems that are no verdict, by severity: the backend's word, and the words for people. */
const PROBLEMS = new Map([
  ["DATA_LOSS", "data of a volume on it is lost or damaged"],
  ["INACCESSIBLE", "volumes on it cannot be used"],
  ["MISSING", "not found on its node"],
  ["NO_ANSWER", "does not answer"],
  ["DAMAGED", "its label cannot be read"],
  ["DEGRADED", "volumes on it are degraded"],
  ["WARNING", "has a condition that may become worse"],
]);
/** Severities of [PROBLEMS] that are worse than the verdict SUSPECT. */
const SEVERE = new Set(["DATA_LOSS", "INACCESSIBLE", "MISSING", "NO_ANSWER", "DAMAGED"]);

/** Returns the severity of a drive's problems, "" for none; a drive that could not be probed gives no answer. */
function severityOf(drive) {
  return drive.severity || (drive.state === "unprobed" ? "NO_ANSWER" : "");
}

/** Returns the kind of a drive: an unknown verdict counts as UNKNOWN, and an unknown severity as a problem. */
export function kindOf(drive) {
  if (drive.state === "missing") return "missing";
  const verdict = String(drive.verdict ?? "").toLowerCase();
  if (verdict === "bad" || verdict === "suspect") return verdict;
  if (severityOf(drive) !== "") return "warning";
  return verdict === "good" ? verdict : "unknown";
}

/** Returns the state of a drive of this kind in words. */
export function kindText(kind, drive) {
  if (kind !== "warning") return kindEntry(kind).text;
  const problem = PROBLEMS.get(severityOf(drive)) ?? `has a problem (${severityOf(drive)})`;
  return `${problem}; its verdict is ${drive.verdict ?? "UNKNOWN"}`;
}

/** Returns the entry of [KINDS]. */
export function kindEntry(kind) {
  return BY_KIND.get(kind) ?? BY_KIND.get("unknown");
}

/** Returns a number that is smaller the worse a drive of this kind is: with a severe problem it comes before SUSPECT drives. */
export function rank(kind, drive) {
  const known = RANK.get(kind) ?? RANK.get("unknown");
  return kind === "warning" && SEVERE.has(severityOf(drive)) ? RANK.get("suspect") - 0.5 : known;
}

/** Returns true for the rank of a drive that is worse than SUSPECT. */
export function isSevere(number) {
  return number < RANK.get("suspect");
}

/** Returns the words for the state of a node; "connected" and absent are "". */
export function nodeState(node) {
  switch (node?.state) {
    case "connected": return "";
    case "away": return "disconnected";
    case "starting": return "starting";
    case "forgotten": return "forgotten";
    default: return node?.state ? String(node.state) : "";
  }
}

/** Returns the kind whose symbol and colour a finding of this severity has; "info" for a note. */
export function severityKind(severity) {
  switch (severity) {
    case "BAD": return "bad";
    case "SUSPECT": return "suspect";
    case "MISSING": return "missing";
    default: return PROBLEMS.has(severity) ? "warning" : "info";
  }
}

/** Returns "ReallocatedSectors" as "Reallocated sectors". */
export function spoken(code) {
  const words = String(code).replace(/[_-]+/g, " ").replace(/([a-z0-9])([A-Z])/g, "$1 $2").trim();
  return words.charAt(0).toUpperCase() + words.slice(1).toLowerCase();
}

/** Returns the words for a bay: "bay 3" for "3" and for "bay 3"; "" for none. */
export function bayText(bay) {
  if (bay === null || bay === undefined || bay === "") return "";
  return /^bay\b/i.test(bay) ? String(bay) : `bay ${bay}`;
}

/** Returns the bay of a drive of the store, else its device, serial number or id. */
export function shortDrive({ raw }) {
  return bayText(raw.bay) || raw.device || raw.serial || raw.id;
}

/** Returns the text with a capital first letter. */
export function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Returns the fragment of a drive's view. */
export function driveHref(node, id) {
  return `#/drive/${encodeURIComponent(node)}/${encodeURIComponent(id)}`;
}
