// What the API answers about studies, GPUs and how hosts fared; the words are those of docs/reference.

import type { RunState } from "./types";

export type Value = string | number | boolean;

export interface Parameter {
  name: string;
  type: "choice" | "integer" | "continuous";
  values?: Value[] | null;
  low?: number | null;
  high?: number | null;
  log?: boolean | null;
  when?: string | null;
}

export interface Contender {
  trial: string;
  parameters: Record<string, Value>;
  metrics: Record<string, number>;
  measurements: number;
  values: number[];
  ci95: { low: number; high: number } | null;
  feasible: boolean;
  broken: string[];
  is_baseline: boolean;
  failures: number;
}

export interface Trial {
  key: string;
  number: number;
  role: string;
  progress: "open" | "measured" | "failed" | "void";
  parameters: Record<string, Value>;
  metrics: Record<string, number>;
  feasible: boolean | null;
  broken: string[];
  duration_s: number | null;
  reason: string | null;
  task?: number | null;
  rung?: number | null;
  worker?: string | null;
  gpus?: number[] | null;
  started_at?: number | null;
  ended_at?: number | null;
  phase?: "waiting" | "deploying" | "benchmarking" | null;
  phases?: { deploying_s: number | null; benchmarking_s: number | null } | null;
  failure?: { kind: string; evidence: string | null } | null;
}

export interface StudyRow {
  run: string;
  name: string;
  state: RunState;
  reason: string | null;
  strategy: string;
  seed: number;
  parallel: number;
  objective: { maximize?: string; minimize?: string }[];
  constraints: string[];
  wanted: number;
  searched: number;
  counts: Record<Trial["progress"], number>;
  best: Contender | null;
  baseline: Contender | null;
  verdict: string | null;
  front: Contender[] | null;
  nearest: Contender | null;
  created_at?: number;
}

/** One level of successive halving: how many trials may climb to it, with how much of the resource, and how they fared. */
export interface Rung {
  rung: number;
  budget: number | null;
  wanted: number;
  made: number;
  measured: number;
  failed: number;
  open: number;
  leads: string | null;
}

export interface StudyFacts extends StudyRow {
  trials: Trial[];
  parameters?: Parameter[];
  importance?: { name: string; share: number }[] | null;
  confirmed?: { alone: Contender | null; beside: number | null; change: number | null; text: string } | null;
  flags?: string | null;
  rungs?: Rung[] | null;
  resource?: string | null;
}

export interface Goal {
  metric: string;
  maximise: boolean;
}

export function goals(study: StudyRow): Goal[] {
  return study.objective.map((one) => (one.maximize !== undefined ? { metric: one.maximize, maximise: true } : { metric: one.minimize ?? "", maximise: false }));
}

/** Metrics that matter: those of the goals, then those of the limits. */
export function metricsOf(study: StudyFacts): string[] {
  const limits = study.constraints.map((text) => text.split(/\s*[<>]/)[0]?.trim() ?? "").filter(Boolean);
  return [...new Set([...goals(study).map((goal) => goal.metric), ...limits])];
}

/** The parameters in their order; a server that does not tell them has them in its trials. */
export function parametersOf(study: StudyFacts): Parameter[] {
  if (study.parameters) return study.parameters;
  const found = new Map<string, Value[]>();
  for (const trial of study.trials) {
    for (const [name, value] of Object.entries(trial.parameters)) found.set(name, [...(found.get(name) ?? []), value]);
  }
  return [...found].map(([name, values]) => {
    const numbers = values.filter((value) => typeof value === "number");
    if (numbers.length < values.length || new Set(values).size < 6) return { name, type: "choice", values: [...new Set(values)].sort() };
    return { name, type: "continuous", low: Math.min(...numbers), high: Math.max(...numbers) };
  });
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

export interface Gpu {
  host: string;
  index: number;
  uuid: string;
  name: string | null;
  memory_mb: number | null;
  used_mb: number | null;
  utilization: number | null;
  seen_at: number | null;
  quarantine: { reason: string; since_at: number | null } | null;
  foreign: { pid: number; memory_mb: number | null; name: string | null }[];
  unexplained_mb?: number | null;
  /** Who outside of this home has it, in words. */
  held?: string | null;
  holders: { run: string | null; run_name: string | null; task: number | null; key: string | null; attempt: number | string | null; worker: string | null; since_at: number | null; memory_mb: number | null; program: string | null }[];
}

export interface GpuTicket {
  ticket: number | string;
  since_at: number | null;
  run: string | null;
  run_name: string | null;
  task: number | null;
  key: string | null;
  gpus: number;
  memory_mb: number | null;
  program: string | null;
  position: number;
}

export interface GpuFacts {
  gpus: Gpu[];
  waiting: GpuTicket[];
}
