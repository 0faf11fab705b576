"""The lines of the table that `make bench` prints."""

from __future__ import annotations

import os
from dataclasses import dataclass

from measuring import Measured


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    figure: str
    target: str = ""
    ok: bool | None = None  # None: told, not judged


def expect(done: Measured, code: int) -> None:
    if done.code != code:
        raise SystemExit(f"bench: a command ended with {done.code} instead of {code}; the figures would mean nothing")


def print_table(lines: list[Line], wall_s: float) -> None:
    width = max(len(line.what) for line in lines)
    middle = max(len(line.figure) for line in lines)
    for line in lines:
        judged = "" if line.ok is None else ("ok" if line.ok else "over")
        print(f"{line.what:<{width}}  {line.figure:<{middle}}  {line.target:<9}  {judged}".rstrip())
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"\n{os.cpu_count()} CPUs, load {load}; the whole bench took {wall_s:.0f} s")
