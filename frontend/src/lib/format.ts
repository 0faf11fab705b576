// Numbers and moments as people read them. Pure.

const NONE = "–";

export function percent(share: number | null | undefined, digits = 1): string {
  if (share === null || share === undefined) return NONE;
  return `${(share * 100).toFixed(digits)}%`;
}

export function interval(range: [number, number] | null | undefined): string {
  if (!range) return "";
  return `${(range[0] * 100).toFixed(0)}–${(range[1] * 100).toFixed(0)}%`;
}

export function money(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return NONE;
  if (usd === 0) return "$0";
  if (Math.abs(usd) < 0.1) return `$${usd.toPrecision(2)}`;
  if (Math.abs(usd) < 1000) return `$${usd.toFixed(2)}`;
  return `$${Math.round(usd).toLocaleString("en-US")}`;
}

/** Two units at most: 850 ms, 12.3 s, 4 min 05 s, 3 h 20 min, 2 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  const hours = Math.round(s / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** One unit, for narrow places. */
export function brief(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

export function durations(range: [number, number] | null | undefined): string {
  if (!range) return NONE;
  const [low, high] = [brief(range[0]), brief(range[1])];
  if (low === high) return low;
  const unit = / .*/;
  return low.match(unit)?.[0] === high.match(unit)?.[0] ? `${low.replace(unit, "")}–${high}` : `${low} – ${high}`;
}

export function ago(at: number | null | undefined, now: number): string {
  if (!at) return NONE;
  const passed = now - at;
  return passed < 2 ? "now" : `${brief(passed)} ago`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function clockTime(at: number): string {
  const date = new Date(at * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function moment(at: number | null | undefined): string {
  if (!at) return NONE;
  const date = new Date(at * 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clockTime(at)}`;
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  if (size < 1e6) return `${(size / 1e3).toFixed(size < 1e4 ? 1 : 0)} kB`;
  return size < 1e9 ? `${(size / 1e6).toFixed(1)} MB` : `${(size / 1e9).toFixed(1)} GB`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}

export function score(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}

/** Words of the store in words of a page: `bad_exit` -> `bad exit`. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}
