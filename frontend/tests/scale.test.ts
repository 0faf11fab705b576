import { expect, test } from "vitest";
import { bounds, choices, figure, linear, logarithmic, steps } from "../src/lib/scale";

test.each([
  [4510, "4,510"],
  [0.8532, "0.853"],
  [1234567, "1.23M"],
  [250_000, "250k"],
  [0.00012, "1.2e-4"],
  [0, "0"],
  [null, "–"],
  [Number.NaN, "–"],
])("%s is written %s", (value, text) => {
  expect(figure(value)).toBe(text);
});

test("steps are round and within the bounds", () => {
  expect(steps(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(steps(3, 97, 4)).toEqual([50]);
  expect(steps(5, 5, 4)).toEqual([5]);
});

test("a linear scale places values, and nothing else", () => {
  const scale = linear(10, 20);
  expect([scale.place(10), scale.place(15), scale.place(20)]).toEqual([0, 0.5, 1]);
  expect([scale.place("15"), scale.place(null), scale.place(Infinity)]).toEqual([null, null, null]);
  expect(linear(5, 5).place(5)).toBe(0);
});

test("a logarithmic scale has equal ratios at equal distances", () => {
  const scale = logarithmic(1, 10_000);
  expect(scale.place(100)).toBeCloseTo(0.5);
  expect(scale.place(0)).toBeNull();
  expect(scale.ticks.at(0)?.at).toBe(0);
  expect(scale.ticks.at(-1)?.at).toBe(1);
  expect(logarithmic(0, 10).place(5)).toBe(0.5);
});

test("choices stand at even distances; what is no choice has no place", () => {
  const scale = choices(["a", true, 3]);
  expect([scale.place("a"), scale.place(true), scale.place(3), scale.place("b"), scale.place(null)]).toEqual([
    0,
    0.5,
    1,
    null,
    null,
  ]);
  expect(choices(["only"]).place("only")).toBe(0.5);
});

test("bounds leave air, and do not cross zero for it", () => {
  expect(bounds([])).toEqual([0, 1]);
  expect(bounds([1, 100])[0]).toBe(0);
  const [low, high] = bounds([-10, 10], 0.1);
  expect([low, high]).toEqual([-12, 12]);
});
