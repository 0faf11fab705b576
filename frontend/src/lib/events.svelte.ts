// The events of a run, newest first: the latest page, what comes after it live, and older pages when they are asked for.

import { get, query, runPath } from "./api";
import { feed } from "./feed.svelte";
import type { EventsPage, FleetEvent } from "./types";

const PAGE = 200;
const MOST = 5000;

export class EventLog {
  events = $state.raw<FleetEvent[]>([]);
  next = $state<string | null>(null);
  loaded = $state(false);
  failed = $state<string | null>(null);

  #fresh: FleetEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;
  #stop: () => void;

  constructor(
    private readonly run: string,
    private readonly type: string,
    private readonly task: string,
  ) {
    this.#stop = feed.listen(
      (event) => {
        if (event.run === run && this.#fits(event)) this.#add(event);
      },
      () => void this.#begin(),
    );
    void this.#begin();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#stop();
  }

  async older(): Promise<void> {
    if (this.next === null) return;
    const page = await this.#page(this.next);
    this.next = page.next;
    this.events = [...this.events, ...page.events];
  }

  async #begin(): Promise<void> {
    try {
      const page = await this.#page(null);
      if (this.#closed) return;
      const last = page.events[0]?.number ?? 0;
      // What came over the feed meanwhile and is not on the page yet.
      const newer = [...this.events, ...this.#fresh].filter((event) => event.number > last);
      this.#fresh = [];
      newer.sort((a, b) => b.number - a.number);
      this.events = [...newer, ...page.events];
      this.next = page.next;
      this.failed = null;
    } catch (error) {
      this.failed = String(error instanceof Error ? error.message : error);
    }
    this.loaded = true;
  }

  #page(cursor: string | null): Promise<EventsPage> {
    return get<EventsPage>(
      `${runPath(this.run)}/events${query({ order: "desc", limit: PAGE, type: this.type, task: this.task, cursor })}`,
    );
  }

  /** Many may come at once; they are shown together. */
  #add(event: FleetEvent): void {
    this.#fresh.push(event);
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const known = this.events[0]?.number ?? 0;
      const news = this.#fresh.filter((one) => one.number > known).reverse();
      this.#fresh = [];
      this.events = [...news, ...this.events].slice(0, MOST);
    }, 200);
  }

  #fits(event: FleetEvent): boolean {
    if (this.task && event.task !== this.task) return false;
    if (!this.type) return true;
    return this.type.endsWith("*") ? event.type.startsWith(this.type.slice(0, -1)) : event.type === this.type;
  }
}
