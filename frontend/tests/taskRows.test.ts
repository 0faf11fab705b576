import { expect, test } from "vitest";
import { taskRows } from "../src/lib/taskRows";

test("one object per line, empty lines left out", () => {
  expect(taskRows('{"key": "a"}\n\n{"key": "b"}\n')).toEqual({ tasks: [{ key: "a" }, { key: "b" }] });
});

test("a list, and a first row that says how to run", () => {
  expect(taskRows('[{"key": "a"}]')).toEqual({ tasks: [{ key: "a" }] });
  expect(taskRows('{"run": {"workers": 2}}\n{"key": "a"}')).toEqual({ run: { workers: 2 }, tasks: [{ key: "a" }] });
  expect(taskRows('{"run": {"x": 1}, "key": "a"}')).toEqual({ tasks: [{ run: { x: 1 }, key: "a" }] });
});

test("TOML is left to the server", () => {
  const text = '[[task]]\nkey = "a"\n';
  expect(taskRows(text)).toEqual({ toml: text });
  expect(taskRows('[run]\nname = "x"')).toEqual({ toml: '[run]\nname = "x"' });
});

test.each([
  ["", "there are no tasks"],
  ['{"key": "a"}\n{"key"', "line 2 is not JSON"],
  ['[{"key": "a"}, 3]', "task 2: expected an object"],
  ['{"key": "a"}\n[1]', "line 2: expected an object"],
])("%j is refused: %s", (text, message) => {
  expect(() => taskRows(text)).toThrow(message);
});
