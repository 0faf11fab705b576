// Short names for what the API answers. The types themselves are made of the server's structs: see answers.ts.

import type { Lane, WatchedRun } from "./answers";

export type {
  Alert,
  AlertPage as AlertsPage,
  AttemptFacts as AttemptDetail,
  AttemptRow as Attempt,
  Comparison,
  Configuration,
  EventPage as EventsPage,
  EventRow as FleetEvent,
  FailedAttempt,
  FailurePage as Failures,
  Film,
  HostRow,
  HostSeries,
  Lane,
  Lanes,
  LogPiece,
  Me,
  PoolCount as PoolRow,
  PoolFacts as Pool,
  Queue,
  RunFacts as Run,
  RunPage as RunsPage,
  RunState,
  ScoreSeries as Series,
  StudyFound,
  TierRow,
  TaskCounts as Counts,
  TaskFacts as Task,
  TaskGrid as Grid,
  TaskState,
  WatchedRun as RunRow,
  WatchedWorker as WorkerLine,
} from "./answers";

export type Bar = Lane["bars"][number];
/** How a task or an attempt is coloured. */
export type Look = Bar[4] | "queued" | "held";
export type Range = NonNullable<WatchedRun["eta_s"]>;
