// Charts as inline SVG, each with its numbers as text: the history of a value, and latencies beside those of a drive's peers.

import { h, svg } from "./dom.js";
import { NOT_KNOWN, clock, count, day, number, percent } from "./units.js";

const WIDTH = 168;
const HEIGHT = 34;
const PAD = 3;

/** Returns a line of `[[unix, number], …]`, in which a value holds until the next, with its range as text; null with fewer than two points. */
export function history(points, name) {
  const list = (points ?? []).filter((point) => Array.isArray(point) && Number.isFinite(point[0]) && Number.isFinite(point[1])).sort((a, b) => a[0] - b[0]);
  if (list.length < 2) return null;
  const [start, end] = [list[0][0], list.at(-1)[0]];
  const values = list.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (at) => PAD + ((at - start) / Math.max(1, end - start)) * (WIDTH - 2 * PAD);
  const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - PAD - ((value - low) / (high - low)) * (HEIGHT - 2 * PAD));
  const line = list.map(([at, value], index) => (index ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
  const [length, unit] = end - start >= 86400 ? [86400, "day"] : [3600, "hour"];
  const time = count(Math.max(1, Math.round((end - start) / length)), unit);
  const label = low === high ? `${name}: unchanged at ${number(low)} in ${time}`
    : `${name}: from ${number(values[0])} to ${number(values.at(-1))} in ${time}, lowest ${number(low)}, highest ${number(high)}`;
  return h("div", { class: "history" },
    svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": label },
      svg("path", { class: "spark-area", d: `${line}L${x(end).toFixed(1)} ${HEIGHT}L${x(start).toFixed(1)} ${HEIGHT}Z` }),
      svg("path", { class: "spark-line", d: line, fill: "none" }),
      svg("circle", { class: "spark-dot", cx: x(end), cy: y(values.at(-1)), r: 2.5 })),
    h("span", { class: "spark-text", "aria-hidden": "true" }, low === high ? "unchanged" : `${number(low)} – ${number(high)}`,
      h("span", {}, end - start >= 86400 ? ` since ${day(start)}` : ` since ${clock(start)}`)));
}

