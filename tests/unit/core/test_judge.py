"""The table of exits, the result file, patterns, and end records from anywhere."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.support.end_records import EXIT, PLAIN, STRICT, exited, kind_of, verdict

from evalfleet.core.failures.end_record import end_from_json
from evalfleet.core.failures.judge import Pattern, judge, last_line, read_result
from evalfleet.core.failures.kinds import (
    EVIDENCE_LIMIT,
    RULES,
    Systemic,
    exit_evidence,
    failure,
    is_specific,
    one_line,
    outcome_of,
    same_cause,
    signal_evidence,
)
from evalfleet.model import Blame, EndRecord, Failure, Kind, Outcome, Policy, Verdict


def test_rules_are_total():
    assert set(RULES) == set(Kind)
    for kind in Kind:
        made = failure(kind, "x")
        assert (made.kind, made.evidence) == (kind, "x")
        assert outcome_of(kind) is not Outcome.OK


def test_only_the_worker_is_blamed_for_what_consumes_without_being_the_tasks():
    odd = {kind for kind, rule in RULES.items() if rule.consumes and rule.blame is not Blame.TASK}
    assert odd == {Kind.STALL, Kind.START_TIMEOUT, Kind.PORT_TAKEN, Kind.DOWNLOAD}
    assert all(rule.consumes for rule in RULES.values() if rule.blame is Blame.TASK)
    assert RULES[Kind.STALL].systemic is RULES[Kind.TIMEOUT].systemic is Systemic.NEVER


def test_a_task_error_that_is_the_pools_is_an_infra_error():
    assert outcome_of(Kind.BAD_EXIT) is Outcome.TASK_ERROR
    assert outcome_of(Kind.BAD_EXIT, Blame.POOL) is Outcome.INFRA_ERROR
    assert outcome_of(Kind.TIMEOUT, Blame.TASK) is Outcome.TIMEOUT


def test_exit_zero_without_a_result():
    assert verdict(exited(steps=4)) == Verdict(score=1.0, success=True, steps=4)
    assert kind_of(exited(), STRICT) is Kind.RESULT_MISSING


def test_exit_zero_with_a_result():
    got = verdict(exited(result={"score": 0.5, "success": True, "steps": 5, "metrics": {"tps": 3.5}}))
    assert got == Verdict(score=0.5, success=True, steps=5, metrics={"tps": 3.5})


@pytest.mark.parametrize(
    ("result", "score", "success"),
    [
        ({"score": 1}, 1.0, True),
        ({"score": 0.99}, 0.99, False),
        ({"score": 0}, 0.0, False),
        ({"success": True}, 1.0, True),
        ({"success": False}, 0.0, False),
        ({"score": 0.2, "success": True}, 0.2, True),
        ({"score": None, "success": True, "error": None, "steps": None, "metrics": None}, 1.0, True),
        ({"score": 1, "error": "", "other": [1]}, 1.0, True),
    ],
)
def test_score_and_success(result: Any, score: float, success: bool):
    got = verdict(exited(result=result), STRICT)
    assert (got.score, got.success) == (score, success)
    assert isinstance(got.score, float)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "null"), ([], "a list"), ("1", "text"), (1, "a number"), (True, "true or false"), ({}, "neither"),
        ({"steps": 3}, "neither"), ({"score": True}, "score"), ({"score": "1"}, "score"), ({"score": -0.1}, "score"),
        ({"score": 1.01}, "score"), ({"score": math.nan}, "nan"), ({"score": math.inf}, "inf"),
        ({"score": 10**5000}, "huge"), ({"success": 1}, "success"), ({"score": 1, "success": "yes"}, "success"),
        ({"score": 1, "steps": -1}, "steps"), ({"score": 1, "steps": 1.5}, "steps"), ({"score": 1, "steps": True}, "steps"),
        ({"score": 1, "steps": 2**64}, "steps"), ({"score": 1, "metrics": []}, "metrics"),
        ({"score": 1, "metrics": 3}, "metrics"),
    ],
)  # fmt: skip
def test_unreadable_results_say_what_is_wrong(result: Any, says: str):
    judged = judge(exited(result=result), PLAIN)
    assert isinstance(judged, Failure)
    assert judged.kind is Kind.RESULT_UNREADABLE
    assert says in judged.evidence
    assert judged.evidence.startswith("result: ")


def test_a_result_that_could_not_be_parsed():
    assert kind_of(exited(has_result=True, result_error="line 1: expected a value")) is Kind.RESULT_UNREADABLE
    assert kind_of(exited(has_result=False, result_error="larger than 1 MB")) is Kind.RESULT_UNREADABLE


def test_deep_and_infinite_metrics():
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert kind_of(exited(result={"score": 1, "metrics": {"a": deep}})) is Kind.RESULT_UNREADABLE
    got = verdict(exited(result={"score": 1, "metrics": {"loss": math.nan, "l": [math.inf, 1.5]}}))
    assert got.metrics == {"loss": None, "l": [None, 1.5]}


@pytest.mark.parametrize("code", [0, 1])
def test_a_reported_error_is_a_task_error(code: int):
    judged = judge(exited(code, result={"error": "no\nwindow", "score": 1.0}), EXIT)
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence) == (Kind.TASK_ERROR, "no window")
    assert kind_of(exited(code, result={"error": {"code": 3}})) is Kind.TASK_ERROR


def test_other_exits():
    judged = judge(exited(3), PLAIN)
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence) == (Kind.BAD_EXIT, "exit status 3")
    judged = judge(exited(1, tail="Traceback\n  x\nKeyError: 'a'\n\n  \n", result={"score": 1}), PLAIN)
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence) == (Kind.BAD_EXIT, "exit status 1: KeyError: 'a'")
    assert kind_of(exited(137)) is Kind.BAD_EXIT
    assert kind_of(exited(None)) is Kind.BACKEND_ERROR


def test_exit_is_verdict_scores_exits_only():
    assert verdict(exited(1, result={"score": 1.0}, steps=2), EXIT) == Verdict(score=0.0, success=False, steps=2)
    assert verdict(exited(0), EXIT).score == 1.0
    for end, kind in [
        (exited(None, signal=9), Kind.SIGNALLED),
        (EndRecord(cause="timeout"), Kind.TIMEOUT),
        (EndRecord(cause="launch_failed"), Kind.LAUNCH_FAILED),
        (exited(137, oom=True), Kind.OUT_OF_MEMORY),
        (exited(1, tail="MemoryError"), Kind.OUT_OF_MEMORY),
        (exited(1, disk_full=True), Kind.DISK_FULL),
        (exited(127, tail="sh: 1: agent: not found"), Kind.LAUNCH_FAILED),
        (EndRecord(cause="stall"), Kind.STALL),
    ]:
        assert kind_of(end, EXIT) is kind


@pytest.mark.parametrize(
    ("end", "kind", "evidence"),
    [
        (exited(None, signal=11), Kind.SIGNALLED, "killed by signal 11 (SIGSEGV)"),
        (exited(None, signal=64), Kind.SIGNALLED, "killed by signal 64"),
        (exited(None, signal=9, oom=True), Kind.OUT_OF_MEMORY, "out of memory: killed by signal 9 (SIGKILL)"),
        (exited(137, oom=True), Kind.OUT_OF_MEMORY, "out of memory: exit status 137"),
        (exited(1, tail="numpy._core.MemoryError: 9 GB"), Kind.OUT_OF_MEMORY, "numpy._core.MemoryError: 9 GB"),
        (exited(127, tail="bash: agent: command not found"), Kind.LAUNCH_FAILED, "bash: agent: command not found"),
        (exited(126, tail="sh: 1: ./a: Permission denied"), Kind.LAUNCH_FAILED, "sh: 1: ./a: Permission denied"),
        (exited(127), Kind.BAD_EXIT, "exit status 127"),
        (exited(1, disk_full=True), Kind.DISK_FULL, "the disk was full"),
        (exited(0, disk_full=True, result=None, result_error="empty", tail="full"), Kind.DISK_FULL, "full"),
        (EndRecord(cause="launch_failed", errno=28, message="No space left"), Kind.DISK_FULL, "No space left"),
        (EndRecord(cause="launch_failed", errno=2, message="No such file: 'x'"), Kind.LAUNCH_FAILED, "No such file: 'x'"),
        (EndRecord(cause="timeout", duration_s=900.4), Kind.TIMEOUT, "reached its time limit after 900 s"),
        (EndRecord(cause="stall", idle_s=300), Kind.STALL, "no progress for 300 s"),
        (EndRecord(cause="start_timeout"), Kind.START_TIMEOUT, "not ready within its start limit"),
        (EndRecord(cause="runner_lost"), Kind.RUNNER_LOST, "the runner died under the attempt"),
        (EndRecord(cause="worker_lost", message="given up"), Kind.WORKER_LOST, "given up"),
        (EndRecord(cause="backend_error", message="refused"), Kind.BACKEND_ERROR, "refused"),
        (EndRecord(cause="preempted"), Kind.PREEMPTED, "the host was taken back"),
        (EndRecord(cause="cancelled", message="by ann"), Kind.CANCELLED, "by ann"),
        (EndRecord(cause="teleported"), Kind.BACKEND_ERROR, "the runner reported an unknown end: teleported"),
    ],
)  # fmt: skip
def test_causes(end: EndRecord, kind: Kind, evidence: str):
    judged = judge(end, PLAIN)
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence) == (kind, evidence)


def test_timeout_is_verdict():
    policy = Policy(timeout_is_verdict=True)
    assert verdict(EndRecord(cause="timeout", steps=30), policy) == Verdict(
        score=0.0, success=False, steps=30, metrics={"reason": "timeout"}
    )
    assert kind_of(EndRecord(cause="stall"), policy) is Kind.STALL


def test_evidence_is_one_clean_line():
    assert one_line("\x1b[31mred\x1b[0m\x00 a\n\tb\ud800") == "red a b?"
    assert len(one_line("x" * 10_000)) == EVIDENCE_LIMIT
    assert last_line("a\rb\n\x1b[0m\n") == "b"
    assert last_line("") == ""


def test_same_cause():
    assert same_cause("KeyError: 'task_17'") == same_cause("KeyError: 'task_18'")
    assert same_cause("no /mnt/ab12/in", "x") == same_cause("no /mnt/zz9/in", "y")
    assert same_cause("at 0xdeadbeef") == same_cause("at 0x12")
    assert same_cause("notepad failed", "notepad") == same_cause("paint failed", "paint")
    assert same_cause("a is bad", "a") == "<task> is bad"
    assert same_cause("no module torch") != same_cause("no module numpy")


def test_what_a_silent_end_leaves_says_nothing_specific():
    said = [words(number) for words in (exit_evidence, signal_evidence) for number in range(1, 256)]
    assert [line for line in said if is_specific(line)] == []


@pytest.mark.parametrize("line", ["", "exit status 1", "exit status 255", "killed by signal 9 (SIGKILL)"])
def test_silent_ends_are_not_specific(line: str):
    assert not is_specific(line)
    assert is_specific(line + " of a cause")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
causes = st.sampled_from(["exited", "timeout", "stall", "launch_failed", "cancelled", "runner_lost", "?", ""])
ends = st.builds(
    EndRecord,
    cause=causes,
    exit_code=st.none() | st.sampled_from([0, 1, 126, 127, 137]) | st.integers(),
    signal=st.none() | st.integers(0, 70),
    message=st.none() | st.text(),
    errno=st.none() | st.integers(),
    oom=st.booleans(),
    disk_full=st.booleans(),
    result=json_values
    | st.fixed_dictionaries({}, optional={"score": json_values, "success": json_values, "error": json_values,
                                          "steps": json_values, "metrics": json_values}),
    has_result=st.booleans(),
    result_error=st.none() | st.text(),
    steps=st.none() | st.integers(0, 100),
    tail=st.text(),
)  # fmt: skip
policies = st.builds(
    Policy, exit_is_verdict=st.booleans(), timeout_is_verdict=st.booleans(), result_required=st.booleans()
)


@settings(max_examples=300, deadline=None)
@given(end=ends, policy=policies)
def test_the_judge_is_total_and_its_answers_can_be_stored(end: EndRecord, policy: Policy):
    judged = judge(end, policy, [Pattern.of("a", "stall")])
    if isinstance(judged, Verdict):
        assert 0.0 <= judged.score <= 1.0
        json.dumps(judged.metrics, allow_nan=False)
        assert end.cause == "exited" or (end.cause == "timeout" and policy.timeout_is_verdict)
        assert not end.signal or end.cause == "timeout"
    else:
        assert len(judged.evidence) <= EVIDENCE_LIMIT
        assert not set(judged.evidence) & set("\n\r\x00")
        judged.evidence.encode()


@settings(max_examples=200, deadline=None)
@given(data=st.dictionaries(st.sampled_from([*EndRecord.__struct_fields__, "new"]) | st.text(), json_values))
def test_end_records_from_anywhere(data: dict[str, Any]):
    end = end_from_json(data)
    judge(end, PLAIN)
    # Compared as text: a NaN in the result is not equal to itself.
    assert repr(end_from_json(structs.asdict(end))) == repr(end)


@given(end=ends)
def test_end_records_round_trip(end: EndRecord):
    back = end_from_json(structs.asdict(end))
    assert repr(back.result) == repr(end.result)
    assert (back.cause, back.signal, back.steps, back.tail) == (end.cause, end.signal, end.steps, end.tail)


def test_a_task_cannot_report_a_negative_cost():
    assert end_from_json({"reported_usd": -5}).reported_usd == 0.0
    assert end_from_json({"reported_usd": math.inf}).reported_usd == 0.0
    assert end_from_json({"reported_usd": 10**400}).reported_usd == 0.0
    assert end_from_json({"reported_usd": True, "duration_s": 2}).duration_s == 2.0


def test_a_result_may_be_read_without_an_end_record():
    assert read_result({"score": 0.25}, steps=7) == Verdict(score=0.25, success=False, steps=7)


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("environment_failed", Kind.ENVIRONMENT_FAILED),
        ("service_failed", Kind.SERVICE_FAILED),
        ("task_error", Kind.TASK_ERROR),
        ("preempted", Kind.TASK_ERROR),  # what only we can know, a program cannot claim
        ("enviroment_failed", Kind.TASK_ERROR),
        (None, Kind.TASK_ERROR),
        (["environment_failed"], Kind.TASK_ERROR),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_program_says_whose_error_it_was(named: object, kind: Kind, code: int):
    result = {"error": "the browser is gone", "error_kind": named, "score": 1.0}
    judged = judge(EndRecord(cause="exited", exit_code=code, has_result=True, result=result), Policy())
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence) == (kind, "the browser is gone")


@pytest.mark.parametrize("errno", [11, 12, 23, 24, 5, 116, 30, 26])
def test_what_a_host_lacks_at_a_launch_is_the_hosts(errno: int):
    found = judge(EndRecord(cause="launch_failed", errno=errno, message="Resource temporarily unavailable"), Policy())
    assert isinstance(found, Failure)
    assert (found.kind, found.blame, found.consumes) == (Kind.HOST_FAILED, Blame.WORKER, False)


@pytest.mark.parametrize("errno", [2, 13, 8, 7, 20, None])
def test_what_is_wrong_with_the_command_is_the_tasks(errno: int | None):
    found = judge(EndRecord(cause="launch_failed", errno=errno, message="No such file"), Policy())
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == (Kind.LAUNCH_FAILED, Blame.TASK)


@pytest.mark.parametrize(
    ("errno", "kind"), [(28, Kind.DISK_FULL), (122, Kind.DISK_FULL), (5, Kind.HOST_FAILED), (None, Kind.HOST_FAILED)]
)
def test_a_runner_that_refuses_a_launch_has_a_bad_host(errno: int | None, kind: Kind):
    found = judge(EndRecord(cause="host_failed", errno=errno, message="it went wrong (host a)"), Policy())
    assert isinstance(found, Failure)
    assert (found.kind, found.blame, found.consumes, found.evidence) == (
        kind,
        Blame.WORKER,
        False,
        "it went wrong (host a)",
    )


@pytest.mark.parametrize(
    "line",
    [
        "python3: can't open file '/x/nothere.py': [Errno 2] No such file or directory",
        "/usr/bin/python3.11: No module named nothere",
        'Can\'t open perl script "x.pl": No such file or directory',
    ],
)
def test_an_interpreter_without_its_script_was_never_started(line: str):
    found = judge(EndRecord(cause="exited", exit_code=2, tail=line + "\n"), Policy(exit_is_verdict=True))
    assert isinstance(found, Failure)
    assert found.kind is Kind.LAUNCH_FAILED
    own = judge(EndRecord(cause="exited", exit_code=1, tail=f"ValueError: {line}\n"), Policy())
    assert isinstance(own, Failure)
    assert own.kind is Kind.BAD_EXIT
