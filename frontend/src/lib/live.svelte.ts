// An answer of the API that keeps itself fresh: asked again when an event says that it changed, never more often than useful.

import { ApiError, get } from "./api";
import { feed } from "./feed.svelte";
import type { FleetEvent } from "./types";

export interface Live<T> {
  readonly data: T | null;
  readonly error: ApiError | null;
  readonly loading: boolean;
  refresh: () => void;
}

interface Options {
  /** Which events change the answer. */
  wants?: (event: FleetEvent) => boolean;
  gap_ms?: number;
  /** Asked again this often even without events: for what time alone changes. */
  every_ms?: number;
}

/** Must be called while a component is made. A path of null: nothing is asked. */
export function live<T>(path: () => string | null, options: Options = {}): Live<T> {
  let data = $state.raw<T | null>(null);
  let error = $state.raw<ApiError | null>(null);
  let loading = $state(true);
  let refresh: () => void = () => undefined;

  $effect(() => {
    const asked = path();
    data = null;
    error = null;
    loading = asked !== null;
    if (asked === null) return;
    const confirmDialog = new Asking<T>(asked, options.gap_ms ?? 1000, (found, failed) => {
      if (found !== null) data = found;
      // What is shown stays while the server is away; the connection's own notice tells it.
      if (failed === null || !failed.offline || data === null) error = failed;
      loading = false;
    });
    refresh = () => confirmDialog.want();
    const stop = feed.listen((event) => {
      if (options.wants?.(event)) confirmDialog.want();
    }, refresh);
    const timer = options.every_ms ? setInterval(refresh, options.every_ms) : undefined;
    confirmDialog.want();
    return () => {
      stop();
      clearInterval(timer);
      confirmDialog.close();
      refresh = () => undefined;
    };
  });

  return {
    get data() {
      return data;
    },
    get error() {
      return error;
    },
    get loading() {
      return loading;
    },
    refresh: () => refresh(),
  };
}

/** One request at a time; the next begins a gap after the last one ended, and only if somebody wants it. */
class Asking<T> {
  #wanted = false;
  #busy = false;
  #closed = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort = new AbortController();
  #seen = (): void => {
    if (!document.hidden && this.#wanted && !this.#busy) this.#begin();
  };

  constructor(
    private readonly path: string,
    private readonly gap_ms: number,
    private readonly tell: (data: T | null, error: ApiError | null) => void,
  ) {
    document.addEventListener("visibilitychange", this.#seen);
  }

  want(): void {
    this.#wanted = true;
    if (!this.#busy && !this.#closed) this.#begin();
  }

  close(): void {
    this.#closed = true;
    this.#abort.abort();
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#seen);
  }

  #begin(): void {
    if (document.hidden) return; // it is asked when somebody looks
    this.#wanted = false;
    this.#busy = true;
    void this.#ask();
  }

  async #ask(): Promise<void> {
    const began = performance.now();
    try {
      const data = await get<T>(this.path, this.#abort.signal);
      if (!this.#closed) this.tell(data, null);
    } catch (error) {
      if (!this.#closed) this.tell(null, error instanceof ApiError ? error : new ApiError(0, "Offline", String(error)));
    }
    if (this.#closed) return;
    // An answer that took long is asked for more seldom.
    const gap_ms = Math.max(this.gap_ms, 4 * (performance.now() - began));
    this.#timer = setTimeout(() => {
      this.#busy = false;
      if (this.#wanted) this.#begin();
    }, gap_ms);
  }
}
