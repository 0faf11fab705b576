// Plans of runs as people read them. Pure.

import type { Estimate, PlanOption } from "./answers";
import { money } from "./format";

const SHORT_S = 3 * 3600; // up to here times are told in minutes, as on the command line

export interface Unit {
  name: "min" | "h";
  seconds: number;
}

export function unitOf(most_s: number): Unit {
  return most_s < SHORT_S ? { name: "min", seconds: 60 } : { name: "h", seconds: 3600 };
}

function number(seconds: number, unit: Unit): string {
  return (seconds / unit.seconds).toFixed(unit.name === "h" ? 1 : 0);
}

export function time(seconds: number, unit = unitOf(seconds)): string {
  return `${number(seconds, unit)} ${unit.name}`;
}

/** The interval, in the unit of its upper end. */
export function times(planned: Estimate): string {
  const unit = unitOf(planned.high);
  return `${number(planned.low, unit)}–${number(planned.high, unit)} ${unit.name}`;
}

export function costs(planned: Estimate): string {
  return `${money(planned.low)}–${money(planned.high).slice(1)}`;
}

/** 3 D4as_v5 eastus spot + 1 E4as_v5 eastus */
export function machines(option: PlanOption): string {
  return option.groups
    .map((one) => `${one.machines} ${one.size.replace("Standard_", "")} ${one.region}${one.spot ? " spot" : ""}`)
    .join(" + ");
}

export type Where = "below" | "inside" | "above";

export function where(value: number, planned: Estimate): Where {
  return value > planned.high ? "above" : value < planned.low ? "below" : "inside";
}

export function planAddress(plan: string): string {
  return `/plans/${encodeURIComponent(plan)}`;
}
