// Words, letters and order of verdicts, states and severities. Pure.

/**
 * Kinds of tiles, worst first: each verdict, and drives that are missing. `letter` is drawn on the tile and in badges, so that a verdict is
 * never told by colour alone.
 */
export const KINDS = [
  { kind: "bad", word: "BAD", letter: "B", text: "failing: move its data now" },
  { kind: "missing", word: "missing", letter: "M", text: "known and not present" },
  { kind: "suspect", word: "SUSPECT", letter: "S", text: "first signs of failure: no new volumes" },
  { kind: "unknown", word: "UNKNOWN", letter: "?", text: "health is not known" },
  { kind: "good", word: "GOOD", letter: "", text: "nothing is against it" },
];
const RANK = new Map(KINDS.map(({ kind }, index) => [kind, index]));
const BY_KIND = new Map(KINDS.map((entry) => [entry.kind, entry]));

/** Returns the kind of a drive. A verdict that this page does not know counts as UNKNOWN. */
export function kindOf(drive) {
  if (drive.state === "missing") return "missing";
  const verdict = String(drive.verdict ?? "").toLowerCase();
  return verdict === "bad" || verdict === "suspect" || verdict === "good" ? verdict : "unknown";
}

/** Returns the entry of [KINDS]. */
export function kindEntry(kind) {
  return BY_KIND.get(kind) ?? BY_KIND.get("unknown");
}

/** Returns 0 for the worst kind. */
export function rank(kind) {
  return RANK.get(kind) ?? RANK.get("unknown");
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

/** Returns one of "bad", "suspect", "info" for a severity in any of the words that the programs use. */
export function severityKind(severity) {
  const word = String(severity ?? "").toLowerCase();
  if (/bad|crit|error|fail|missing|no_answer|unreachable|inaccessible|data_loss/.test(word)) return "bad";
  if (/suspect|warn|degraded/.test(word)) return "suspect";
  return "info";
}

/** Returns "ReallocatedSectors" as "Reallocated sectors", for headings beside the code itself. */
export function spoken(code) {
  const words = String(code).replace(/[_-]+/g, " ").replace(/([a-z0-9])([A-Z])/g, "$1 $2").trim();
  return words.charAt(0).toUpperCase() + words.slice(1).toLowerCase();
}

/** Returns the words for a bay: "bay 3" for "3" and for "bay 3"; "" for none. */
export function bayText(bay) {
  if (bay === null || bay === undefined || bay === "") return "";
  return /^bay\b/i.test(bay) ? String(bay) : `bay ${bay}`;
}

/** Returns the name of a drive that people use: its bay, else its device, serial number or id. Takes an entry of the store. */
export function shortDrive({ raw }) {
  return bayText(raw.bay) || raw.device || raw.serial || raw.id;
}

/** Returns a sentence with a capital letter. */
export function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Returns the hash of a drive's page. */
export function driveHref(node, id) {
  return `#/drive/${encodeURIComponent(node)}/${encodeURIComponent(id)}`;
}