/** Returns the latencies of a direction, `{mean, expected, usual, history}` in milliseconds, one mean per minute, with the expectation of its peers. */
export function minutes(title, direction, { comparedWith, peerDrives, unit = "ms" }) {
  const list = direction?.history ?? [];
  const known = list.filter(Number.isFinite);
  if (!direction || (known.length === 0 && !Number.isFinite(direction.mean))) {
    return h("div", { class: "minutes" }, h("p", { class: "minutes-head" }, h("strong", {}, title), h("span", { class: "quiet-text" }, NOT_KNOWN)));
  }
  const { mean, expected, usual } = direction;
  const [wide, tall, left] = [460, 108, 34];
  const top = Math.max(...known, expected ?? 0, mean ?? 0) * 1.12 || 1;
  const y = (value) => tall - 22 - (value / top) * (tall - 30);
  const x = (index) => left + (list.length > 1 ? (index / (list.length - 1)) * (wide - left - 8) : 0);
  let line = "";
  list.forEach((value, index) => {
    if (Number.isFinite(value)) line += `${line && Number.isFinite(list[index - 1]) ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const ms = (value) => `${number(Math.round(value * 100) / 100)} ${unit}`;
  const drives = Number.isFinite(peerDrives) ? `${count(peerDrives, "drive")} of this ${comparedWith}` : `number of drives of this ${comparedWith} ${NOT_KNOWN}`;
  const peers = comparedWith ? drives : null;
  const chart = known.length < 2 ? null : svg("svg", { class: "minutes-chart", viewBox: `0 0 ${wide} ${tall}`, role: "img",
    "aria-label": `${title}, mean of each of the last ${list.length} minutes, from ${ms(Math.min(...known))} to ${ms(Math.max(...known))}` },
  svg("line", { class: "axis", x1: left, x2: wide, y1: y(0), y2: y(0) }),
  svg("text", { class: "axis-text", x: left - 5, y: y(0) + 3, "text-anchor": "end" }, "0"),
  svg("text", { class: "axis-text", x: left - 5, y: y(top / 1.12) + 3, "text-anchor": "end" }, number(Number((top / 1.12).toPrecision(2)))),
  svg("path", { class: "spark-line", d: line, fill: "none" }),
  Number.isFinite(expected) ? svg("line", { class: "expected", x1: left, x2: wide - 8, y1: y(expected), y2: y(expected) }) : null,
  svg("text", { class: "axis-text", x: left, y: tall - 6 }, `${list.length} min ago`), svg("text", { class: "axis-text", x: wide - 8, y: tall - 6, "text-anchor": "end" }, "now"));
  const times = Number.isFinite(mean) && expected > 0 ? mean / expected : null;
  return h("div", { class: "minutes" },
    h("p", { class: "minutes-head" }, h("strong", {}, title), Number.isFinite(mean) ? h("span", { class: "minutes-now" }, ms(mean)) : h("span", { class: "quiet-text" }, `${NOT_KNOWN}: too few requests in the last minute`),
      direction.slowSince ? h("span", { class: "badge suspect" }, h("b", { "aria-hidden": "true" }, "S"), `slow since ${day(direction.slowSince, true)}`) : null),
    h("p", { class: "key" }, Number.isFinite(expected) ? h("span", { class: "key-item" }, h("span", { class: "swatch dash" }), h("span", {},
      `peers: ${ms(expected)} at this load${peers ? `, ${peers}` : ""}${times !== null && times >= 1.05 ? `; ${number(Number(times.toPrecision(2)))} times as long` : ""}`,
      Number.isFinite(usual) ? h("span", { class: "quiet-text" }, ` usually ${ms(usual)}`) : null)) : comparedWith ? `latency of peers ${NOT_KNOWN}` : "no peers to compare with"), chart);
}

/** Returns the buckets as shares, `[{le, count, share}]`; a bucket without a limit has an infinite one. */
function shares(buckets) {
  const list = (buckets ?? []).filter((bucket) => Number.isFinite(bucket?.count));
  const sum = list.reduce((all, bucket) => all + bucket.count, 0);
  return { sum, list: list.map((bucket) => ({ le: Number.isFinite(bucket.le) ? bucket.le : Infinity, count: bucket.count, share: sum > 0 ? bucket.count / sum : 0 })) };
}

/** Returns the peers' buckets, which are one histogram or the sum of one per peer; buckets without a count are left out. */
function peersOf(peers) {
  const all = new Map();
  const add = (bucket) => {
    if (!Number.isFinite(bucket?.count)) return;
    const le = Number.isFinite(bucket.le) ? bucket.le : Infinity;
    all.set(le, (all.get(le) ?? 0) + bucket.count);
  };
  for (const peer of peers ?? []) (Array.isArray(peer?.buckets) ? peer.buckets : [peer]).forEach(add);
  return [...all].sort((a, b) => a[0] - b[0]).map(([le, sum]) => ({ le, count: sum }));
}

/** Returns the histogram of `latency` beside that of its peers, with a table of the same numbers; null without requests. */
export function latency({ unit, buckets, peers }) {
  const own = shares(buckets);
  const other = shares(peersOf(peers));
  if (own.sum === 0 && other.sum === 0) return null;
  const limits = [...new Set([...own.list, ...other.list].map(({ le }) => le))].sort((a, b) => a - b);
  const at = (list, le) => list.find((bucket) => bucket.le === le) ?? { count: null, share: 0 };
  const title = (le, index) => (le === Infinity ? `> ${number(limits[index - 1] ?? 0)}` : `≤ ${number(le)}`);
  const slot = 56;
  const [tall, base] = [150, 176];
  const wide = Math.max(limits.length * slot, 280);
  const most = Math.max(...limits.map((le) => Math.max(at(own.list, le).share, at(other.list, le).share)), 0.01);
  // The square root makes a few slow requests visible beside many fast ones.
  const high = (share) => (share === 0 ? 0 : Math.max(2, Math.sqrt(share / most) * (tall - 16)));
  const bars = limits.flatMap((le, index) => {
    const left = index * slot + 6;
    const bar = (series, kind, offset) => {
      const { share } = at(series, le);
      const height = high(share);
      return [svg("rect", { class: `bar ${kind}`, x: left + offset, y: tall - height + 6, width: 19, height, rx: 2 }),
        share > 0 ? svg("text", { class: "bar-text", x: left + offset + 9.5, y: tall - height + 1, "text-anchor": "middle" }, share < 0.01 ? "<1" : String(Math.round(share * 100))) : null];
    };
    return [bar(own.list, "own", 2), bar(other.list, "peer", 23), svg("text", { class: "axis-text", x: left + 22, y: base, "text-anchor": "middle" }, title(le, index))];
  });
  const chart = svg("svg", { class: "latency-chart", viewBox: `0 0 ${wide} ${base + 8}`, role: "img", "aria-label": "Latency histogram; the table below has its numbers" },
    svg("line", { class: "axis", x1: 0, x2: wide, y1: tall + 6.5, y2: tall + 6.5 }), bars);
  const table = h("details", {}, h("summary", { data: { key: "latency table" } }, "As a table"), h("table", { class: "table small" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `Latency (${unit ?? "ms"})`), h("th", { scope: "col", class: "number" }, "This drive"),
      h("th", { scope: "col", class: "number" }, "Peers"))),
    h("tbody", {}, limits.map((le, index) => h("tr", {}, h("th", { scope: "row" }, title(le, index)),
      [[own, at(own.list, le)], [other, at(other.list, le)]].map(([{ sum }, bucket]) => h("td", { class: "number" },
        bucket.count === null ? NOT_KNOWN : `${number(bucket.count)} (${percent(bucket.count, sum)})`)))))));
  return h("div", { class: "latency" },
    h("p", { class: "key" }, h("span", { class: "swatch own" }), `this drive, ${count(own.sum, "request")}`,
      other.sum > 0 ? [h("span", { class: "swatch peer" }), `peers, ${count(other.sum, "request")}`] : h("span", {}, "no peers to compare with")),
    h("p", { class: "quiet-text" }, `Share of requests in % by latency in ${unit ?? "ms"}; bar heights are square roots of the shares`), chart, table);
}
