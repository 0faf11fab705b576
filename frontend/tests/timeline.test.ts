import { expect, test } from "vitest";
import { hit, merged, moved, STEPS_S, tickText, ticks, whole, zoomed } from "../src/lib/timeline";
import type { Bar, Lane } from "../src/lib/types";

const bar = (task: number, start: number, end: number | null, attempt = 1): Bar => [
  task,
  attempt,
  start,
  end,
  end === null ? "live" : "pass",
  `t_${task}`,
];
const lane = (worker: string, ...bars: Bar[]): Lane => ({ worker, host: worker.split("-")[0] ?? "", bars });

test("the whole view holds all bars, with air to the right; a live bar ends now", () => {
  const view = whole([lane("a-1", bar(1, 100, 150)), lane("a-2", bar(2, 90, null))], 290);
  expect(view.from).toBe(90);
  expect(view.to).toBeCloseTo(292);
});

test("without bars the view is the last minute", () => {
  expect(whole([], 1000)).toEqual({ from: 940, to: 1000 });
});

test("the moment under the pointer stays where it is", () => {
  const bounds = { from: 0, to: 100 };
  const view = zoomed({ from: 0, to: 100 }, 25, 0.5, bounds);
  expect((25 - view.from) / (view.to - view.from)).toBeCloseTo(0.25);
  expect(view.to - view.from).toBeCloseTo(50);
});

test("neither zooming nor moving leaves the bounds", () => {
  const bounds = { from: 10, to: 20 };
  expect(zoomed({ from: 12, to: 14 }, 13, 1000, bounds)).toEqual(bounds);
  expect(moved({ from: 12, to: 14 }, -99, bounds)).toEqual({ from: 10, to: 12 });
  expect(moved({ from: 12, to: 14 }, 99, bounds)).toEqual({ from: 18, to: 20 });
});

test("ticks are round, in view, and not too many", () => {
  for (const span of [0.3, 7, 95, 4000, 90_000]) {
    const found = ticks({ from: 1000, to: 1000 + span }, 1000, 8);
    expect(found.length).toBeLessThanOrEqual(9);
    expect(found.length).toBeGreaterThan(1);
    expect(found.every((tick) => tick >= 0 && tick <= span + 1e-9)).toBe(true);
    expect(STEPS_S).toContainEqual(Number(((found[1] ?? 0) - (found[0] ?? 0)).toPrecision(6)));
  }
});

test.each([
  [0.5, "0.5 s"],
  [59, "59 s"],
  [60, "1 min"],
  [90, "1:30"],
  [3600, "1 h"],
  [5400, "1:30 h"],
])("%s seconds are %s", (seconds, text) => {
  expect(tickText(seconds)).toBe(text);
});

test("the bar under the pointer, else the nearest within the slack", () => {
  const [first, second] = [bar(1, 0, 10), bar(2, 11, 20)];
  expect(hit([first, second], 5, 1, 99)).toBe(first);
  expect(hit([first, second], 10.8, 1, 99)).toBe(second);
  expect(hit([first], 12, 1, 99)).toBeNull();
  expect(hit([bar(3, 50, null)], 80, 0, 99)?.[0]).toBe(3);
});

test("news replace live attempts and add workers, in natural order", () => {
  const old = [lane("w-2", bar(1, 0, null)), lane("w-10", bar(2, 0, 5))];
  const found = merged(old, [lane("w-2", bar(1, 0, 9), bar(3, 9, null)), lane("w-1", bar(4, 1, null))]);
  expect(found.map((one) => one.worker)).toEqual(["w-1", "w-2", "w-10"]);
  expect(found[1]?.bars.map((one) => [one[0], one[3]])).toEqual([
    [1, 9],
    [3, null],
  ]);
});
