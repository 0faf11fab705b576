// How the outcome of an attempt or a task looks: a colour, a mark and a word, so that none of them has to be seen alone.

import type { Grid, Look } from "./types";

export const LOOKS: readonly Look[] = ["pass", "wrong", "own", "infra", "held", "off", "live", "queued"];

export const WORDS: Record<Look, string> = {
  pass: "success",
  wrong: "no success",
  own: "failed, its own fault",
  infra: "failed, not its fault",
  held: "held, needs a person",
  off: "cancelled",
  live: "running",
  queued: "queued",
};

export function gridLook(grid: Grid, index: number): Look {
  switch (grid.state[index]) {
    case "succeeded":
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

export function attemptLook(attempt: { live: boolean; outcome: string | null; verdict: { success: boolean } | null; failure: { blame: string } | null }): Look {
  if (attempt.live) return "live";
  if (attempt.verdict) return attempt.verdict.success ? "pass" : "wrong";
  if (attempt.outcome === "cancelled") return "off";
  return attempt.failure && attempt.failure.blame !== "task" ? "infra" : "own";
}
