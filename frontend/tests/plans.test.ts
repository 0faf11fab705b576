import { describe, expect, it } from "vitest";
import { costs, machines, planAddress, time, times, where } from "../src/lib/plans";

const group = { size: "Standard_D4as_v5", region: "eastus", spot: false, machines: 3, usd_per_hour: 0.2 };

describe("plans", () => {
  it("tells times in one unit, as the command line does", () => {
    expect(time(6060)).toBe("101 min");
    expect(time(4 * 3600)).toBe("4.0 h");
    expect(times({ mean: 6060, low: 4020, high: 8820 })).toBe("67–147 min");
    expect(times({ mean: 9000, low: 3600, high: 18_000 })).toBe("1.0–5.0 h");
  });

  it("tells costs and machines", () => {
    expect(costs({ mean: 5, low: 3.38, high: 7.07 })).toBe("$3.38–7.07");
    const option = {
      workers: 4,
      seconds: { mean: 1, low: 1, high: 1 },
      usd: { mean: 1, low: 1, high: 1 },
      machine_hours: 1,
    };
    expect(machines({ ...option, groups: [group] })).toBe("3 D4as_v5 eastus");
    expect(machines({ ...option, groups: [group, { ...group, machines: 1, spot: true }] })).toBe(
      "3 D4as_v5 eastus + 1 D4as_v5 eastus spot",
    );
  });

  it("says where the truth lies", () => {
    const planned = { mean: 5, low: 4, high: 6 };
    expect([3, 4, 6, 7].map((value) => where(value, planned))).toEqual(["below", "inside", "inside", "above"]);
    expect(planAddress("a b")).toBe("/plans/a%20b");
  });
});
