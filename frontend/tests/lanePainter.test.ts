import { expect, test } from "vitest";
import type { Bar, Lane } from "../src/lib/types";
import { COLOURS, Painter, type Palette, type Scene } from "../src/run/lanePainter";

interface Drawn {
  call: string;
  args: unknown[];
  fill: unknown;
}

/** A context of a canvas that writes down what is drawn. */
function recorder(): { context: CanvasRenderingContext2D; drawn: Drawn[] } {
  const drawn: Drawn[] = [];
  const state: Record<string, unknown> = { fillStyle: "" };
  const context = new Proxy(state, {
    get: (target, name: string) => {
      if (name in target) return target[name];
      if (name === "measureText") return (text: string) => ({ width: text.length * 6 });
      return (...args: unknown[]) => {
        drawn.push({ call: name, args, fill: target["fillStyle"] });
        return null;
      };
    },
    set: (target, name: string, value: unknown) => {
      target[name] = value;
      return true;
    },
  });
  return { context: context as unknown as CanvasRenderingContext2D, drawn };
}

const palette = Object.fromEntries(COLOURS.map((name) => [name, name])) as Palette;
const lanes: Lane[] = [
  {
    worker: "local-1",
    host: "local",
    bars: [[1, 1, 100, 150, "pass", "a"] as Bar, [2, 1, 150, 200, "wrong", "b"] as Bar],
  },
  {
    worker: "local-2",
    host: "local",
    bars: [[3, 1, 100, null, "live", "c"] as Bar, [4, 1, 900, 950, "pass", "later"] as Bar],
  },
];
const scene: Scene = {
  lanes,
  view: { from: 100, to: 200 },
  now: 180,
  origin: 100,
  width: 1100,
  gutter: 100,
  row: 20,
  axis: 30,
  hovered: null,
  chosen: null,
};

function painted(change: Partial<Scene> = {}): Drawn[] {
  const { context, drawn } = recorder();
  new Painter(context, palette).paint({ ...scene, ...change });
  return drawn;
}

test("bars are drawn between the moments that they begin and end, in their colour", () => {
  const bars = painted().filter(
    (one) => one.call === "fillRect" && ["pass", "wrong", "live"].includes(String(one.fill)),
  );
  const places = bars.map((one) => [
    one.fill,
    Math.round(Number(one.args[0]) / 10) * 10,
    Math.round(Number(one.args[2]) / 10) * 10,
  ]);
  expect(places).toContainEqual(["pass", 100, 500]);
  expect(places).toContainEqual(["wrong", 600, 500]);
  expect(places).toContainEqual(["live", 100, 800]);
});

test("workers are named where rows are high enough", () => {
  const names = (row: number): unknown[] =>
    painted({ row })
      .filter((one) => one.call === "fillText")
      .map((one) => one.args[0]);
  expect(names(20)).toEqual(expect.arrayContaining(["local-1", "local-2"]));
  expect(names(5)).not.toContain("local-1");
});

test("what lies outside of the view is not drawn", () => {
  const far = painted().filter((one) => one.call === "fillRect" && Number(one.args[0]) > scene.width + 10);
  expect(far).toEqual([]);
});
