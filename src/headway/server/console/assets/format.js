/** Figures for people: short, with their units, of one width where they stand below each other. */

const GROUPS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SIZES = ["B", "kB", "MB", "GB", "TB"];

export function count(number) {
  return GROUPS.format(number);
}

/** 12,345 or 1.2 M: a rate or a large count. */
export function short(number) {
  if (number < 9_999.5) return number < 9.95 && number % 1 ? number.toFixed(1) : GROUPS.format(number);
  if (number < 999_500) return `${(number / 1e3).toFixed(number < 99_950 ? 1 : 0)} k`;
  return `${(number / 1e6).toFixed(number < 99_950_000 ? 1 : 0)} M`;
}

export function size(bytes) {
  let at = 0;
  let value = bytes;
  while (value >= 999.5 && at < SIZES.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at && value < 9.95 ? value.toFixed(1) : GROUPS.format(value)} ${SIZES[at]}`;
}

export function rate(bytes) {
  return `${size(bytes)}/s`;
}

export function duration(seconds) {
  if (seconds < 0.0005) return "0 s";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (seconds < 5_940) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`.replace(" 60 s", " 59 s");
  if (seconds < 172_800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86_400).toFixed(1)} d`;
}

export function share(part) {
  if (part > 0 && part < 0.01) return "< 1 %";
  return `${Math.round(part * 100)} %`;
}

/** The time of day, on the browser's clock. */
export function clock(wallS) {
  const date = new Date(wallS * 1000);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export function day(wallS) {
  const date = new Date(wallS * 1000);
  return `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
}

export function ago(seconds) {
  return seconds < 1 ? "now" : `${duration(Math.floor(seconds))} ago`;
}

export function many(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
