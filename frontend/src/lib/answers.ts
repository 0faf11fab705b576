// Made by scripts/page_types.py of the server's structs; do not edit. run it again after a change of an answer.

export interface ActionTaken {
  step: string | null;
  error: string | null;
  at: number;
}

export interface Alert {
  id: number;
  rule: string;
  subject: string;
  severity: "critical" | "info" | "warning";
  run: string | null;
  about: string;
  run_name: string | null;
  message: string;
  action: string;
  host: string | null;
  attempts: string[];
  state: "firing" | "resolved";
  fired_at: number;
  resolved_at: number | null;
  delivered: Delivery[];
  acted: ActionTaken[];
}

export interface AlertChannel {
  channel: string;
}

export interface AlertPage {
  alerts: Alert[];
  rules: AlertRule[];
  channels: AlertChannel[];
  next: string | null;
}

export interface AlertRule {
  rule: string;
  severity: "critical" | "info" | "warning";
  text: string;
  action: string;
  enabled: boolean;
}

export interface Amended {
  run: string;
  state: RunState;
  driven: boolean;
  workers: number;
  budget_usd: number | null;
  priority: number;
}

export interface Artifact {
  path: string;
  size: number;
  secret: boolean;
}

export interface AttemptCounts {
  total: number;
  by_outcome: Record<string, number>;
  doubled: number;
}

/** One attempt with its film and files. */
export interface AttemptFacts {
  id: string;
  task: number;
  number: number;
  state: AttemptState;
  outcome: Outcome | null;
  host: string;
  worker: string;
  claimed_at: number;
  started_at: number | null;
  ready_at: number | null;
  ended_at: number | null;
  duration_s: number | null;
  step: number | null;
  cost_usd: number;
  reported_usd: number;
  verdict: Verdict | null;
  failure: Failure | null;
  live: boolean;
  key: string;
  run: string;
  task_state: TaskState;
  end: Record<string, unknown> | null;
  film: Film | null;
  artifacts: Artifact[];
  logs: LogSizes;
  desktop: DesktopFacts;
  problem: string | null;
}

export interface AttemptRow {
  id: string;
  task: number;
  number: number;
  state: AttemptState;
  outcome: Outcome | null;
  host: string;
  worker: string;
  claimed_at: number;
  started_at: number | null;
  ready_at: number | null;
  ended_at: number | null;
  duration_s: number | null;
  step: number | null;
  cost_usd: number;
  reported_usd: number;
  verdict: Verdict | null;
  failure: Failure | null;
  live: boolean;
}

export type AttemptState = "collecting" | "ended" | "leased" | "running" | "starting";

/** Who did what to what, when and from where. */
export interface AuditEntry {
  number: number;
  at: number;
  user: string;
  token: string | null;
  address: string;
  operation: string;
  object: string | null;
  outcome: string;
  detail: Record<string, unknown>;
}

export interface AuditPage {
  entries: AuditEntry[];
  next: string | null;
}

export interface BackendList {
  backends: BackendRow[];
}

/** A kind of pool. */
export interface BackendRow {
  name: string;
  title: string;
  creates_machines: boolean;
  options: string[];
  broken: string | null;
}

export interface BenchmarkList {
  benchmarks: BenchmarkRow[];
}

export interface BenchmarkRow {
  name: string;
  title: string;
  ready: boolean;
  broken: string | null;
  tasks: number;
  domains: string[];
  agents: string[];
}

export type Blame = "backend" | "pool" | "run" | "task" | "worker";

export interface Bounds {
  low: number;
  high: number;
}

export interface Cancelled {
  run: string;
  state: RunState;
  driven: boolean;
  tasks: string[];
  live: number;
}

export interface ChangedTasks {
  run: string;
  state: RunState;
  driven: boolean;
  tasks: string[];
}

export interface ChannelTest {
  channel: string;
  ok: boolean;
  error: string | null;
}

