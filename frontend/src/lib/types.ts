// What the API answers; the server's OpenAPI document and docs/reference have the words.

export type RunState = "queued" | "running" | "paused" | "completed" | "cancelled";
export type TaskState = "queued" | "running" | "done" | "failed" | "held" | "cancelled";
export type Severity = "critical" | "warning" | "info";
export type Range = [number, number];

export interface Me {
  role: "reader" | "operator";
  name: string;
  version: string;
  now: number;
  event: number;
  drives: boolean;
  home: string;
}

export type Counts = Record<TaskState | "total", number>;

export interface Scores {
  strict: number | null;
  valid: number | null;
  coverage: number | null;
  passed: number;
  ci95: { strict: Range | null; valid: Range | null };
}

export interface Problem {
  severity: Severity;
  text: string;
}

export interface Reason {
  cause: string;
  message: string;
}

/** A configuration of a study, and what it measured. */
export interface Configuration {
  trial: string;
  parameters: Record<string, string | number | boolean>;
  metrics: Record<string, number>;
  measurements: number;
  broken: string[];
}

/** What a study found, where a run has its scores. */
export interface StudyFound {
  objective: Record<string, string>[];
  constraints: string[];
  searched: number;
  wanted: number;
  best: Configuration | null;
  nearest: Configuration | null;
  verdict: string | null;
}

export interface RunRow {
  run: string;
  name: string;
  state: RunState;
  reason?: Reason | null;
  driven: boolean;
  tasks: Counts;
  scores: Scores;
  study?: StudyFound; // of a study, which has no score
  cost_usd: number;
  budget_usd: number | null;
  workers: number;
  pool: string | null;
  eta_s: Range | null;
  problems: Problem[];
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
}

export interface RunsPage {
  runs: RunRow[];
  next: string | null;
}

export interface WorkerLine {
  name: string;
  host: string;
  state: "busy" | "ready" | "quarantined" | string;
  task: string | null;
  task_number: number | null;
  attempt: number | null;
  step: number | null;
  elapsed_s: number | null;
  starting: boolean;
  assigned: number;
  completed: number;
  screen: boolean;
}

export interface FailureKind {
  kind: string;
  blame: string;
  attempts: number;
  tasks: number;
  key: string;
  evidence: string | null;
}

export interface FailureGroup extends FailureKind {
  message: string;
}

export interface CommonFailure {
  kind: string;
  blame: string;
  message: string;
  attempts: number;
  of: number;
  tasks: number;
  advice: string;
}

export interface DomainRow {
  total: number;
  done: number;
  failed: number;
  held: number;
  score_strict: number | null;
  score_valid: number | null;
  ci95_valid: Range | null;
  avg_duration_s: number | null;
}

export interface Run {
  run: string;
  name: string;
  state: RunState;
  reason?: Reason | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  tasks: Counts;
  scores: Scores & { verdicts: number };
  study?: StudyFound;
  covers?: string | null; // which part of the tasks the scores cover, where it is not all
  accept: number;
  accepted: boolean;
  attempts: { total: number; by_outcome: Record<string, number> };
  failure_kinds: FailureKind[];
  failure_groups: FailureGroup[];
  common_failure: CommonFailure | null;
  held: { key: string; reason: string }[];
  cost: {
    total_usd: number;
    waste_usd: number;
    estimated_total_usd: number | null;
    cost_per_task_usd: number | null;
    hourly_rate_usd: number | null;
    budget_usd: number | null;
  };
  retry_rate: number | null;
  avg_task_duration_s: number | null;
  duration_s: number | null;
  by_domain: Record<string, DomainRow>;
  driven: boolean;
  driver: string | null;
  cancelling: boolean;
  workers: WorkerLine[];
  eta_s: Range | null;
  breaker: string | null;
  waits: string | null;
  policy: { workers: number; pool: string | null; distribution: string; attempts: number; study?: unknown };
  problems: Problem[];
  alerts: Alert[];
  quarantined: string[];
  folder: string;
}

export interface Failure {
  kind: string;
  blame: string;
  retryable?: boolean;
  evidence: string | null;
}

export interface Verdict {
  score: number;
  success: boolean;
  steps: number | null;
  metrics: Record<string, unknown> | null;
}

export interface TaskRow {
  number: number;
  key: string;
  domain: string;
  state: TaskState;
  score: number | null;
  success: boolean | null;
  steps: number | null;
  metrics: Record<string, unknown> | null;
  duration_s: number | null;
  attempts: number;
  worker: string | null;
  failure: Failure | null;
  reason: string | null;
}

export interface Attempt {
  id: string;
  task: number;
  number: number;
  state: string;
  outcome: string | null;
  host: string;
  worker: string;
  claimed_at: number;
  started_at: number | null;
  ready_at: number | null;
  ended_at: number | null;
  duration_s: number | null;
  step: number | null;
  cost_usd: number;
  verdict: Verdict | null;
  failure: Failure | null;
  live: boolean;
}

export interface Task extends TaskRow {
  spec: { command: string[]; env: Record<string, string>; payload: unknown; timeout_s: number | null };
  instruction: string | null;
  not_before: number;
  hold_asked: boolean;
  expected_s: number | null;
  consumed: number;
  lost: number;
  attempt_list: Attempt[];
}

