// Requests to our own origin. The cookie is the browser's business; this code never sees a token.

const ROOT = "/api/v1";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
  ) {
    super(message);
  }

  /** The server could not be reached at all. */
  get offline(): boolean {
    return this.status === 0;
  }
}

async function send<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(ROOT + path, { ...init, credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "Offline", "the server cannot be reached");
  }
  if (!response.ok) throw await refusal(response);
  return (await response.json()) as T;
}

async function refusal(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { kind: string; message: string } };
    return new ApiError(response.status, error.kind, error.message);
  } catch {
    return new ApiError(response.status, "Unknown", `the server answered ${response.status}`);
  }
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return send<T>(path, signal ? { signal } : {});
}

export function post<T = Record<string, unknown>>(path: string, body: object = {}): Promise<T> {
  return send<T>(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Evalfleet": "1" },
    body: JSON.stringify(body),
  });
}

export function runPath(run: string): string {
  return `/runs/${encodeURIComponent(run)}`;
}

export function attemptPath(run: string, task: number, attempt: number): string {
  return `${runPath(run)}/tasks/${task}/attempts/${attempt}`;
}

/** The address of one of an attempt's files, for an image or a link. */
export function fileAddress(run: string, task: number, attempt: number, path: string): string {
  const encoded = path.split("/").map(encodeURIComponent).join("/");
  return `${ROOT}${attemptPath(run, task, attempt)}/files/${encoded}`;
}

export function screenshotAddress(run: string, task: number, attempt: number, version: string | number): string {
  return `${ROOT}${attemptPath(run, task, attempt)}/screenshot?v=${version}`;
}

export function query(values: Record<string, string | number | null | undefined | string[]>): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (Array.isArray(value)) for (const one of value) found.append(name, one);
    else if (value !== null && value !== undefined && value !== "") found.set(name, String(value));
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}
