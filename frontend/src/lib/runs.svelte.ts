// All runs of the home, kept fresh: all are read once, then only the newest and those that can still change.

import { ApiError, get, query } from "./api";
import { feed } from "./feed.svelte";
import type { RunRow, RunsPage } from "./types";

const PAGE = 200;
const GAP_MS = 1000;
const CHANGING = ["queued", "running", "paused"];

export class RunList {
  rows = $state.raw<RunRow[]>([]);
  error = $state.raw<ApiError | null>(null);
  loaded = $state(false);

  #byId = new Map<string, RunRow>();
  #closed = false;
  #busy = false;
  #wanted = false;
  #stop: () => void;
  #seen = (): void => {
    if (!document.hidden && this.#wanted) this.#want();
  };

  constructor() {
    this.#stop = feed.listen(
      () => this.#want(),
      () => this.#want(),
    );
    document.addEventListener("visibilitychange", this.#seen);
    void this.#readAll();
  }

  close(): void {
    this.#closed = true;
    this.#stop();
    document.removeEventListener("visibilitychange", this.#seen);
  }

  async #readAll(): Promise<void> {
    this.#busy = true;
    await this.#try(async () => {
      let cursor: string | null = null;
      do {
        const page: RunsPage = await get<RunsPage>(`/runs${query({ limit: PAGE, cursor })}`);
        this.#keep(page.runs);
        cursor = page.next;
      } while (cursor !== null && !this.#closed);
    });
    this.#rest();
  }

  #want(): void {
    this.#wanted = true;
    if (this.#busy || this.#closed || document.hidden) return;
    this.#busy = true;
    this.#wanted = false;
    void this.#refresh();
  }

  async #refresh(): Promise<void> {
    await this.#try(async () => {
      const before = this.rows.filter((row) => CHANGING.includes(row.state)).map((row) => row.run);
      const changing = await get<RunsPage>(`/runs${query({ limit: 1000, state: CHANGING })}`);
      this.#keep(changing.runs);
      const still = new Set(changing.runs.map((row) => row.run));
      // What ended meanwhile, and what is new, is among the newest most often; the rest is asked one by one.
      const newest = await get<RunsPage>(`/runs${query({ limit: 20 })}`);
      this.#keep(newest.runs);
      for (const row of newest.runs) still.add(row.run);
      for (const run of before.filter((one) => !still.has(one)).slice(0, 20)) {
        this.#keep((await get<RunsPage>(`/runs${query({ search: run, limit: 1 })}`)).runs);
      }
    });
    this.#rest();
  }

  async #try(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.error = null;
    } catch (error) {
      if (error instanceof ApiError && (!error.offline || !this.loaded)) this.error = error;
    }
    this.loaded = true;
  }

  #rest(): void {
    setTimeout(() => {
      this.#busy = false;
      if (this.#wanted) this.#want();
    }, GAP_MS);
  }

  #keep(found: RunRow[]): void {
    for (const row of found) this.#byId.set(row.run, row);
    this.rows = [...this.#byId.values()].sort((a, b) => b.created_at - a.created_at);
    if (found.length) this.loaded = true;
  }
}

/** How urgent a run is: those that need a person first, then those at work, then the rest by age. Pure. */
export function urgency(row: RunRow): number {
  const over = row.state === "completed" || row.state === "cancelled";
  if (!over && row.problems.some((problem) => problem.severity === "critical")) return 0;
  if (row.state === "running") return row.problems.length ? 1 : 2;
  if (row.state === "paused") return 1;
  return row.state === "queued" ? 3 : 4;
}
