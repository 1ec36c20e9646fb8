// The sections of a drive's view, each made from a part of the answer; null leaves a section out.

import { badge } from "./attention.js";
import { history, latency, minutes } from "./charts.js";
import { copyButton, h } from "./dom.js";
import { Table } from "./table.js";
import { NONE, NOT_KNOWN, count, day, number, seconds, size, whole } from "./units.js";
import { volumeColumns } from "./volumes.js";
import { kindEntry, sentence, severityKind, spoken } from "./words.js";

/** Returns a finding: severity, text, remedy, commands to copy. */
function finding(entry) {
  const kind = severityKind(entry.severity);
  const commands = entry.commands ?? [];
  return h("li", { class: `finding ${kind}` },
    h("div", { class: "finding-head" }, kind === "info" ? h("span", { class: "badge plain" }, entry.severity ?? "note") : h("span", { class: `badge ${kind}` },
      h("b", { "aria-hidden": "true" }, kindEntry(kind).letter), entry.severity), h("h3", {}, spoken(entry.code ?? "Finding")), h("code", { class: "code" }, entry.code ?? ""),
    entry.acknowledged ? h("span", { class: "badge plain" }, "acknowledged") : null),
    entry.text ? h("p", {}, sentence(entry.text)) : null,
    Number.isFinite(entry.since) ? h("p", { class: "quiet-text" }, `since ${day(entry.since, true)}`) : null,
    entry.todo ? h("p", { class: "todo" }, h("strong", {}, "What to do: "), sentence(entry.todo)) : null,
    commands.map(command));
}

function command(words) {
  return h("div", { class: "command" }, h("code", {}, words), copyButton(words));
}

/** Returns the findings of the drive, with remedies. */
export function findings(body) {
  const list = body.findings ?? [];
  if (list.length === 0) {
    const words = {
      good: "No findings.",
      unknown: "No findings. The health of the drive is not known.",
      warning: "The drive itself has no findings. See the conditions of its volumes.",
    }[body.kind] ?? "No finding is known.";
    return [h("p", { class: "calm" }, words), notes(body)];
  }
  return [h("ol", { class: "findings" }, list.map(finding)), notes(body)];
}

function notes({ notes: list }) {
  return list?.length > 0 ? h("ul", { class: "notes" }, list.map((note) => h("li", {}, sentence(note)))) : null;
}

/** Returns the commands that fit the drive with any verdict. */
export function commands(body) {
  const list = body.commands ?? [];
  return list.length > 0 ? h("div", {}, list.map(command)) : null;
}

/** Returns label and value of a reading, which is "LABEL: VALUE" in `shown`; smartctl's labels have underscores for spaces. */
function reading({ shown, name }) {
  const cut = (shown ?? "").indexOf(": ");
  if (cut <= 0) return { title: spoken(name), value: h("span", { class: "quiet-text" }, NOT_KNOWN) };
  return { title: shown.slice(0, cut).replace(/_/g, " "), value: h("span", { class: "strong" }, shown.slice(cut + 2)) };
}

/** Returns the SMART values with their history. */
export function smart(body) {
  const list = (body.smart ?? []).filter((entry) => entry && entry.name !== undefined);
  const failure = body.smartFailure ? h("p", { class: "smart-note" }, `The last poll failed: ${body.smartFailure}`) : null;
  const at = Number.isFinite(body.smartAnsweredAt) ? h("p", { class: "smart-note quiet-text" }, `polled ${day(body.smartAnsweredAt, true)}`) : null;
  if (list.length === 0) return failure;
  const some = list.some((entry) => entry.history?.length > 1);
  return h("div", {}, failure, at, h("table", { class: "table smart" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Value"), h("th", { scope: "col", class: "number" }, "Now"),
    some ? h("th", { scope: "col" }, "History") : null)),
  h("tbody", {}, list.map((entry) => {
    const { title, value } = reading(entry);
    return h("tr", {}, h("th", { scope: "row" }, title), h("td", { class: "number" }, value),
      some ? h("td", {}, history(entry.history, title) ?? h("span", { class: "quiet-text" }, NONE)) : null);
  }))));
}

/** Returns the latency of the drive beside that of its peers. */
export function latencies(body) {
  if (!body.latency) return h("p", { class: "calm" }, "The latency of this drive is not known.");
  return h("div", {}, latency(body.latency), minutes("Reads", body.latency.read, body.latency), minutes("Writes", body.latency.write, body.latency));
}

