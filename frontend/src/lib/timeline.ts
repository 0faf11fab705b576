// The time line as numbers: what is in view, where a bar lies, which bar is under the pointer. Pure.

import type { Bar, Lane } from "./types";

/** A stretch of time, in seconds since 1970. */
export interface View {
  from: number;
  to: number;
}

const LEAST_S = 0.05;
export const STEPS_S = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 604800,
];

/** All of it, with a little air to the right. */
export function whole(lanes: readonly Lane[], now: number): View {
  let from = Infinity;
  let to = -Infinity;
  for (const lane of lanes) {
    for (const bar of lane.bars) {
      from = Math.min(from, bar[2]);
      to = Math.max(to, bar[3] ?? now);
    }
  }
  if (from > to) return { from: now - 60, to: now };
  const air = Math.max(0.5, (to - from) * 0.01);
  return { from, to: to + air };
}

/** Closer (factor < 1) or farther, around a moment that stays where it is, never beyond the bounds. */
export function zoomed(view: View, at: number, factor: number, bounds: View): View {
  const span = Math.min(bounds.to - bounds.from, Math.max(LEAST_S, (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  return within({ from: at - share * span, to: at - share * span + span }, bounds);
}

export function moved(view: View, by_s: number, bounds: View): View {
  return within({ from: view.from + by_s, to: view.to + by_s }, bounds);
}

function within(view: View, bounds: View): View {
  const span = view.to - view.from;
  if (span >= bounds.to - bounds.from) return { ...bounds };
  if (view.from < bounds.from) return { from: bounds.from, to: bounds.from + span };
  if (view.to > bounds.to) return { from: bounds.to - span, to: bounds.to };
  return view;
}

/** Round distances from the beginning, so many as fit. */
export function ticks(view: View, origin: number, most: number): number[] {
  const wanted = (view.to - view.from) / Math.max(1, most);
  const step = STEPS_S.find((one) => one >= wanted) ?? 604800;
  const found: number[] = [];
  for (let i = Math.ceil((view.from - origin) / step); origin + i * step <= view.to; i++) found.push(i * step);
  return found;
}

export function tickText(seconds: number): string {
  const s = Math.round(seconds * 100) / 100;
  if (s < 60) return `${s} s`;
  const sign = Math.floor(s);
  const h = Math.floor(sign / 3600);
  const m = Math.floor((sign % 3600) / 60);
  const rest = sign % 60;
  if (h === 0) return rest ? `${m}:${String(rest).padStart(2, "0")}` : `${m} min`;
  return m ? `${h}:${String(m).padStart(2, "0")} h` : `${h} h`;
}

/** The bar at a moment, or the nearest one within a little distance, so that thin ones can be hit. */
export function hit(bars: readonly Bar[], at: number, slack_s: number, now: number): Bar | null {
  let best: Bar | null = null;
  let distance = slack_s;
  for (const bar of bars) {
    const end = bar[3] ?? now;
    const away = at < bar[2] ? bar[2] - at : at > end ? at - end : 0;
    if (away === 0) return bar;
    if (away < distance) {
      best = bar;
      distance = away;
    }
  }
  return best;
}

/** Lanes with what came since put in: attempts that were live are replaced, new ones added. */
export function merged(old: readonly Lane[], news: readonly Lane[]): Lane[] {
  const found = new Map(old.map((lane) => [lane.worker, lane]));
  for (const lane of news) {
    const before = found.get(lane.worker);
    if (!before) {
      found.set(lane.worker, lane);
      continue;
    }
    const changed = new Set(lane.bars.map((bar) => `${bar[0]}.${bar[1]}`));
    const kept = before.bars.filter((bar) => !changed.has(`${bar[0]}.${bar[1]}`));
    found.set(lane.worker, { ...lane, bars: [...kept, ...lane.bars] });
  }
  return [...found.values()].sort((a, b) => a.worker.localeCompare(b.worker, "en", { numeric: true }));
}
