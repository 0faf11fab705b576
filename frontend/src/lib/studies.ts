// Studies: what their answers mean, in words and numbers. The types are made of the server's structs.

import type { StudyFacts, StudyRow, Trial } from "./answers";

export type {
  Gpu,
  GpuList as GpuFacts,
  Rung,
  StudyFacts,
  StudyParameter as Parameter,
  StudyRow,
  Trial,
} from "./answers";

export type Value = string | number | boolean;

export interface Goal {
  metric: string;
  maximise: boolean;
}

export function goals(study: StudyRow): Goal[] {
  return study.objective.map((one) =>
    one.maximize !== undefined
      ? { metric: one.maximize, maximise: true }
      : { metric: one.minimize ?? "", maximise: false },
  );
}

/** Metrics that matter: those of the goals, then those of the limits. */
export function metricsOf(study: StudyFacts): string[] {
  const limits = study.constraints.map((text) => text.split(/\s*[<>]/)[0]?.trim() ?? "").filter(Boolean);
  return [...new Set([...goals(study).map((goal) => goal.metric), ...limits])];
}

/** Roles of trials that measure a configuration once more. */
export const AGAIN: ReadonlySet<string> = new Set(["repeat", "confirm"]);

export type TrialLook = "pass" | "wrong" | "own" | "off" | "live" | "queued";

export function trialLook(trial: Trial): TrialLook {
  if (trial.progress === "measured") return trial.feasible === false ? "wrong" : "pass";
  if (trial.progress === "failed") return "own";
  if (trial.progress === "void") return "off";
  return waits(trial) ? "queued" : "live";
}

/** Also one that is tried again: its first attempt began, and it waits all the same. */
function waits(trial: Trial): boolean {
  return trial.phase ? trial.phase === "waiting" : !trial.started_at;
}

/** In words, what a trial is at. */
export function trialState(trial: Trial): string {
  if (trial.progress === "measured") return trial.feasible === false ? "breaks a limit" : "measured";
  if (trial.progress !== "open") return trial.progress;
  if (waits(trial)) return "waits";
  return trial.phase ?? "running";
}
