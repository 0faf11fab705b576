// The one live feed of the page: every event of the home, in order, none twice. It reconnects by itself.

import { Shared } from "./shared";
import { Refused, read } from "./sse";
import type { FleetEvent } from "./types";

type Listener = (event: FleetEvent) => void;
export type FeedState = "connecting" | "live" | "lost" | "refused";

const SILENCE_MS = 25_000; // the server sends a heartbeat every 10 s
const LONGEST_WAIT_MS = 5_000;

class Feed {
  state = $state<FeedState>("connecting");
  /** When the server was heard last, by this machine's clock. */
  heardAt = $state(0);

  #last: number | null = null;
  #listeners = new Set<Listener>();
  #resyncs = new Set<() => void>();
  #stop: AbortController | null = null;
  #wake: (() => void) | null = null;

  get last(): number | null {
    return this.#last;
  }

  start(after: number): void {
    this.stop();
    this.#last = after;
    const stop = (this.#stop = new AbortController());
    const shared = new Shared({
      alive: () => this.#heard(),
      message: (message) => {
        this.#heard();
        this.#take(message.id, message.event, message.data);
      },
      away: (refused) => {
        this.state = refused ? "refused" : "lost";
      },
      behind: () => {
        for (const resync of this.#resyncs) resync();
      },
    });
    stop.signal.addEventListener("abort", () => shared.close());
    void shared.read(
      () => this.#last ?? 0,
      stop.signal,
      () => this.#loop(stop.signal, shared),
    );
  }

  stop(): void {
    this.#stop?.abort();
    this.#stop = null;
  }

  /** Do not wait any longer before the next try: the machine woke up, or the network came back. */
  hurry(): void {
    this.#wake?.();
  }

  listen(listener: Listener, resync: () => void): () => void {
    this.#listeners.add(listener);
    this.#resyncs.add(resync);
    return () => {
      this.#listeners.delete(listener);
      this.#resyncs.delete(resync);
    };
  }

  async #loop(signal: AbortSignal, shared: Shared): Promise<void> {
    let wait_ms = 500;
    while (!signal.aborted) {
      try {
        await read(`/api/v1/events?after=${this.#last ?? 0}`, this.#last, SILENCE_MS, signal, {
          alive: () => {
            wait_ms = 500;
            this.#heard();
            shared.alive();
          },
          message: (message) => {
            shared.tell(message);
            this.#take(message.id, message.event, message.data);
          },
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status === 401) {
          this.state = "refused";
          shared.away(true);
          return;
        }
      }
      if (signal.aborted) return;
      this.state = "lost";
      shared.away(false);
      await this.#pause(wait_ms);
      wait_ms = Math.min(wait_ms * 2, LONGEST_WAIT_MS);
    }
  }

  #heard(): void {
    this.heardAt = Date.now();
    if (this.state === "live") return;
    const returned = this.state === "lost";
    this.state = "live";
    // The events that were missed will come; what is not told by events (a server of another version, a clock) is asked anew.
    if (returned) for (const resync of this.#resyncs) resync();
  }

  #take(id: string | null, name: string | null, data: string): void {
    if (name === "hello") return;
    if (name === "resync") {
      if (id !== null) this.#last = Number(id);
      for (const resync of this.#resyncs) resync();
      return;
    }
    const event = JSON.parse(data) as FleetEvent;
    if (this.#last !== null && event.number <= this.#last) return;
    this.#last = event.number;
    for (const listener of this.#listeners) listener(event);
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, ms);
      const wake = (): void => done();
      this.#wake = wake;
      function done(): void {
        clearTimeout(timer);
        resolve();
      }
    });
  }
}

export const feed = new Feed();
