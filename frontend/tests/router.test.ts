import { beforeEach, expect, test, vi } from "vitest";

const page = { pathname: "/runs", search: "?state=running", origin: "http://here" };
const heard = new Map<string, (event: unknown) => void>();

function moveTo(address: string): void {
  const url = new URL(address, page.origin);
  page.pathname = url.pathname;
  page.search = url.search;
}

const pushed = vi.fn((_: unknown, __: string, address: string) => moveTo(address));
const replaced = vi.fn((_: unknown, __: string, address: string) => moveTo(address));
vi.stubGlobal("location", page);
vi.stubGlobal("history", { pushState: pushed, replaceState: replaced });
vi.stubGlobal("addEventListener", (name: string, hear: (event: unknown) => void) => heard.set(name, hear));
vi.stubGlobal("document", {
  addEventListener: (name: string, hear: (event: unknown) => void) => heard.set(name, hear),
});
vi.stubGlobal("scrollTo", vi.fn());
const { router, runAddress, taskAddress } = await import("../src/lib/router.svelte");

beforeEach(() => {
  moveTo("/runs?state=running");
  heard.get("popstate")?.({});
  vi.clearAllMocks();
});

test("addresses are escaped", () => {
  expect(runAddress("a/b c")).toBe("/runs/a%2Fb%20c");
  expect([taskAddress("r", 3), taskAddress("r", 3, 2)]).toEqual(["/runs/r/tasks/3", "/runs/r/tasks/3/attempts/2"]);
});

test("going somewhere is a step of the history; a value of the query is not", () => {
  router.go("/pools");
  expect([router.path, router.search]).toEqual(["/pools", ""]);
  router.set("tab", "hosts");
  expect([router.search, router.params.get("tab")]).toEqual(["?tab=hosts", "hosts"]);
  router.set("tab", null);
  expect(router.search).toBe("");
  expect([pushed.mock.calls.length, replaced.mock.calls.length]).toEqual([1, 2]);
});

test("back and forward are followed", () => {
  moveTo("/alerts?x=1");
  heard.get("popstate")?.({});
  expect([router.path, router.params.get("x")]).toEqual(["/alerts", "1"]);
});

function click(link: object | null, more: object = {}): boolean {
  const event = {
    defaultPrevented: false,
    button: 0,
    target: { closest: () => link },
    preventDefault: vi.fn(),
    ...more,
  };
  heard.get("click")?.(event);
  return event.preventDefault.mock.calls.length > 0;
}

test("a click on a link of the page does not load it anew; any other is the browser's", () => {
  const link = { target: "", hasAttribute: () => false, origin: page.origin, pathname: "/studies", search: "?a=1" };
  expect(click(link)).toBe(true);
  expect(router.path + router.search).toBe("/studies?a=1");
  expect(click(link, { ctrlKey: true })).toBe(false);
  expect(click(link, { button: 1 })).toBe(false);
  expect(click({ ...link, origin: "http://elsewhere" })).toBe(false);
  expect(click({ ...link, pathname: "/api/v1/runs" })).toBe(false);
  expect(click({ ...link, hasAttribute: () => true })).toBe(false);
  expect(click(null)).toBe(false);
});
