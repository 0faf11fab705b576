// Light or dark: the system's wish, or the reader's own.

export type Theme = "system" | "light" | "dark";
const KEY = "evalfleet.theme";

class Looks {
  theme = $state<Theme>("system");
  /** Rises when colours may have changed; what is drawn on a canvas depends on it. */
  version = $state(0);

  constructor() {
    try {
      const kept = localStorage.getItem(KEY);
      if (kept === "light" || kept === "dark") this.theme = kept;
    } catch {
      // Storage may be forbidden; then the choice lasts as long as the page.
    }
    this.#apply();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.version++);
  }

  next(): void {
    const order: Theme[] = ["system", "light", "dark"];
    this.theme = order[(order.indexOf(this.theme) + 1) % order.length] ?? "system";
    try {
      localStorage.setItem(KEY, this.theme);
    } catch {
      // as above
    }
    this.#apply();
  }

  #apply(): void {
    const root = document.documentElement;
    if (this.theme === "system") delete root.dataset.theme;
    else root.dataset.theme = this.theme;
    this.version++;
  }
}

export const looks = new Looks();

/** The colours that the style sheet gives now, as a canvas takes them. */
export function colours<Name extends string>(names: readonly Name[]): Record<Name, string> {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {} as Record<Name, string>;
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
