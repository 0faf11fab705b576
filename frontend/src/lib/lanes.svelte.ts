// The lanes of a run, read whole once and then only what was live or came since.

import { get, runPath } from "./api";
import { feed } from "./feed.svelte";
import { merged } from "./timeline";
import type { Lane, Lanes } from "./types";

const GAP_MS = 700;

export class LaneFeed {
  lanes = $state.raw<Lane[]>([]);
  started_at = $state<number | null>(null);
  loaded = $state(false);

  #since = 0;
  #busy = false;
  #wanted = false;
  #closed = false;
  #stop: () => void;

  constructor(private readonly run: string) {
    const want = (): void => this.#want();
    this.#stop = feed.listen(
      (event) => {
        if (event.run === run && event.type.startsWith("attempt.") && event.type !== "attempt.progressed") want();
      },
      () => {
        this.#since = 0;
        want();
      },
    );
    document.addEventListener("visibilitychange", want);
    this.#stop = ((stop) => () => {
      stop();
      document.removeEventListener("visibilitychange", want);
    })(this.#stop);
    want();
  }

  close(): void {
    this.#closed = true;
    this.#stop();
  }

  #want(): void {
    this.#wanted = true;
    if (this.#busy || this.#closed || document.hidden) return;
    this.#wanted = false;
    this.#busy = true;
    void this.#ask();
  }

  async #ask(): Promise<void> {
    try {
      const since = this.#since;
      const answer = await get<Lanes>(`${runPath(this.run)}/lanes${since ? `?after_at=${since}` : ""}`);
      if (this.#closed) return;
      this.started_at = answer.started_at;
      this.lanes = since ? merged(this.lanes, answer.lanes) : answer.lanes;
      // What is live now must be asked for again, whenever it began; a second covers answers that were made a little earlier.
      const live = this.lanes.flatMap((lane) => lane.bars.filter((bar) => bar[3] === null).map((bar) => bar[2]));
      this.#since = Math.min(answer.now - 1, ...live);
      this.loaded = true;
    } catch {
      // The feed tells that the connection is lost, and asks again when it is back.
    }
    setTimeout(() => {
      this.#busy = false;
      if (this.#wanted) this.#want();
    }, GAP_MS);
  }
}
