// How the outcome of an attempt or a task looks: a colour, a mark and a word, so that none of them has to be seen alone.

import type { Counts, Grid, Look } from "./types";

export const LOOKS: readonly Look[] = ["pass", "wrong", "own", "infra", "held", "off", "live", "queued"];

export const WORDS: Record<Look, string> = {
  pass: "passed",
  wrong: "not passed",
  own: "failed, its own fault",
  infra: "failed, not its fault",
  held: "held, needs a person",
  off: "cancelled",
  live: "running",
  queued: "queued",
};

/** Tasks that nothing more happens to unless a person acts. */
export function settled(tasks: Counts): number {
  return tasks.total - tasks.queued - tasks.running;
}

export function gridLook(grid: Grid, index: number): Look {
  switch (grid.state[index]) {
    case "done":
      return grid.success[index] ? "pass" : "wrong";
    case "failed":
      return grid.blame[index] === "task" || grid.blame[index] === null ? "own" : "infra";
    case "held":
      return "held";
    case "cancelled":
      return "off";
    case "running":
      return "live";
    default:
      return "queued";
  }
}

/** What a checker said, in a word or two: "passed", "not passed", "score 0.4". */
export function verdictText(score: number, success: boolean): string {
  if (success) return "passed";
  return score > 0 ? `score ${Math.round(score * 1000) / 1000}` : "not passed";
}

export function attemptLook(attempt: {
  live: boolean;
  outcome: string | null;
  verdict: { success: boolean } | null;
  failure: { blame: string } | null;
}): Look {
  if (attempt.live) return "live";
  if (attempt.verdict) return attempt.verdict.success ? "pass" : "wrong";
  if (attempt.outcome === "cancelled") return "off";
  return attempt.failure && attempt.failure.blame !== "task" ? "infra" : "own";
}