export interface ChannelTests {
  channels: ChannelTest[];
}

/** The message that most failed attempts share. */
export interface CommonFailure {
  kind: string;
  blame: string;
  message: string;
  attempts: number;
  of: number;
  tasks: number;
  advice: string;
}

export interface Comparison {
  a: Side;
  b: Side;
  tasks: PairCounts;
  conclusion: string;
  sentence: string;
  notes: string[];
  unlike: UnlikeTask[];
  difference: Difference | null;
  success: SuccessChange | null;
  least_detectable: LeastDetectable | null;
  by_domain: Record<string, DomainDifference>;
  flips: Flip[];
  left_out: LeftOut[];
  only_a: string[];
  only_b: string[];
}

/** One set of parameters, and what it measured. */
export interface Configuration {
  trial: string;
  parameters: Record<string, string | boolean | number>;
  metrics: Record<string, number>;
  measurements: number;
  values: number[];
  ci95: Bounds | null;
  feasible: boolean;
  broken: string[];
  is_baseline: boolean;
  failures: number;
}

/** The winner measured alone on its machine. */
export interface Confirmed {
  alone: Configuration;
  beside: number;
  change: number | null;
  text: string;
}

/** As `evalfleet controllers --json` prints it. */
export interface ControllerList {
  controllers: ControllerRow[];
  others: OtherDriver[];
  waiting: WaitingRun[];
  now: number;
}

/** A process that takes queued runs. */
export interface ControllerRow {
  id: string;
  host: string;
  folder: string;
  pid: number;
  since: number;
  most: number;
  runs: string[];
}

export interface Cost {
  total_usd: number;
  waste_usd: number;
  waste: Record<string, number>;
  idle_usd: number;
  estimated_total_usd: number | null;
  cost_per_task_usd: number | null;
  hourly_rate_usd: number | null;
  budget_usd: number | null;
}

export interface CreatedPool {
  pool: string;
  backend: string;
  hosts: number;
  workers: number;
  by: string | null;
}

/** A pool that is gone. Machines that evalfleet did not create stay; our folder goes from those that are reached and idle. */
export interface DeletedPool {
  deleted: string;
  left: Record<string, string>;
  cost_usd: number | null;
}

export interface Delivery {
  channel: string;
  what: string;
  at: number;
}

export interface DesktopFacts {
  vnc: boolean;
  screenshot: boolean;
}

export interface Difference {
  score: number;
  ci95: [number, number];
  higher: number;
  lower: number;
  p_value: number;
}

export type Distribution = "queue" | "round-robin";

export interface DomainDifference {
  tasks: number;
  score_a: number | null;
  score_b: number | null;
  difference: number | null;
  gained: number;
  lost: number;
}

export interface DomainSummary {
  total: number;
  done: number;
  failed: number;
  held: number;
  cancelled: number;
  queued: number;
  running: number;
  counted: number;
  score_strict: number | null;
  score_valid: number | null;
  ci95_valid: [number, number] | null;
  avg_duration_s: number | null;
}

/** A mean, and the interval that 90 % of the simulated runs lie in. */
export interface Estimate {
  mean: number;
  low: number;
  high: number;
}

export interface EventPage {
  events: EventRow[];
  next: string | null;
}

