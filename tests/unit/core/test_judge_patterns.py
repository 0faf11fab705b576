"""How users' patterns and built-in signatures decide the kind of a failure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.end_records import EXIT, PLAIN, STRICT, exited, verdict

from evalfleet.core.failures.judge import BUILTIN, Builtin, Pattern, judge
from evalfleet.errors import ConfigError
from evalfleet.model import Blame, EndRecord, Failure, Kind, Policy, Verdict


def test_patterns():
    patterns = [Pattern.of("CUDA error", "worker_lost"), Pattern.of(r"quota|error", "backend_error")]
    end = exited(1, tail="x\nCUDA error: ECC\nsome error\nbye")
    judged = judge(end, PLAIN, patterns)
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence, judged.blame) == (Kind.WORKER_LOST, "CUDA error: ECC", Blame.WORKER)
    assert isinstance(judge(exited(0, tail="CUDA error"), PLAIN, patterns), Verdict)
    cancelled = judge(EndRecord(cause="cancelled", tail="CUDA error"), PLAIN, patterns)
    assert isinstance(cancelled, Failure)
    assert cancelled.kind is Kind.CANCELLED
    launch = judge(EndRecord(cause="launch_failed", message="quota used up"), PLAIN, patterns)
    assert isinstance(launch, Failure)
    assert launch.kind is Kind.BACKEND_ERROR


LIMITED = """\
Traceback (most recent call last):
  File "/x/agent.py", line 9, in <module>
    raise RateLimited("HTTP Error 429: Too Many Requests")
urllib.error.HTTPError: HTTP Error 429: Too Many Requests"""


def failed(end: EndRecord, policy: Policy = PLAIN, patterns: Sequence[Pattern | Builtin] = (BUILTIN,)) -> Failure:
    judged = judge(end, policy, patterns)
    assert isinstance(judged, Failure), judged
    return judged


def test_what_a_client_says_is_recognised_and_comes_before_an_exit_that_is_a_verdict():
    for policy in (PLAIN, STRICT, EXIT):
        found = failed(exited(1, tail=LIMITED), policy)
        assert (found.kind, found.blame, found.consumes, found.retryable) == (
            Kind.SERVICE_FAILED, Blame.POOL, False, True
        )  # fmt: skip
        assert found.evidence == "urllib.error.HTTPError: HTTP Error 429: Too Many Requests"
    assert failed(exited(0, tail=LIMITED), STRICT).kind is Kind.SERVICE_FAILED  # it went on without a result
    assert failed(exited(1, tail=LIMITED.replace("429: Too Many", "401: Bad"))).kind is Kind.SERVICE_REFUSED


def test_a_verdict_stands_whatever_the_program_said_before():
    for result in ({"score": 0.0}, {"score": 1.0}):
        assert verdict(exited(0, tail=LIMITED, result=result), STRICT).score == result["score"]
    assert verdict(exited(0, tail=LIMITED)).score == 1.0


def test_what_a_program_says_of_itself_comes_before_the_signatures_and_after_the_users_patterns():
    said = {"error": "HTTP Error 503: Service Unavailable", "error_kind": "task_error"}
    assert failed(exited(1, tail=LIMITED, result=said)).kind is Kind.TASK_ERROR
    assert (
        failed(exited(1, tail=LIMITED, result={**said, "error_kind": "service_refused"})).kind is Kind.SERVICE_REFUSED
    )
    mine = (Pattern.of("429", "download"), BUILTIN)
    assert failed(exited(1, tail=LIMITED), patterns=mine).kind is Kind.DOWNLOAD
    # Without a kind the text of the error is read as output is.
    assert failed(exited(1, result={"error": "HTTP Error 503: Service Unavailable"})).kind is Kind.SERVICE_FAILED
    assert failed(exited(0, result={"error": "no answer: 503 chairs"})).kind is Kind.TASK_ERROR


def test_without_the_signatures_it_is_a_bad_exit():
    assert failed(exited(1, tail=LIMITED), patterns=()).kind is Kind.BAD_EXIT
    assert isinstance(judge(exited(1, tail=LIMITED), EXIT, ()), Verdict)


def test_users_patterns_come_before_an_exit_that_is_a_verdict():
    mine = [Pattern.of("licence", "backend_error")]
    assert failed(exited(1, tail="no licence"), EXIT, mine).kind is Kind.BACKEND_ERROR
    assert isinstance(judge(exited(1, tail="no idea"), EXIT, mine), Verdict)


def test_evidence_of_a_pattern_is_its_last_line_and_source_only_if_nothing_else_fits():
    mine = [Pattern.of("429", "service_failed"), Pattern.of("RateLimited", "service_failed")]
    assert failed(exited(1, tail=f"429 early\n{LIMITED}"), patterns=mine[:1]).evidence == LIMITED.splitlines()[-1]
    assert failed(exited(1, tail=LIMITED), patterns=mine[1:]).evidence.startswith("raise RateLimited")


@pytest.mark.parametrize(
    ("regex", "kind", "says"), [("(", "stall", "regular expression"), ("x", "nope", "unknown kind")]
)
def test_bad_patterns(regex: str, kind: str, says: str):
    with pytest.raises(ConfigError, match=says):
        Pattern.of(regex, kind)
