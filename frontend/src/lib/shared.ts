// One stream for all tabs: a browser allows few connections to a server, and each tab with one of its own would use them up.
// One tab reads and tells the others; when it is closed, the next one reads on from where it is.

import type { Message } from "./sse";

const NAME = "evalfleet-feed";
const KEPT = 2000; // messages that a tab which joins can be told again

type Told =
  | { kind: "join"; after: number }
  | { kind: "message"; message: Message }
  | { kind: "alive" }
  | { kind: "away"; refused: boolean }
  | { kind: "behind"; after: number };

export interface Hearer {
  alive: () => void;
  message: (message: Message) => void;
  /** The tab that reads cannot reach the server, or is not let in. */
  away: (refused: boolean) => void;
  /** This tab may have missed something: what it shows is to be asked for anew. */
  behind: () => void;
}

export class Shared {
  #channel = new BroadcastChannel(NAME);
  #kept: Message[] = [];
  #since: number | null = null; // what is kept begins after this number; null: another tab reads

  constructor(hearer: Hearer) {
    this.#channel.onmessage = (told: MessageEvent<Told>) => {
      const said = told.data;
      if (said.kind === "join") this.#welcome(said.after);
      else if (this.#since !== null) return;
      else if (said.kind === "alive") hearer.alive();
      else if (said.kind === "away") hearer.away(said.refused);
      else if (said.kind === "message") hearer.message(said.message);
      else if (said.kind === "behind") hearer.behind();
    };
  }

  /** Call `reads` as soon as no other tab does, until the signal. Whoever waits meanwhile is told what the reading tab hears. */
  async read(after: () => number, signal: AbortSignal, reads: () => Promise<void>): Promise<void> {
    if (!("locks" in navigator)) return reads(); // a page that is not safe by the browser's rules reads for itself
    this.#channel.postMessage({ kind: "join", after: after() } satisfies Told);
    try {
      await navigator.locks.request(NAME, { signal }, async () => {
        this.#since = after();
        await reads();
      });
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#since = null;
      this.#kept = [];
    }
  }

  alive(): void {
    this.#channel.postMessage({ kind: "alive" } satisfies Told);
  }

  away(refused: boolean): void {
    this.#channel.postMessage({ kind: "away", refused } satisfies Told);
  }

  tell(message: Message): void {
    this.#kept.push(message);
    if (this.#kept.length > KEPT) {
      const gone = this.#kept.shift();
      if (gone?.id) this.#since = Number(gone.id);
    }
    this.#channel.postMessage({ kind: "message", message } satisfies Told);
  }

  close(): void {
    this.#channel.close();
  }

  #welcome(after: number): void {
    if (this.#since === null) return;
    if (after < this.#since) this.#channel.postMessage({ kind: "behind", after } satisfies Told);
    for (const message of this.#kept) this.#channel.postMessage({ kind: "message", message } satisfies Told);
    this.alive();
  }
}
