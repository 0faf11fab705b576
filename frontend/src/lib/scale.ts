// From values to places in a chart and back. Pure.

export interface Scale {
  /** 0 at the low end, 1 at the high end; null where the value has no place. */
  place: (value: unknown) => number | null;
  ticks: { at: number; text: string }[];
}

/** A number in few letters: 4510 -> 4,510; 0.8532 -> 0.853; 1234567 -> 1.23M. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e5) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1 ? 4 : 3)));
}

/** Round numbers between two bounds, at most so many. */
export function steps(low: number, high: number, most: number): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((one) => one * power >= raw * 0.999) ?? 10) * power;
  const found: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + step * 1e-9; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

export function linear(low: number, high: number, most = 5): Scale {
  const span = high - low || 1;
  const place = (value: unknown): number | null =>
    typeof value === "number" && Number.isFinite(value) ? (value - low) / span : null;
  return { place, ticks: steps(low, high, most).map((value) => ({ at: place(value) ?? 0, text: figure(value) })) };
}

export function logarithmic(low: number, high: number, most = 5): Scale {
  if (low <= 0 || high <= low) return linear(low, high, most);
  const [from, span] = [Math.log(low), Math.log(high) - Math.log(low)];
  const place = (value: unknown): number | null =>
    typeof value === "number" && value > 0 ? (Math.log(value) - from) / span : null;
  // Both ends, and between them values that are evenly far apart, rounded to two digits.
  const count = Math.max(1, most - 1);
  const values = Array.from({ length: count + 1 }, (_, i) =>
    i === 0 ? low : i === count ? high : Number(Math.exp(from + (span * i) / count).toPrecision(2)),
  );
  return { place, ticks: [...new Set(values)].map((value) => ({ at: place(value) ?? 0, text: figure(value) })) };
}

export function choices(values: readonly unknown[]): Scale {
  const names = values.map(String);
  const at = (index: number): number => (names.length < 2 ? 0.5 : index / (names.length - 1));
  const place = (value: unknown): number | null => {
    const index = value === undefined || value === null ? -1 : names.indexOf(String(value));
    return index < 0 ? null : at(index);
  };
  return { place, ticks: names.map((text, index) => ({ at: at(index), text })) };
}

/** Bounds of some numbers with a little air, so that no dot lies on the frame. */
export function bounds(values: readonly number[], air = 0.06): [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (!Number.isFinite(low)) return [0, 1];
  const span = high - low || Math.abs(high) || 1;
  return [low >= 0 && low - span * air < 0 ? 0 : low - span * air, high + span * air];
}
