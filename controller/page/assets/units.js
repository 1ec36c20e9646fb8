// Formatting of sizes, durations, counts and times, in the notation of `proto/common/src/units.rs`. Pure.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/** Shown for a value that does not apply. */
export const NONE = "–";
/** Shown for a value that could not be read. */
export const NOT_KNOWN = "not known";

/** Returns bytes in binary units with one decimal below 100, truncated, so that free space is never overstated. */
export function size(bytes) {
  if (!Number.isFinite(bytes) || bytes < 0) return NONE;
  let unit = 0;
  let scale = 1;
  while (unit < UNITS.length - 1 && bytes >= scale * 1024) {
    unit += 1;
    scale *= 1024;
  }
  const whole = Math.floor(bytes / scale);
  const tenths = Math.floor((bytes / scale) * 10);
  if (whole >= 100 || (whole >= 10 && tenths === whole * 10) || bytes === whole * scale) return `${whole} ${UNITS[unit]}`;
  return `${whole}.${tenths - whole * 10} ${UNITS[unit]}`;
}

/** Returns seconds in the two largest units: "2d03h", "5m", "41s". */
export function seconds(total) {
  if (!Number.isFinite(total)) return NONE;
  const all = Math.max(0, Math.floor(total));
  const parts = [[Math.floor(all / 86400), "d"], [Math.floor(all / 3600) % 24, "h"], [Math.floor(all / 60) % 60, "m"], [all % 60, "s"]];
  let first = parts.findIndex(([count]) => count > 0);
  if (first < 0) first = 3;
  const [a, b] = parts.slice(first, first + 2);
  return `${a[0]}${a[1]}${b && b[0] > 0 ? String(b[0]).padStart(2, "0") + b[1] : ""}`;
}

/** Returns seconds in the largest unit only: "3m", "2d". */
export function roughly(total) {
  const text = seconds(total);
  return /^\d+[dhms]/.exec(text)?.[0] ?? text;
}

/** Returns a count with its noun, in the plural unless the count is 1; `noun` is regular. */
export function count(number, noun) {
  if (number === 1) return `1 ${noun}`;
  const plural = /[^aeiou]y$/.test(noun) ? noun.replace(/y$/, "ies") : /(s|x|ch|sh)$/.test(noun) ? `${noun}es` : `${noun}s`;
  return `${whole(number)} ${plural}`;
}

/** Returns an integer with separators: "12,000". */
export function whole(number) {
  return Number.isFinite(number) ? Math.round(number).toLocaleString("en-US") : NONE;
}

/** Returns a number with three significant digits, or an integer in full: 1234, 12.3, 0.042. */
export function number(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return value === null || value === undefined ? NONE : String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
}

/** Returns a share as a whole percentage, which is 100 % only if nothing is free and 0 % only if nothing is used. */
export function percent(part, all) {
  if (!(all > 0) || !Number.isFinite(part)) return NONE;
  const share = (part / all) * 100;
  if (share > 0 && share < 1) return "<1 %";
  return `${share >= 100 ? 100 : Math.min(99, Math.round(share))} %`;
}

/** Returns the time of day of a Unix time in seconds. */
export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString("en-GB");
}

/** Returns a date of a Unix time in seconds: "28 Nov" or with the time of day. */
export function day(unix, withTime = false) {
  const date = new Date(unix * 1000);
  const text = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return withTime ? `${text} ${date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })}` : text;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
/** Orders names so that n2 comes before n10; null comes last. */
export function byName(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return collator.compare(a, b);
}
