"""Which part of a run's tasks its score covers, in words."""

from __future__ import annotations

from evalfleet.answers.summary import Summary
from evalfleet.report.text import printable

_MOST = 12


def covered(summary: Summary) -> str | None:
    """ "6 of 60 tasks: files 2 of 20, forms 2 of 20, search 2 of 20"; None where all count, none does, or it is a study."""
    domains = {name: (facts.counted, facts.total) for name, facts in summary.by_domain.items()}
    counted, total = (sum(pair[place] for pair in domains.values()) for place in (0, 1))
    if summary.study is not None or not 0 < counted < total:
        return None
    said = f"{counted:,} of {total:,} tasks"
    if len(domains) == 1:
        return said
    # Those that are covered least come first: they are what the score does not speak of.
    ordered = sorted(domains, key=lambda name: (domains[name][0] / domains[name][1], name))
    parts = [f"{printable(name)} {domains[name][0]:,} of {domains[name][1]:,}" for name in ordered[:_MOST]]
    if len(ordered) > _MOST:
        parts.append(f"and {len(ordered) - _MOST} more domains")
    return f"{said}: {', '.join(parts)}"
