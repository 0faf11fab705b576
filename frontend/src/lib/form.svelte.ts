// A form that is sent to the server: busy while it is, and what the server said against it.

import { ApiError } from "./api";

export class Form {
  busy = $state(false);
  refused = $state<string | null>(null);

  /** Returns whether it was taken. */
  async send(work: () => Promise<void>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.refused = null;
    try {
      await work();
      return true;
    } catch (error) {
      this.refused = error instanceof ApiError || error instanceof Error ? error.message : String(error);
      return false;
    } finally {
      this.busy = false;
    }
  }
}

/** What a person filled in: empty fields are left out, numbers are numbers. */
export function filled(
  texts: Record<string, string | number | null | undefined>,
  numbers: readonly string[],
): Record<string, string | number> {
  const found: Record<string, string | number> = {};
  for (const [name, value] of Object.entries(texts)) {
    const text = String(value ?? "").trim();
    if (!text) continue;
    if (!numbers.includes(name)) found[name] = text;
    else if (Number.isFinite(Number(text))) found[name] = Number(text);
    else throw new Error(`${name.replaceAll("_", " ")}: ${text} is no number`);
  }
  return found;
}
