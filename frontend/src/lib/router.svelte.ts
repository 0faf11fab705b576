// Addresses of the page. History routing: every address can be reloaded, shared and opened in a new tab.

class Router {
  path = $state(location.pathname);
  search = $state(location.search);

  constructor() {
    addEventListener("popstate", () => this.#read());
    document.addEventListener("click", (event) => this.#click(event));
  }

  get params(): URLSearchParams {
    return new URLSearchParams(this.search);
  }

  go(address: string, replace = false): void {
    if (replace) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    const before = this.path;
    this.#read();
    if (!replace && before !== this.path) scrollTo(0, 0);
  }

  /** Change one value of the query in place; null removes it. */
  set(name: string, value: string | null, replace = true): void {
    const params = this.params;
    if (value === null || value === "") params.delete(name);
    else params.set(name, value);
    const text = params.toString();
    this.go(text ? `${this.path}?${text}` : this.path, replace);
  }

  #read(): void {
    this.path = location.pathname;
    this.search = location.search;
  }

  #click(event: MouseEvent): void {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api/")) return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

export const router = new Router();

export function runAddress(run: string): string {
  return `/runs/${encodeURIComponent(run)}`;
}

export function taskAddress(run: string, task: number, attempt?: number | null): string {
  const base = `${runAddress(run)}/tasks/${task}`;
  return attempt ? `${base}/attempts/${attempt}` : base;
}
