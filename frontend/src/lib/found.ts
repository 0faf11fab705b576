// What a study found, in the place where a run shows its scores.
import { figure } from "./scale";
import type { Configuration, StudyFound } from "./types";

export const NO_BEST = "no configuration keeps all limits";
export const NOTHING = "nothing is measured yet";

/** Names and values on one line. */
export function pairs(values: Configuration["parameters"] | Configuration["metrics"]): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${typeof value === "number" ? figure(value) : value}`)
    .join(" ");
}

/** The values of the study's goals. */
export function reached(found: StudyFound, one: Configuration): string {
  const names = found.objective.flatMap((goal) => Object.values(goal));
  return names.map((name) => `${name} ${figure(one.metrics[name])}`).join(", ");
}

export function foundShort(found: StudyFound): string {
  if (found.best) return `best: ${reached(found, found.best)}`;
  return found.nearest ? NO_BEST : NOTHING;
}

export function foundLong(found: StudyFound): string {
  const one = found.best ?? found.nearest;
  if (!one) return NOTHING;
  const limits = found.best
    ? found.constraints.length
      ? `keeps ${found.constraints.join("; ")}`
      : ""
    : `${NO_BEST}: breaks ${one.broken.join("; ")}`;
  return [reached(found, one), pairs(one.parameters), limits, found.verdict ?? ""].filter(Boolean).join("\n");
}