export interface Frame {
  step: number | null;
  at_s: number | null;
  action: string;
  note: string;
  tokens: string;
  cost_usd: number;
  picture: string | null;
  points: [number, number][];
}

export interface Film {
  goal: string;
  cut: number;
  frames: Frame[];
}

export interface Artifact {
  path: string;
  size: number;
  secret: boolean;
}

export interface AttemptDetail extends Attempt {
  key: string;
  run: string;
  task_state: TaskState;
  end: Record<string, unknown> | null;
  film: Film | null;
  artifacts: Artifact[];
  logs: { stdout: number; stderr: number };
  desktop: { vnc: boolean; screenshot: boolean };
  /** Why what lies on its host cannot be shown now. */
  problem?: string | null;
}

export interface LogPiece {
  offset: number;
  next: number;
  size: number;
  live: boolean;
  text: string;
}

export interface Grid {
  number: number[];
  key: string[];
  domain: string[];
  state: TaskState[];
  score: (number | null)[];
  success: (boolean | null)[];
  attempts: number[];
  duration_s: (number | null)[];
  kind: (string | null)[];
  blame: (string | null)[];
  worker: (string | null)[];
}

export type Look = "pass" | "wrong" | "own" | "infra" | "off" | "live" | "queued" | "held";
export type Bar = [task: number, attempt: number, start: number, end: number | null, look: Look, key: string];

export interface Lane {
  worker: string;
  host: string;
  bars: Bar[];
}

export interface Lanes {
  now: number;
  started_at: number | null;
  lanes: Lane[];
}

export interface Series {
  at: number[];
  decided: number[];
  done: number[];
  strict: (number | null)[];
  valid: (number | null)[];
  cost_usd: number[];
  waste_usd: number[];
}

export interface FailedAttempt {
  task: number;
  key: string;
  number: number;
  worker: string;
  kind: string;
  blame: string;
  evidence: string | null;
  ended_at: number;
}

export interface Failures {
  kinds: FailureKind[];
  attempts: FailedAttempt[];
  next: string | null;
}

export interface Queue {
  due: { number: number; key: string; domain: string; expected_s: number | null; attempts: number; not_before: number }[];
  waiting: number;
  next_due_at: number | null;
}

export interface FleetEvent {
  number: number;
  run: string;
  at: number;
  type: string;
  task: string | null;
  attempt: string | null;
  data: Record<string, unknown>;
}

export interface EventsPage {
  events: FleetEvent[];
  next: string | null;
}

export interface Alert {
  id: number;
  rule: string;
  subject: string;
  severity: Severity;
  run: string | null;
  run_name: string | null;
  about?: string;
  message: string;
  state: "firing" | "resolved";
  fired_at: number;
  resolved_at: number | null;
  delivered: { channel: string; what: string; at: number }[];
}

export interface AlertsPage {
  alerts: Alert[];
  next: string | null;
  rules: { rule: string; severity: Severity; text: string }[];
  channels: { channel: string }[];
}

export interface PoolRow {
  name: string;
  backend: string;
  hosts: number;
  workers: number;
  created_at: number;
}

export interface HostRow {
  host: string;
  workers: number;
  busy: number;
  price_usd_per_hour: number | null;
  state?: string;
  desired?: string;
  rung?: string | null;
  age_s?: number | null;
  cost_usd?: number | null;
  idle_share?: number | null;
  deadline_at?: number | null;
  reason?: string | null;
  size?: string | null;
  region?: string | null;
  spot?: boolean;
  vnc?: boolean | string | null;
}

export interface Pool {
  name: string;
  backend: string;
  workers: number;
  created_at: number;
  hosts: HostRow[];
  breaker?: string | null;
  quota?: { family: string | null; used: number; limit: number; region: string | null; at: number | null } | null;
  reason?: Reason | null;
  owner?: string | null;
  budget_usd?: number | null;
  cost_usd?: number | null;
  usd_per_hour?: number | null;
  kept_usd_per_day?: number | null;
}

export interface HostSeries {
  host: string;
  at: number[];
  cpu?: (number | null)[];
  memory?: (number | null)[];
  disk?: (number | null)[];
  net_in_bps?: (number | null)[];
  net_out_bps?: (number | null)[];
  gpu?: (number | null)[] | null;
}

export interface SideOfComparison {
  run: string;
  name: string;
  state: RunState;
  tasks: number;
  unfinished: number;
  scores: { valid: number | null; strict: number | null; coverage: number | null };
  paired_score: number | null;
  successes: number;
  avg_task_duration_s: number | null;
  duration_s: number | null;
  cost: { total_usd: number; waste_usd: number; cost_per_task_usd: number | null };
}

export interface Flip {
  key: string;
  domain: string;
  change: string;
  score_a: number | null;
  score_b: number | null;
  number_a?: number | null;
  number_b?: number | null;
}

export interface Comparison {
  a: SideOfComparison;
  b: SideOfComparison;
  tasks: { common: number; paired: number; left_out: number; only_a: number; only_b: number };
  conclusion: string;
  sentence: string;
  notes: string[];
  unlike: { key: string; differs: Record<string, [unknown, unknown]>; same_work: boolean }[];
  difference: { score: number; ci95: Range | null; p_value: number | null } | null;
  by_domain: Record<string, { tasks: number; score_a: number | null; score_b: number | null; difference: number | null; gained: number; lost: number }>;
  flips: Flip[];
}
