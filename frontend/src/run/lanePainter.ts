// Draws worker lanes on a canvas. Nothing here knows of the page.

import type { Bar, Lane, Look } from "../lib/types";
import { tickText, ticks, type View } from "../lib/timeline";

export const COLOURS = [
  "card",
  "fg",
  "faint",
  "line",
  "track",
  "accent",
  "pass",
  "wrong",
  "own",
  "infra",
  "off",
  "live",
  "held",
  "queued",
] as const;
export type Palette = Record<(typeof COLOURS)[number], string>;

export interface Scene {
  lanes: readonly Lane[];
  view: View;
  now: number;
  origin: number;
  width: number;
  gutter: number;
  row: number;
  axis: number;
  hovered: Bar | null;
  chosen: Bar | null;
}

const FAILED: ReadonlySet<Look> = new Set<Look>(["own", "infra"]);
const FONT = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";

export class Painter {
  #patterns = new Map<Look, CanvasPattern | null>();

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly palette: Palette,
  ) {}

  paint(scene: Scene): void {
    const { context, palette } = this;
    const height = scene.axis + scene.lanes.length * scene.row;
    context.clearRect(0, 0, scene.width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.#axis(scene, height);
    context.save();
    context.beginPath();
    context.rect(scene.gutter, scene.axis, scene.width - scene.gutter, height);
    context.clip();
    scene.lanes.forEach((lane, index) => this.#lane(scene, lane, scene.axis + index * scene.row));
    context.restore();
    context.fillStyle = palette.faint;
    context.textAlign = "left";
    if (scene.row >= 11) {
      scene.lanes.forEach((lane, index) => {
        context.fillText(cut(context, lane.worker, scene.gutter - 10), 0, scene.axis + (index + 0.5) * scene.row);
      });
    }
  }

  #axis(scene: Scene, height: number): void {
    const { context, palette } = this;
    context.textAlign = "center";
    context.lineWidth = 1;
    for (const tick of ticks(scene.view, scene.origin, (scene.width - scene.gutter) / 90)) {
      const x = Math.round(this.#x(scene, scene.origin + tick)) + 0.5;
      context.strokeStyle = palette.line;
      context.beginPath();
      context.moveTo(x, scene.axis - 4);
      context.lineTo(x, height);
      context.stroke();
      context.fillStyle = palette.faint;
      const text = tickText(tick);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x, scene.gutter + half), scene.width - half), 9);
    }
  }

  #lane(scene: Scene, lane: Lane, y: number): void {
    // Failures last, and never thinner than can be seen: they must not drown among neighbours.
    for (const bar of lane.bars) if (!FAILED.has(bar[4])) this.#bar(scene, bar, y, 1);
    for (const bar of lane.bars) if (FAILED.has(bar[4])) this.#bar(scene, bar, y, 4);
  }

  #bar(scene: Scene, bar: Bar, y: number, least: number): void {
    const end = bar[3] ?? scene.now;
    if (end < scene.view.from || bar[2] > scene.view.to) return;
    const { context, palette } = this;
    // Whole pixels: sharp edges, and many times faster where no graphics card helps.
    const left = Math.round(Math.max(scene.gutter - 4, this.#x(scene, bar[2])));
    const right = Math.round(Math.min(scene.width + 4, this.#x(scene, end)));
    const width = Math.max(least, right - left - (right - left > 4 ? 1 : 0));
    const pad = scene.row >= 14 ? 2 : 1;
    const top = y + pad;
    const tall = scene.row - 2 * pad;
    const look = bar[4];
    context.fillStyle = look === "infra" && width > 6 ? (this.#pattern(look) ?? palette.infra) : palette[look];
    if (look === "live") {
      context.globalAlpha = 0.22;
      context.fillRect(left, top, width, tall);
      context.globalAlpha = 1;
      context.strokeStyle = palette.live;
      context.lineWidth = 1.5;
      context.strokeRect(left + 0.75, top + 0.75, Math.max(1, width - 1.5), tall - 1.5);
    } else {
      context.fillRect(left, top, width, tall);
    }
    if (look === "infra" && width > 6) {
      context.strokeStyle = palette.infra;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, top + 0.5, Math.max(1, width - 1), tall - 1);
    }
    if (look === "own" && width > 9 && tall > 8) this.#cross(left + width / 2, top + tall / 2);
    if (bar === scene.hovered || bar === scene.chosen) {
      context.strokeStyle = palette.fg;
      context.lineWidth = 2;
      context.strokeRect(left, top, Math.max(2, width), tall);
    }
  }

  #cross(x: number, y: number): void {
    const { context, palette } = this;
    context.strokeStyle = palette.card;
    context.lineWidth = 1.6;
    context.beginPath();
    context.moveTo(x - 3, y - 3);
    context.lineTo(x + 3, y + 3);
    context.moveTo(x + 3, y - 3);
    context.lineTo(x - 3, y + 3);
    context.stroke();
  }

  #x(scene: Scene, at: number): number {
    return scene.gutter + ((at - scene.view.from) / (scene.view.to - scene.view.from)) * (scene.width - scene.gutter);
  }

  /** Stripes: seen without colours. */
  #pattern(look: Look): CanvasPattern | null {
    const known = this.#patterns.get(look);
    if (known !== undefined) return known;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    if (context) {
      context.fillStyle = this.palette.card;
      context.fillRect(0, 0, 8, 8);
      context.strokeStyle = this.palette.infra;
      context.lineWidth = 3;
      context.beginPath();
      for (const shift of [-8, 0, 8]) {
        context.moveTo(shift - 2, 10);
        context.lineTo(shift + 10, -2);
      }
      context.stroke();
    }
    const pattern = context ? this.context.createPattern(tile, "repeat") : null;
    this.#patterns.set(look, pattern);
    return pattern;
  }
}

function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let kept = text;
  // The end of a worker's name tells it from its neighbours.
  while (kept.length > 1 && context.measureText(`…${kept}`).width > width) kept = kept.slice(1);
  return `…${kept}`;
}