/** Returns the unreadable ranges of the drive; an absent list is no empty one, since ranges are known on the drive's node only. */
export function unreadable(body) {
  const list = body.unreadable;
  if (!Array.isArray(list)) {
    return h("p", { class: "calm" }, "The number of unreadable ranges is not known here. On the drive's node, ", h("code", {}, "drivebay-agent drive show"), " lists them.");
  }
  if (list.length === 0) return h("p", { class: "calm" }, body.unreadableMore ? "There are unreadable ranges. They are not known here." : "No unreadable range.");
  // With one length missing the sum is not a number.
  const sum = list.reduce((all, range) => all + (range.bytes ?? NaN), 0);
  const table = new Table({ label: "Unreadable ranges", rowKey: (row) => `${row.offset} ${row.bytes} ${row.volume}`, columns: [
    { key: "offset", title: "Offset", number: true, value: (row) => row.offset, cell: (row) => (Number.isFinite(row.offset) ? whole(row.offset) : NOT_KNOWN) },
    { key: "bytes", title: "Length", number: true, value: (row) => row.bytes, cell: (row) => (Number.isFinite(row.bytes) ? size(row.bytes) : NOT_KNOWN) },
    { key: "volume", title: "Volume", wide: true, value: (row) => row.volume,
      cell: (row) => [row.volume ? h("span", { class: "mono" }, row.volume) : "in no volume", row.holds ? h("span", { class: "under" }, `holds ${row.holds}`) : null] },
    { key: "files", title: "Files", number: true, value: (row) => row.files, cell: (row) => (Number.isFinite(row.files) ? whole(row.files) : row.holds === "files" ? NOT_KNOWN : "not in files") }] });
  table.rows(list);
  const more = body.unreadableMore ? "; there are more" : "";
  return h("div", {}, h("p", { class: "quiet-text" }, `${count(list.length, "range")}, ${Number.isFinite(sum) ? `${size(sum)} in all` : `total size ${NOT_KNOWN}`}${more}`),
    table.element);
}

/** Returns the volumes on the drive. */
export function volumes(body) {
  if (!Array.isArray(body.volumes)) return h("p", { class: "table-none" }, "The volumes of this drive are not known.");
  const table = new Table({ label: "Volumes of the drive", rowKey: (row) => row.id, columns: volumeColumns(null), sort: "volume", empty: "No volume is on this drive." });
  table.rows(body.volumes);
  return table.element;
}

const LABELS = { serial: "Serial", id: "Id", device: "Device", media: "Media", transport: "Bus", class: "Class", firmware: "Firmware", hours: "Powered on", wear: "Wear",
  temperatureCelsius: "Temperature", bay: "Bay", state: "State", bytes: "Size", largestFreeBytes: "Largest free range", path: "Path", verdictSince: "Verdict since", cordon: "Cordoned" };

/** Returns the fields in [LABELS] as a list of terms. */
export function facts(body) {
  const show = (name, value) => {
    if (value === null || value === undefined || value === "") return null;
    switch (name) {
      case "hours": return typeof value === "number" ? `${seconds(value * 3600)} (${whole(value)} h)` : String(value);
      case "wear": return typeof value === "number" ? `${number(value)} %` : String(value);
      case "temperatureCelsius": return `${number(value)} °C`;
      case "bay": return String(value).replace(/^bay\s+/i, "");
      case "bytes":
      case "largestFreeBytes": return size(value);
      case "verdictSince": return day(value, true);
      default: return typeof value === "object" ? null : String(value);
    }
  };
  const aliases = { hours: body.hours ?? body.powerOnHours, wear: body.wear ?? body.wearPercent };
  const entries = Object.entries(LABELS).map(([name, label]) => [label, show(name, aliases[name] ?? body[name]), name]).filter(([, value]) => value !== null);
  return h("dl", { class: "facts" }, entries.map(([label, value, name]) => h("div", {}, h("dt", {}, label),
    h("dd", { class: ["id", "serial", "firmware", "device", "path"].includes(name) ? "mono" : "" }, value))));
}

/** Returns the badges of the drive: kind, acknowledged, cordoned. */
export function marks(drive) {
  const { raw } = drive;
  return [badge(drive.kind), raw.acknowledged ? h("span", { class: "badge plain" }, "acknowledged") : null, raw.cordoned ? h("span", { class: "badge plain" }, "cordoned") : null];
}
