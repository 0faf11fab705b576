// The end of a log that grows. Pieces are asked for by offset, so that none is read twice.

import { attemptPath, get, query } from "./api";
import type { LogPiece } from "./types";

const FIRST = 65_536;
const MOST = 1_000_000; // characters kept
const EVERY_MS = 1000;
// Colours and cursor moves of terminals, which a page cannot show.
const ESCAPES =
  /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g;

export class Tail {
  text = $state("");
  size = $state(0);
  skipped = $state(0);
  loaded = $state(false);
  live = $state(true);

  #next: number | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(
    private readonly run: string,
    private readonly task: number,
    private readonly attempt: number,
    private readonly stream: "stdout" | "stderr",
  ) {
    void this.#ask();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #ask(): Promise<void> {
    let at_end = true;
    try {
      const asked = this.#next === null ? { tail: FIRST } : { offset: this.#next };
      const piece = await get<LogPiece>(
        `${attemptPath(this.run, this.task, this.attempt)}/logs/${this.stream}${query(asked)}`,
      );
      if (this.#closed) return;
      if (this.#next === null) this.skipped = piece.offset;
      this.#next = piece.next;
      this.size = piece.size;
      this.live = piece.live;
      if (piece.text) this.text = (this.text + piece.text.replaceAll("\r\n", "\n").replace(ESCAPES, "")).slice(-MOST);
      this.loaded = true;
      at_end = piece.next >= piece.size;
    } catch {
      // The connection's notice tells it; it is tried again.
    }
    if (this.#closed || (!this.live && at_end && this.loaded)) return;
    this.#timer = setTimeout(() => void this.#ask(), at_end ? EVERY_MS : 0);
  }
}
