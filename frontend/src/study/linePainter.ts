// Draws the lines of parallel coordinates on a canvas: hundreds of them, again at every move of the pointer.

import type { Trial } from "../lib/studies";

export const LINE_COLOURS = ["pass", "held", "own", "off", "live"] as const;
export type LinePalette = Record<(typeof LINE_COLOURS)[number], string>;

export interface Line {
  trial: Trial;
  points: [number, number][];
  /** 0 the worst, 1 the best; undefined where nothing was measured. */
  rank: number | undefined;
}

export interface LineScene {
  lines: readonly Line[];
  width: number;
  height: number;
  lit: (trial: Trial) => boolean;
  best: string | undefined;
  hovered: Trial | null;
}

const MANY = 120;

export function paintLines(context: CanvasRenderingContext2D, palette: LinePalette, scene: LineScene): void {
  context.clearRect(0, 0, scene.width, scene.height);
  context.lineJoin = "round";
  const many = scene.lines.length > MANY;
  const last: Line[] = [];
  // Those that do not pass lie below; the best and the one under the pointer on top.
  for (const shown of [false, true]) {
    for (const line of scene.lines) {
      if (scene.lit(line.trial) !== shown) continue;
      if (shown && (line.trial.key === scene.best || line.trial === scene.hovered)) last.push(line);
      else stroke(context, palette, line, shown ? (many ? 1.1 : 1.7) : 1, shown ? (many ? 0.5 : 0.75) : 0.06);
    }
  }
  for (const line of last) stroke(context, palette, line, 3.2, 1);
  context.globalAlpha = 1;
  context.setLineDash([]);
}

function stroke(
  context: CanvasRenderingContext2D,
  palette: LinePalette,
  line: Line,
  width: number,
  alpha: number,
): void {
  context.strokeStyle = colour(palette, line);
  context.lineWidth = width;
  context.globalAlpha = alpha;
  // Told apart without colours too.
  context.setLineDash(dash(line));
  context.beginPath();
  line.points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function dash({ trial }: Line): number[] {
  if (trial.progress === "failed") return [2, 4];
  if (trial.progress === "open") return [1, 3];
  return trial.feasible === false ? [7, 3] : [];
}

function colour(palette: LinePalette, line: Line): string {
  if (line.trial.progress === "open") return palette.live;
  if (line.rank === undefined) return palette.own;
  return line.trial.feasible === false ? palette.off : mixed(palette.held, palette.pass, line.rank);
}

/** Between two colours as the browser tells them, `rgb(1, 2, 3)`. */
export function mixed(from: string, to: string, share: number): string {
  const [a, b] = [numbers(from), numbers(to)];
  return `rgb(${a.map((value, index) => Math.round(value + ((b[index] ?? value) - value) * share)).join(",")})`;
}

function numbers(colour: string): number[] {
  return (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
}
