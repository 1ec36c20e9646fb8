// The sections of a drive's page, each made from a part of the answer; null leaves a section out.

import { badge } from "./attention.js";
import { history, latency, minutes } from "./charts.js";
import { copyButton, h } from "./dom.js";
import { Table } from "./table.js";
import { NONE, count, day, number, seconds, size, whole } from "./units.js";
import { volumeColumns } from "./volumes.js";
import { sentence, severityKind, spoken } from "./words.js";

/** Returns a finding: severity, words, what to do, commands to copy. */
function finding(entry) {
  const kind = severityKind(entry.severity);
  const commands = entry.commands ?? [];
  return h("li", { class: `finding ${kind}` },
    h("div", { class: "finding-head" }, kind === "info" ? h("span", { class: "badge plain" }, entry.severity ?? "note") : h("span", { class: `badge ${kind}` },
      h("b", { "aria-hidden": "true" }, kind === "bad" ? "B" : "S"), entry.severity ?? ""), h("h3", {}, spoken(entry.code ?? "Finding")), h("code", { class: "code" }, entry.code ?? ""),
    entry.acknowledged ? h("span", { class: "badge plain" }, "acknowledged") : null),
    entry.text ? h("p", {}, sentence(entry.text)) : null,
    Number.isFinite(entry.since) ? h("p", { class: "quiet-text" }, `since ${day(entry.since, true)}`) : null,
    entry.todo ? h("p", { class: "todo" }, h("strong", {}, "What to do: "), sentence(entry.todo)) : null,
    commands.map(command));
}

function command(words) {
  return h("div", { class: "command" }, h("code", {}, words), copyButton(words));
}

/** What is against the drive, and what to do. */
export function findings(body) {
  const list = body.findings ?? [];
  if (list.length === 0) {
    const words = { good: "Nothing is against this drive.", unknown: "No finding. Its health is not known." }[body.kind] ?? "No finding is known.";
    return [h("p", { class: "calm" }, words), notes(body)];
  }
  return [h("ol", { class: "findings" }, list.map(finding)), notes(body)];
}

function notes({ notes: list }) {
  return list?.length > 0 ? h("ul", { class: "notes" }, list.map((note) => h("li", {}, sentence(note)))) : null;
}

/** Commands that fit the drive whatever its verdict. */
export function commands(body) {
  const list = body.commands ?? [];
  return list.length > 0 ? h("div", {}, list.map(command)) : null;
}

// "Reallocated_Sector_Ct (5): 208" as its name and value; of a reading without such a text the name in words and the number with its unit.
function reading({ shown, name, value, unit }) {
  const cut = typeof shown === "string" ? shown.lastIndexOf(": ") : -1;
  if (cut > 0) return { title: shown.slice(0, cut).replace(/_/g, " "), value: h("span", { class: "strong" }, shown.slice(cut + 2)) };
  return { title: spoken(name), value: [h("span", { class: "strong" }, number(value)), unit ? h("span", { class: "unit" }, ` ${unit}`) : null] };
}

/** SMART values with their history. */
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

/** Latency beside the peers'. */
export function latencies(body) {
  if (!body.latency) return null;
  const histogram = latency(body.latency);
  const trends = [minutes("Reads", body.latency.read, body.latency), minutes("Writes", body.latency.write, body.latency)].filter(Boolean);
  return histogram || trends.length > 0 ? h("div", {}, histogram, trends) : null;
}

/** Unreadable ranges. */
export function unreadable(body) {
  const list = body.unreadable ?? [];
  if (list.length === 0) return null;
  const sum = list.reduce((all, range) => all + (range.bytes ?? 0), 0);
  const table = new Table({ label: "Unreadable ranges", rowKey: (row) => `${row.offset} ${row.bytes} ${row.volume}`, columns: [
    { key: "offset", title: "Offset", number: true, value: (row) => row.offset, cell: (row) => whole(row.offset) },
    { key: "bytes", title: "Length", number: true, value: (row) => row.bytes, cell: (row) => size(row.bytes) },
    { key: "volume", title: "Volume", wide: true, value: (row) => row.volume,
      cell: (row) => [row.volume ? h("span", { class: "mono" }, row.volume) : "in no volume", row.holds ? h("span", { class: "under" }, `holds ${row.holds}`) : null] },
    { key: "files", title: "Files", number: true, value: (row) => row.files, cell: (row) => (row.files === null || row.files === undefined ? "not known" : whole(row.files)) }] });
  table.rows(list);
  const more = body.unreadableMore ? "; there are more that are not kept" : "";
  return h("div", {}, h("p", { class: "quiet-text" }, `${count(list.length, "range")}, ${size(sum)} in all${more}`), table.element);
}

/** Volumes on the drive. */
export function volumes(body) {
  if (!body.volumes || !Array.isArray(body.volumes)) return null;
  const table = new Table({ label: "Volumes of the drive", rowKey: (row) => row.id, columns: volumeColumns(null), sort: "volume", empty: "No volume is on this drive." });
  table.rows(body.volumes);
  return table.element;
}

const LABELS = { serial: "Serial", id: "Id", device: "Device", media: "Media", transport: "Bus", class: "Class", firmware: "Firmware", hours: "Powered on", wear: "Wear",
  temperatureCelsius: "Temperature", bay: "Bay", state: "State", bytes: "Size", largestFreeBytes: "Largest free piece", path: "Path", verdictSince: "Verdict since", cordon: "Cordoned" };

/** Facts as a list of terms. Fields that this page does not know are left out. */
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

/** When the data of the page is from, and badges of the drive. */
export function marks(drive) {
  const { raw } = drive;
  return [badge(drive.kind), raw.acknowledged ? h("span", { class: "badge plain" }, "acknowledged") : null, raw.cordoned ? h("span", { class: "badge plain" }, "cordoned") : null];
}

