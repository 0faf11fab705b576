// A reader of an event stream over `fetch`. Unlike EventSource it sees the server's heartbeats, which are comments,
// and the status of a refusal; so it can tell a connection that died in silence from a quiet one.

export interface Message {
  id: string | null;
  event: string | null;
  data: string;
}

/** Takes the text of a stream in pieces of any size; gives whole messages. */
export class Splitter {
  #rest = "";
  #message: Message = { id: null, event: null, data: "" };

  take(piece: string): Message[] {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    const found: Message[] = [];
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line !== "") this.#note(line);
      else {
        if (this.#message.data !== "") found.push(this.#message);
        this.#message = { id: null, event: null, data: "" };
      }
    }
    return found;
  }

  #note(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#message.data += (this.#message.data ? "\n" : "") + value;
    else if (name === "id") this.#message.id = value;
    else if (name === "event") this.#message.event = value;
  }
}

export class Refused extends Error {
  constructor(readonly status: number) {
    super(`the stream was refused with ${status}`);
  }
}

/** Read until the stream ends, is aborted, or says nothing for so long. Each piece, a heartbeat too, calls `alive`. */
export async function read(
  address: string,
  last: number | null,
  silence_ms: number,
  signal: AbortSignal,
  handlers: { alive: () => void; message: (message: Message) => void },
): Promise<void> {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(), silence_ms);
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (last !== null) headers["Last-Event-ID"] = String(last);
  try {
    const response = await fetch(address, {
      headers,
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.any([signal, quiet.signal]),
    });
    if (!response.ok || !response.body) throw new Refused(response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const splitter = new Splitter();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), silence_ms);
      handlers.alive();
      for (const message of splitter.take(value)) handlers.message(message);
    }
  } finally {
    clearTimeout(timer);
  }
}