export interface EventRow {
  number: number;
  run: string;
  at: number;
  type: string;
  task: string | null;
  attempt: string | null;
  data: Record<string, unknown>;
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

/** Judged cause of an attempt without a verdict. */
export interface Failure {
  kind: Kind;
  blame: Blame;
  retryable: boolean;
  consumes: boolean;
  evidence: string;
}

/** Failed attempts that share one message. */
export interface FailureGroup {
  kind: string;
  blame: string;
  attempts: number;
  tasks: number;
  key: string;
  evidence: string;
  message: string;
}

/** Failed attempts of one kind, with the latest as an example. */
export interface FailureKind {
  kind: string;
  blame: string;
  attempts: number;
  tasks: number;
  key: string;
  evidence: string;
}

export interface FailurePage {
  kinds: FailureKind[];
  attempts: FailedAttempt[];
  next: string | null;
}

export interface Film {
  goal: string;
  frames: Frame[];
  cut: number;
}

/** A task that passed in one run only. */
export interface Flip {
  key: string;
  number_a: number;
  number_b: number;
  domain: string;
  change: "gained" | "lost";
  score_a: number;
  score_b: number;
}

/** One step, or the end. Text is printable, and cut. */
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

export interface Gpu {
  host: string;
  index: number;
  uuid: string;
  name: string | null;
  memory_mb: number | null;
  used_mb: number | null;
  utilization: number | null;
  seen_at: number | null;
  quarantine: GpuQuarantine | null;
  foreign: GpuProcess[];
  unexplained_mb: number | null;
  held: string | null;
  holders: GpuHolder[];
}

export interface GpuHolder {
  run: string | null;
  run_name: string | null;
  task: number | null;
  key: string | null;
  attempt: string | null;
  worker: string | null;
  since_at: number;
  memory_mb: number | null;
  program: string | null;
}

export interface GpuList {
  gpus: Gpu[];
  waiting: GpuTicket[];
}

/** A process on a GPU that no lease explains. */
export interface GpuProcess {
  pid: number;
  memory_mb: number | null;
  name: string | null;
}

export interface GpuQuarantine {
  reason: string;
  since_at: number;
}

/** A place in the queue. */
export interface GpuTicket {
  ticket: number;
  since_at: number;
  run: string | null;
  run_name: string | null;
  task: number | null;
  key: string | null;
  gpus: number;
  memory_mb: number | null;
  program: string | null;
  position: number;
}

/** A guest of a host, as it answered just now. */
export interface GuestRow {
  container: string;
  state: string;
  seen: string;
  tasks_done: number;
  screen_port: number | null;
  screen: string | null;
}

export interface HeldTask {
  key: string;
  reason: string | null;
}

/** One measurement, in the order of their ends, and the best until then that keeps all limits. */
export interface HistoryPoint {
  number: number;
  at: number;
  value: number;
  feasible: boolean;
  best: number | null;
}

/** A host. Of one that nobody rents, all from `state` to `box_usd_per_hour` is null. */
export interface HostRow {
  host: string;
  workers: number;
  busy: number;
  price_usd_per_hour: number;
  state: string | null;
  desired: string | null;
  readiness_check: string | null;
  checks_s: Record<string, number> | null;
  reason: string | null;
  size: string | null;
  region: string | null;
  spot: boolean | null;
  price: string | null;
  address: string | null;
  age_s: number | null;
  cost_usd: number | null;
  deadline_at: number | null;
  idle_share: number | null;
  box_requests_per_hour: number | null;
  box_usd_per_hour: number | null;
  vnc: boolean;
  probe: Record<string, unknown> | null;
  tasks_done: number | null;
  guests: GuestRow[] | null;
}

/** How busy a host was, by columns. */
export interface HostSeries {
  host: string;
  at: number[];
  cpu: (number | null)[];
  memory: (number | null)[];
  disk: (number | null)[];
  net_in_bps: (number | null)[];
  net_out_bps: (number | null)[];
  gpu: (number | null)[];
  disk_read_bps: (number | null)[];
  disk_write_bps: (number | null)[];
  from_cloud: boolean[];
}

export interface HostSeriesList {
  run: string;
  hosts: HostSeries[];
}

export interface Importance {
  name: string;
  share: number;
}

/** 95 % confidence intervals of both scores. */
export interface Intervals {
  strict: [number, number] | null;
  valid: [number, number] | null;
}

export type Kind = "backend_error" | "bad_exit" | "bad_flag" | "cancelled" | "cost_limit" | "crash" | "disk_full" | "download" | "environment_failed" | "gpu_taken" | "host_failed" | "launch_failed" | "out_of_memory" | "port_taken" | "preempted" | "result_missing" | "result_unreadable" | "runner_lost" | "service_failed" | "service_refused" | "signalled" | "stall" | "start_timeout" | "startup_timeout" | "task_error" | "timeout" | "worker_lost";

export interface Lane {
  worker: string;
  host: string;
  bars: ([number, number, number, number | null, "infra" | "live" | "off" | "own" | "pass" | "wrong", string])[];
}

/** The attempts of a run by worker. */
export interface Lanes {
  now: number;
  started_at: number | null;
  lanes: Lane[];
}

export interface LeastDetectable {
  difference: number | null;
  discordance: number;
  assumed: boolean;
  level: number;
  power: number;
}

export interface LeftOut {
  key: string;
  state_a: TaskState;
  state_b: TaskState;
  reason: string;
}

export interface LogPiece {
  stream: "stderr" | "stdout";
  offset: number;
  next: number;
  size: number;
  live: boolean;
  text: string;
}

export interface LogSizes {
  stdout: number;
  stderr: number;
}

/** The end of one log of a machine. */
export interface MachineLog {
  pool: string;
  host: string;
  log: string;
  kept: boolean;
  run: string | null;
  text: string;
  cut: boolean;
}

export interface MachineLogList {
  pool: string;
  host: string;
  logs: MachineLogRow[];
  unread: string[];
}

/** A log that there is of a machine. */
export interface MachineLogRow {
  log: string;
  source: string;
  run: string | null;
  at: number | null;
  file: string | null;
}

/** Whose token asks, and what server this is. */
export interface Me {
  role: Role;
  name: string;
  user: string;
  version: string;
  drives: boolean;
  home: string;
  now: number;
  event: number;
}

export interface MoreTrials {
  run: string;
  state: RunState;
  driven: boolean;
  workers: number;
  budget_usd: number | null;
  priority: number;
  trials: number;
}

/** A run that a process drives which takes no others, such as `evalfleet run`. */
export interface OtherDriver {
  run: string;
  driver: string;
}

export type Outcome = "cancelled" | "infra_error" | "lost" | "ok" | "preempted" | "stalled" | "task_error" | "timeout";

export interface PairCounts {
  common: number;
  paired: number;
  distinct: number;
  left_out: number;
  different: number;
  only_a: number;
  only_b: number;
}

export type Part = "artifacts" | "logs" | "run";

/** The chance that one of k episodes succeeds. */
export interface PassAt {
  k: number;
  tasks: number;
  score: number;
  ci95: [number, number] | null;
}

export interface Pausing {
  run: string;
  state: RunState;
  driven: boolean;
  pausing: number;
}

export interface PinnedRun {
  run: string;
  pinned: boolean;
  reason: string | null;
}

/** A plan. Its times and prices are those of the cloud's clock. */
export interface Plan {
  id: string;
  created_at: number;
  source: string;
  tasks: number;
  backend: string;
  deadline_s: number | null;
  budget_usd: number | null;
  memory_mb: Record<string, number>;
  keeps: boolean;
  chosen: number;
  options: PlanOption[];
  basis: PlanBasis;
  reserved: Reserved | null;
  seed: number;
  speed: number;
  actual: PlanActual | null;
}

/** What the run that followed a plan took, so far or in all. */
export interface PlanActual {
  run: string;
  over: boolean;
  seconds: number;
  usd: number;
  seconds_inside: boolean;
  usd_inside: boolean;
}

/** What a plan is made from. */
export interface PlanBasis {
  tasks: number;
  known_tasks: number;
  runs: number;
  machines: number;
  quota_asked: boolean;
  assumptions: string[];
}

/** Machines of one kind. */
export interface PlanGroup {
  size: string;
  region: string;
  spot: boolean;
  machines: number;
  usd_per_hour: number;
}

/** One fleet that no other one beats in both time and money. */
export interface PlanOption {
  workers: number;
  groups: PlanGroup[];
  seconds: Estimate;
  usd: Estimate;
  machine_hours: number;
}

export interface Plans {
  plans: Plan[];
}

/** How a run treats its tasks. Part of the run; changes only in `budget_usd`, `workers`, `priority` and a study's trials. */
export interface Policy {
  attempts: number;
  timeout_s: number;
  stall_s: number | null;
  start_timeout_s: number | null;
  budget_usd: number | null;
  max_cost_usd: number | null;
  accept: number;
  exit_is_verdict: boolean;
  timeout_is_verdict: boolean;
  result_required: boolean;
  progress: string;
  breaker: boolean;
  max_lost: number;
  retry_base_s: number;
  retry_cap_s: number;
  workers: number;
  distribution: Distribution;
  files: string[];
  pool: string | null;
  tools: Tools | null;
  canary: string[];
  study: Record<string, unknown> | null;
  gpus: number[];
  speculate: boolean;
  priority: number;
  gpu_pack: boolean;
}

/** As a list shows it. */
export interface PoolCount {
  name: string;
  backend: string;
  creates_machines: boolean;
  workers: number;
  created_at: number;
  reason: Reason | null;
  breaker: string | null;
  quota: Quota | null;
  deleting: boolean;
  owner: string | null;
  budget_usd: number | null;
  cost_usd: number | null;
  usd_per_hour: number | null;
  kept_usd_per_day: number | null;
  hosts: number;
}

export interface PoolFacts {
  name: string;
  backend: string;
  creates_machines: boolean;
  workers: number;
  created_at: number;
  reason: Reason | null;
  breaker: string | null;
  quota: Quota | null;
  deleting: boolean;
  owner: string | null;
  budget_usd: number | null;
  cost_usd: number | null;
  usd_per_hour: number | null;
  kept_usd_per_day: number | null;
  hosts: HostRow[];
  tiers: TierRow[] | null;
}

export interface PoolList {
  pools: PoolCount[];
}

/** What was ordered of a pool's machines, and which process does it. */
export interface PoolOrder {
  pool: string;
  machines: string[];
  by: string;
  deleting: boolean;
}

/** What a person should look at. */
export interface Problem {
  severity: "critical" | "info" | "warning";
  text: string;
}

export interface Pruned {
  dry_run: boolean;
  removed: PrunedPart[];
  spared: SparedRun[];
  files: number;
  bytes: number;
  used: number;
}

export interface PrunedPart {
  run: string;
  name: string;
  part: Part;
  ended_at: number;
  files: number;
  bytes: number;
  why: string;
}

export interface Quarantine {
  run: string;
  state: RunState;
  driven: boolean;
  workers: string[];
}

export interface Queue {
  due: QueuedTask[];
  waiting: number;
  next_due_at: number | null;
}

export interface QueuedTask {
  number: number;
  key: string;
  domain: string;
  expected_s: number | null;
  attempts: number;
  not_before: number;
}

/** What the cloud allows, as the pool saw it last. */
export interface Quota {
  family: string | null;
  used: number;
  limit: number;
  region: string | null;
  at: number;
}

/** Why a run or a pool does not go on, and what to do about it. */
export interface Reason {
  cause: string;
  message: string;
  usd_per_hour: number | null;
}

/** Files of a run that are not there any more: artifacts, logs (output and steps), or all that it had. */
export interface RemovedPart {
  part: string;
  removed_at: number;
  files: number;
  bytes: number;
  reason: string;
}

/** What several episodes per task tell. */
export interface RepeatSummary {
  tasks: number;
  episodes: number;
  most: number;
  score: number | null;
  ci95: [number, number] | null;
  deviation: number | null;
  always: number;
  sometimes: number;
  never: number;
  pass_at: PassAt[];
  by_task: RepeatedTask[] | null;
}

export interface RepeatedTask {
  task: string;
  domain: string;
  episodes: number;
  counted: number;
  successes: number;
  score: number | null;
  low: number | null;
  high: number | null;
  deviation: number | null;
  pass_at: (number | null)[];
}

export interface RequestAnswer {
  number: number;
  answer: Record<string, unknown> | null;
}

/** What one task needs of its host while it runs. */
export interface Requests {
  gpus: number;
  memory_mb: number;
  gpu_memory_mb: number;
}

/** From how many such runs a month on reserved capacity is cheaper. */
export interface Reserved {
  share: number;
  runs_per_month: number | null;
}

export interface Resumed {
  run: string;
  state: RunState;
  driven: boolean;
  workers: number;
  budget_usd: number | null;
  priority: number;
  by: string;
}

/** Whether tasks that were retried score otherwise than the rest. */
export interface RetryBias {
  first_attempt: ScoredTasks;
  retried: ScoredTasks;
}

export type Role = "admin" | "member" | "operator" | "reader";

/** One run: its summary, and what it does now. */
export interface RunFacts {
  run: string;
  name: string;
  state: RunState;
  reason: Reason | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  tasks: TaskCounts;
  scores: Scores;
  accept: number;
  accepted: boolean;
  attempts: AttemptCounts;
  failures: Record<string, number>;
  failures_by_blame: Record<string, number>;
  failure_kinds: FailureKind[];
  failure_groups: FailureGroup[];
  common_failure: CommonFailure | null;
  held: HeldTask[];
  cost: Cost;
  retry_rate: number | null;
  retry_bias: RetryBias;
  avg_task_duration_s: number | null;
  duration_s: number | null;
  by_domain: Record<string, DomainSummary>;
  repeats: RepeatSummary | null;
  study: StudyFound | null;
  plan: Plan | null;
  results: TaskResult[] | null;
  owner: string;
  project: string;
  tags: Record<string, string>;
  imported: boolean;
  pinned: boolean;
  removed: RemovedPart[];
  covers: string | null;
  driven: boolean;
  driver: string | null;
  cancelling: boolean;
  workers: WatchedWorker[];
  eta_s: [number, number] | null;
  breaker: string | null;
  waits: string | null;
  policy: Policy;
  problems: Problem[];
  alerts: Alert[];
  quarantined: string[];
  folder: string;
}

export interface RunPage {
  runs: WatchedRun[];
  next: string | null;
}

export type RunState = "cancelled" | "completed" | "paused" | "queued" | "running";

/** One level of successive halving: how many trials may reach it, with how much of the resource, and how they fared. */
export interface Rung {
  rung: number;
  budget: number;
  wanted: number;
  made: number;
  open: number;
  measured: number;
  failed: number;
  void: number;
  leads: string | null;
}

/** Scores and cost over time, by columns. */
export interface ScoreSeries {
  at: number[];
  decided: number[];
  done: number[];
  strict: (number | null)[];
  valid: (number | null)[];
  cost_usd: number[];
  waste_usd: number[];
}

export interface ScoredTasks {
  n: number;
  score: number | null;
}

export interface Scores {
  strict: number | null;
  valid: number | null;
  coverage: number;
  verdicts: number;
  passed: number;
  ci95: Intervals;
}

export interface ShareFacts {
  rules: ShareRow[];
  use: ShareUse[];
}

/** A user or a project; `*` is each one that is not named. */
export interface ShareName {
  subject: string;
  name: string;
}

/** What one may have. None: not said. */
export interface ShareRow {
  subject: string;
  name: string;
  weight: number | null;
  running: number | null;
  gpus: number | null;
  usd_per_day: number | null;
}

/** What one has now, and has spent since 00:00 UTC. */
export interface ShareUse {
  subject: string;
  name: string;
  running: number;
  gpus: number;
  spent_usd: number;
  committed_usd: number;
}

/** What was submitted. Values of variables that look like secrets are hidden. */
export interface ShownSpec {
  command: string[];
  env: Record<string, string>;
  secrets: string[];
  payload: unknown;
  timeout_s: number | null;
  stall_s: number | null;
  start_timeout_s: number | null;
  requests: Requests;
  max_cost_usd: number | null;
  gpu_env: string;
}

/** One of the two runs. */
export interface Side {
  run: string;
  name: string;
  state: RunState;
  tasks: number;
  unfinished: number;
  scores: SideScores;
  paired_score: number | null;
  successes: number;
  avg_task_duration_s: number | null;
  duration_s: number | null;
  cost: SideCost;
}

export interface SideCost {
  total_usd: number;
  waste_usd: number;
  cost_per_task_usd: number | null;
}

export interface SideScores {
  valid: number | null;
  strict: number | null;
  coverage: number;
}

/** A run that the rules name, and that stays. */
export interface SparedRun {
  run: string;
  why: string;
}

export interface StudyAmended {
  run: string;
  state: RunState;
  driven: boolean;
  workers: number;
  budget_usd: number | null;
  priority: number;
  parallel: number;
}

/** All of a study. */
export interface StudyFacts {
  strategy: string;
  objective: Record<string, string>[];
  constraints: string[];
  searched: number;
  wanted: number;
  counts: TrialCounts;
  best: Configuration | null;
  baseline: Configuration | null;
  verdict: string | null;
  confirmed: Confirmed | null;
  flags: string | null;
  front: Configuration[] | null;
  nearest: Configuration | null;
  run: string;
  name: string;
  state: RunState;
  reason: string | null;
  open: boolean;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  seed: number;
  parallel: number;
  pool: string | null;
  parameters: StudyParameter[];
  forbid: string[];
  repeats: number;
  crowded: string | null;
  importance: Importance[] | null;
  resource: string | null;
  rungs: Rung[] | null;
  owner: string;
  project: string;
  tags: Record<string, string>;
  trials: Trial[];
  history: HistoryPoint[];
}

/** What a study found, for where a run shows its scores. */
export interface StudyFound {
  strategy: string;
  objective: Record<string, string>[];
  constraints: string[];
  searched: number;
  wanted: number;
  counts: TrialCounts;
  best: Configuration | null;
  baseline: Configuration | null;
  verdict: string | null;
  confirmed: Confirmed | null;
  flags: string | null;
  front: Configuration[] | null;
  nearest: Configuration | null;
}

export interface StudyList {
  studies: StudyRow[];
}

export interface StudyParameter {
  name: string;
  type: "choice" | "continuous" | "integer";
  values: (string | boolean | number)[] | null;
  low: number | null;
  high: number | null;
  log: boolean;
  when: string | null;
}

/** A study without its trials. */
export interface StudyRow {
  strategy: string;
  objective: Record<string, string>[];
  constraints: string[];
  searched: number;
  wanted: number;
  counts: TrialCounts;
  best: Configuration | null;
  baseline: Configuration | null;
  verdict: string | null;
  confirmed: Confirmed | null;
  flags: string | null;
  front: Configuration[] | null;
  nearest: Configuration | null;
  run: string;
  name: string;
  state: RunState;
  reason: string | null;
  open: boolean;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  seed: number;
  parallel: number;
  pool: string | null;
  parameters: StudyParameter[];
  forbid: string[];
  repeats: number;
  crowded: string | null;
  importance: Importance[] | null;
  resource: string | null;
  rungs: Rung[] | null;
  owner: string;
  project: string;
  tags: Record<string, string>;
}

/** A run that is stored. */
export interface Submitted {
  run: string;
  name: string;
  state: RunState;
  tasks: number;
  warning?: string | null;
}

export interface SubmittedStudy {
  run: string;
  name: string;
  state: RunState;
  folder: string;
}

export interface SuccessChange {
  gained: number;
  lost: number;
  p_value: number;
}

/** How many tasks there are, and how many of them are in each state. */
export interface TaskCounts {
  total: number;
  done: number;
  failed: number;
  held: number;
  cancelled: number;
  queued: number;
  running: number;
}

export interface TaskFacts {
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
  failure: TaskFailure | null;
  reason: string | null;
  spec: ShownSpec;
  instruction: string | null;
  not_before: number;
  hold_asked: boolean;
  expected_s: number | null;
  consumed: number;
  lost: number;
  attempt_list: AttemptRow[];
}

export interface TaskFailure {
  kind: string;
  blame: string;
  evidence: string | null;
}

export interface TaskGrid {
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

export interface TaskPage {
  tasks: TaskResult[];
  next: string | null;
}

/** One task: its verdict, or why it has none. */
export interface TaskResult {
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
  failure: TaskFailure | null;
  reason: string | null;
}

export type TaskState = "cancelled" | "done" | "failed" | "held" | "queued" | "running";

/** A pool that is a tier of another one. */
export interface TierRow {
  tier: string;
  backend: string;
  state: string;
  why: string;
  since: number;
  retry_at: number | null;
  capacity: number;
  ready: number;
  busy: number;
  wanted: number;
  usd_per_hour: number | null;
  cost_usd: number | null;
  starts: number;
  start_rate: number | null;
  ready_s: number | null;
}

/** What a run's tasks need of another machine than this one, besides the runner; brought and proved there. */
export interface Tools {
  shipped: string[];
  bare: string[];
  benchmark: string | null;
  settings: Record<string, unknown>;
  secrets: string[];
}

export interface Trial {
  key: string;
  number: number;
  task: number;
  role: string;
  rung: number | null;
  progress: "failed" | "measured" | "open" | "void";
  phase: "benchmarking" | "deploying" | "waiting" | null;
  parameters: Record<string, string | boolean | number>;
  metrics: Record<string, number>;
  feasible: boolean | null;
  broken: string[];
  worker: string | null;
  gpus: number[];
  started_at: number | null;
  ended_at: number | null;
  duration_s: number | null;
  phases: TrialPhases | null;
  reason: string | null;
  failure: TrialFailure | null;
}

export interface TrialCounts {
  open: number;
  measured: number;
  failed: number;
  void: number;
}

export interface TrialFailure {
  kind: string;
  evidence: string | null;
}

export interface TrialPhases {
  deploying_s: number;
  benchmarking_s: number;
}

/** A common task whose payloads differ. `same_work`: only a limit differs. */
export interface UnlikeTask {
  key: string;
  differs: Record<string, [unknown, unknown]>;
  same_work: boolean;
}

export interface UnquarantinedGpu {
  host: string;
  uuid: string;
}

export interface UserList {
  users: UserRow[];
}

export interface UserRow {
  name: string;
  role: Role;
  origin: string;
  disabled: boolean;
  created_at: number;
}

/** What the benchmark's checker said. */
export interface Verdict {
  score: number;
  success: boolean;
  steps: number | null;
  metrics: Record<string, unknown>;
}

/** A run that no controller looks after. */
export interface WaitingRun {
  run: string;
  name: string;
  why: string;
}

/** A row of the page's list. */
export interface WatchedRun {
  run: string;
  name: string;
  state: RunState;
  reason: Reason | null;
  driven: boolean;
  tasks: TaskCounts;
  scores: Scores;
  study: StudyFound | null;
  cost_usd: number;
  budget_usd: number | null;
  workers: number;
  pool: string | null;
  distribution: string;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  owner: string;
  project: string;
  tags: Record<string, string>;
  eta_s: [number, number] | null;
  problems: Problem[];
}

export interface WatchedWorker {
  name: string;
  state: string;
  task: string | null;
  attempt: number | null;
  step: number | null;
  elapsed_s: number | null;
  host: string;
  task_number: number | null;
  starting: boolean;
  assigned: number;
  completed: number;
  screen: boolean;
}
