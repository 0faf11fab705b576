"""Ends of attempts, and what the judge makes of them."""

from __future__ import annotations

from typing import Any

from evalfleet.core.failures.judge import judge
from evalfleet.model import EndRecord, Failure, Kind, Policy, Verdict

PLAIN = Policy()
STRICT = Policy(result_required=True)
EXIT = Policy(exit_is_verdict=True)


def exited(code: int | None = 0, **more: Any) -> EndRecord:
    if "result" in more:
        more.setdefault("has_result", True)
    return EndRecord(cause="exited", exit_code=code, **more)


def kind_of(end: EndRecord, policy: Policy = PLAIN) -> Kind | None:
    judged = judge(end, policy)
    return judged.kind if isinstance(judged, Failure) else None


def verdict(end: EndRecord, policy: Policy = PLAIN) -> Verdict:
    judged = judge(end, policy)
    assert isinstance(judged, Verdict), judged
    return judged
