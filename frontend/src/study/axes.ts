// The axes of parallel coordinates: one per parameter, then one per metric that matters. Pure.

import { bounds, choices, linear, logarithmic, type Scale } from "../lib/scale";
import { goals, metricsOf, type Parameter, type StudyFacts, type Trial } from "../lib/studies";

export interface Axis {
  name: string;
  metric: boolean;
  note: string;
  scale: Scale;
  value: (trial: Trial) => unknown;
}

const TICKS = 5;

function scaleOf(parameter: Parameter): Scale {
  if (parameter.type === "choice") return choices(parameter.values ?? []);
  const [low, high] = [parameter.low ?? 0, parameter.high ?? 1];
  return parameter.log ? logarithmic(low, high, TICKS) : linear(low, high, TICKS);
}

export function axesOf(study: StudyFacts): Axis[] {
  const measured = study.trials.filter((trial) => trial.progress === "measured");
  const found: Axis[] = study.parameters.map((parameter) => ({
    name: parameter.name,
    metric: false,
    note: parameter.log ? "log" : "",
    scale: scaleOf(parameter),
    value: (trial) => trial.parameters[parameter.name],
  }));
  for (const name of metricsOf(study)) {
    const values = measured.map((trial) => trial.metrics[name]).filter((value) => value !== undefined);
    const goal = goals(study).find((one) => one.metric === name);
    found.push({
      name,
      metric: true,
      note: goal ? (goal.maximise ? "more is better" : "less is better") : "limit",
      scale: linear(...bounds(values, 0.02), TICKS),
      value: (trial) => trial.metrics[name],
    });
  }
  return found;
}

/** 0 for the worst value of the first goal, 1 for the best, by rank: outliers must not eat all colours. */
export function ranks(study: StudyFacts): Map<string, number> {
  const goal = goals(study)[0];
  if (!goal) return new Map();
  const measured = study.trials.filter(
    (trial) => trial.progress === "measured" && trial.metrics[goal.metric] !== undefined,
  );
  const sorted = measured.toSorted(
    (a, b) => ((a.metrics[goal.metric] ?? 0) - (b.metrics[goal.metric] ?? 0)) * (goal.maximise ? 1 : -1),
  );
  return new Map(sorted.map((trial, index) => [trial.key, sorted.length < 2 ? 1 : index / (sorted.length - 1)]));
}

/** A stretch of one axis that a person chose, as shares of it; `none` holds trials without a value there. */
export type Brush = [from: number, to: number];

export function passes(axes: readonly Axis[], brushes: Readonly<Record<string, Brush>>, trial: Trial): boolean {
  return axes.every((axis) => {
    const brush = brushes[axis.name];
    if (!brush) return true;
    const at = axis.scale.place(axis.value(trial));
    return at !== null && at >= brush[0] - 1e-9 && at <= brush[1] + 1e-9;
  });
}
