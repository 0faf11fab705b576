// Who looks at the page, and whether the server lets them.

import { ApiError, get } from "./api";
import { clock } from "./clock.svelte";
import { feed } from "./feed.svelte";
import type { Me } from "./types";

class Session {
  me = $state.raw<Me | null>(null);
  denied = $state<string | null>(null);

  /** Whether the user may act on pools and on everybody's runs. */
  get operator(): boolean {
    return this.me?.role === "operator" || this.me?.role === "admin";
  }

  /** Whether the user may submit runs. */
  get member(): boolean {
    return this.operator || this.me?.role === "member";
  }

  /** Whether the user may act on a run of this owner. */
  actsFor(owner: string): boolean {
    return this.operator || (this.member && owner !== "" && owner === this.me?.user);
  }

  async enter(): Promise<void> {
    for (;;) {
      try {
        const me = await get<Me>("/me");
        clock.set(me.now);
        this.me = me;
        this.denied = null;
        feed.start(me.event);
        return;
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) {
          this.denied = error.message;
          return;
        }
        feed.state = "lost";
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    }
  }
}

export const session = new Session();
