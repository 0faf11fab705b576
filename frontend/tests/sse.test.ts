import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { read, Refused, Splitter, type Message } from "../src/lib/sse";

const STREAM = 'retry: 1000\n\nevent: hello\ndata: {"event": 7}\n\n: 12.5\n\nid: 8\ndata: one\ndata: two\r\n\r\n';
const WANTED: Message[] = [
  { id: null, event: "hello", data: '{"event": 7}' },
  { id: "8", event: null, data: "one\ntwo" },
];

test("messages are the same however the stream is cut", () => {
  for (let size = 1; size <= STREAM.length; size++) {
    const splitter = new Splitter();
    const found: Message[] = [];
    for (let at = 0; at < STREAM.length; at += size) found.push(...splitter.take(STREAM.slice(at, at + size)));
    expect(found).toEqual(WANTED);
  }
});

let server: Server | null = null;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

async function served(
  answer: (asked: string | undefined, write: (text: string) => void, end: (status?: number) => void) => void,
): Promise<string> {
  server = createServer((request, response) => {
    answer(
      request.headers["last-event-id"] as string | undefined,
      (text) => response.write(text),
      (status) => {
        if (status) response.statusCode = status;
        response.end();
      },
    );
  });
  await new Promise<void>((ready) => server?.listen(0, "127.0.0.1", ready));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

test("a stream is read to its end, from the number that is known", async () => {
  const found: Message[] = [];
  let asked: string | undefined;
  let alive = 0;
  const address = await served((last, write, end) => {
    asked = last;
    write(STREAM);
    end();
  });
  await read(address, 7, 5000, new AbortController().signal, {
    alive: () => alive++,
    message: (one) => found.push(one),
  });
  expect(found).toEqual(WANTED);
  expect(asked).toBe("7");
  expect(alive).toBeGreaterThan(0);
});

test("a refusal says its status", async () => {
  const address = await served((_, __, end) => end(401));
  const done = read(address, null, 5000, new AbortController().signal, { alive: () => {}, message: () => {} });
  await expect(done).rejects.toThrow(Refused);
  await expect(done).rejects.toMatchObject({ status: 401 });
});

test("a stream that is silent for too long is left", async () => {
  const address = await served((_, write) => write(": 1\n\n"));
  await expect(
    read(address, null, 80, new AbortController().signal, { alive: () => {}, message: () => {} }),
  ).rejects.toThrow();
});
