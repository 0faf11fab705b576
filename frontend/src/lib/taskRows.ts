// Tasks as a person pastes them. JSON is read here, so that a mistake is told with its line; TOML is the server's to read. Pure.

export interface Pasted {
  tasks?: Record<string, unknown>[];
  run?: Record<string, unknown>;
  toml?: string;
}

/** Throws an Error that says which line is wrong. */
export function taskRows(text: string): Pasted {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("there are no tasks; write one JSON object per line, with a key and a command");
  if (trimmed.startsWith("[") && !/^\[\[?\s*[A-Za-z_]/.test(trimmed)) return listed(trimmed);
  return trimmed.startsWith("{") ? lined(trimmed) : { toml: text };
}

function listed(text: string): Pasted {
  const rows: unknown = parsed(text, "the list");
  if (!Array.isArray(rows)) throw new Error("expected a list of tasks");
  return sorted(rows.map((row, index) => object(row, `task ${index + 1}`)));
}

function lined(text: string): Pasted {
  const rows: Record<string, unknown>[] = [];
  text.split("\n").forEach((line, index) => {
    if (line.trim()) rows.push(object(parsed(line, `line ${index + 1}`), `line ${index + 1}`));
  });
  return sorted(rows);
}

/** A first row that is not a task, but says how to run them. */
function sorted(rows: Record<string, unknown>[]): Pasted {
  const [first, ...rest] = rows;
  const run = first?.["run"];
  if (first && typeof run === "object" && run !== null && !("key" in first))
    return { run: run as Record<string, unknown>, tasks: rest };
  return { tasks: rows };
}

function parsed(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${where} is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function object(row: unknown, where: string): Record<string, unknown> {
  if (typeof row !== "object" || row === null || Array.isArray(row))
    throw new Error(`${where}: expected an object such as {"key": "a", "command": ["true"]}`);
  return row as Record<string, unknown>;
}
