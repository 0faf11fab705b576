import { expect, test } from "vitest";
import type { StudyFacts, StudyParameter, Trial } from "../src/lib/answers";
import { axesOf, passes, ranks } from "../src/study/axes";

const parameter = (name: string, given: Partial<StudyParameter>): StudyParameter => ({
  name,
  type: "continuous",
  values: null,
  low: null,
  high: null,
  log: false,
  when: null,
  ...given,
});
const trial = (
  number: number,
  metrics: Record<string, number>,
  parameters: Record<string, string | number | boolean>,
): Trial => ({ key: `trial_${number}`, number, progress: "measured", metrics, parameters }) as Trial;

const study = {
  objective: [{ maximize: "speed" }],
  constraints: ["ms <= 90"],
  parameters: [
    parameter("tp", { type: "choice", values: [1, 2] }),
    parameter("batch", { type: "integer", low: 1, high: 100, log: true }),
  ],
  trials: [
    trial(1, { speed: 10, ms: 5 }, { tp: 1, batch: 1 }),
    trial(2, { speed: 30, ms: 50 }, { tp: 2, batch: 10 }),
    trial(3, { speed: 20, ms: 9 }, { tp: 2, batch: 100 }),
    { ...trial(4, {}, { tp: 1 }), progress: "failed" },
  ],
} as unknown as StudyFacts;

test("one axis per parameter, then one per metric that matters", () => {
  expect(axesOf(study).map((axis) => [axis.name, axis.metric, axis.note])).toEqual([
    ["tp", false, ""],
    ["batch", false, "log"],
    ["speed", true, "more is better"],
    ["ms", true, "limit"],
  ]);
});

test("a trial lies on each axis where its value is", () => {
  const [tp, batch] = axesOf(study);
  const [first, second] = study.trials;
  expect([first, second].map((one) => one && tp?.scale.place(tp.value(one)))).toEqual([0, 1]);
  expect(second && batch?.scale.place(batch.value(second))).toBeCloseTo(0.5);
});

test("ranks go from the worst to the best, of measured trials only", () => {
  expect([...ranks(study)]).toEqual([
    ["trial_1", 0],
    ["trial_3", 0.5],
    ["trial_2", 1],
  ]);
  const less = { ...study, objective: [{ minimize: "speed" }] };
  expect(ranks(less).get("trial_1")).toBe(1);
});

test("a brush keeps the trials on its stretch, and none without a value", () => {
  const axes = axesOf(study);
  const kept = (brushes: Record<string, [number, number]>): number[] =>
    study.trials.filter((one) => passes(axes, brushes, one)).map((one) => one.number);
  expect(kept({})).toEqual([1, 2, 3, 4]);
  expect(kept({ batch: [0.4, 1] })).toEqual([2, 3]);
  expect(kept({ batch: [0.4, 1], tp: [0, 0.2] })).toEqual([]);
});
