// The server's clock, which every moment of the API is told by; ticks once a second while the page is seen.

class Clock {
  #offset_s = 0;
  now = $state(Date.now() / 1000);

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.tick();
    }, 1000);
    document.addEventListener("visibilitychange", () => this.tick());
  }

  set(server_now: number): void {
    this.#offset_s = server_now - Date.now() / 1000;
    this.tick();
  }

  /** More often than the ticks, for what is drawn frame by frame. */
  get exact(): number {
    return Date.now() / 1000 + this.#offset_s;
  }

  tick(): void {
    this.now = this.exact;
  }
}

export const clock = new Clock();
