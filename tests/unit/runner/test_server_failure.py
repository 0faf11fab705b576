"""Why a server failed: lines that real servers wrote, and what must be made of them."""

from __future__ import annotations

import pytest

from evalfleet.core.failures.judge import judge
from evalfleet.core.failures.kinds import EVIDENCE_LIMIT, RULES, one_line
from evalfleet.model import EndRecord, Failure, Kind, Policy
from evalfleet.runner.server.failure import ADVICE, LONGEST_LINE, ended, late, shown_status

HOLLOW = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
PREFIX = "(EngineCore_0 pid=4711) ERROR 11-09 12:00:01 [core.py:700] "

LINES = {
    "torch": ("out_of_memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    "driver": ("out_of_memory", "RuntimeError: CUDA error: out of memory"),
    "hip": ("out_of_memory", "RuntimeError: HIP error: hipErrorOutOfMemory"),
    "cudart": ("out_of_memory", "what(): cudaErrorMemoryAllocation"),
    "blocks": ("out_of_memory", "ValueError: No available memory for the cache blocks. Try increasing it."),
    "cache": ("out_of_memory", "ValueError: 9.00 GiB KV cache is needed, which is larger than the available KV cache memory."),
    "length": ("out_of_memory", "The max seq len is larger than the maximum number of tokens that can be stored in KV cache."),
    "start": ("out_of_memory", "ValueError: Free memory on device (10.1/79.1 GiB) on startup is less than desired GPU memory"),
    "llama.cpp": ("out_of_memory", "ggml_backend: failed to allocate CUDA0 buffer of size 12884901888"),
    "host": ("out_of_memory", "OSError: [Errno 12] Cannot allocate memory"),
    "argparse": ("bad_flag", "api_server.py: error: unrecognized arguments: --tensor-paralel-size 2"),
    "choice": ("bad_flag", "error: argument --dtype: invalid choice: 'fp4' (choose from 'auto', 'half')"),
    "click": ("bad_flag", "Error: No such option: --tps"),
    "go": ("bad_flag", "flag provided but not defined: -tps"),
    "heads": ("bad_flag", "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)."),
    "uvicorn": ("port_taken", "ERROR:    [Errno 98] error while attempting to bind on address: address already in use"),
    "node": ("port_taken", "Error: listen EADDRINUSE: address already in use :::8000"),
    "gated": ("download", "OSError: You are trying to access a gated repo. 401 Client Error."),
    "absent": ("download", "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error."),
    "resolve": ("download", "socket.gaierror: [Errno -3] Temporary failure in name resolution"),
    "offline": ("download", "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    "full": ("disk_full", "OSError: [Errno 28] No space left on device: '/models/shard-3'"),
    "segfault": ("crash", "Fatal Python error: Segmentation fault"),
    "import": ("crash", "ModuleNotFoundError: No module named 'vllm'"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "line"), LINES.values(), ids=LINES)
def test_the_line_that_is_the_cause_is_found_among_what_follows_from_it(kind: str, line: str):
    lines = ["INFO starting", PREFIX + line, "  File 'x.py', line 3", HOLLOW, "INFO shutting down"]
    found = ended(1, lines, ready=False, oom=False)
    assert found.kind == kind
    assert line[:60] in found.evidence
    assert "exit status 1 before it was ready" in found.evidence
    assert found.evidence.endswith(ADVICE[kind])
    assert len(one_line(found.evidence)) < EVIDENCE_LIMIT  # what to change is never cut off


@pytest.mark.parametrize("name", ["argparse", "uvicorn", "resolve"])
def test_once_it_was_ready_such_lines_are_about_its_clients(name: str):
    found = ended(-11, [LINES[name][1]], ready=True, oom=False)
    assert found.kind == "crash"
    assert "signal 11 (SIGSEGV) while it was used" in found.evidence


def test_without_a_word_the_exit_status_speaks():
    assert ended(2, [], ready=False, oom=False).kind == "bad_flag"
    assert ended(2, [], ready=True, oom=False).kind == "crash"
    assert ended(127, ["sh: 1: vllm: not found"], ready=False, oom=False).kind == "launch_failed"
    assert ended(-9, [], ready=False, oom=True).kind == "out_of_memory"
    assert ended(-9, [], ready=False, oom=False).kind == "crash"
    assert ended(1, ["worker died: exit code -9"], ready=True, oom=True).kind == "out_of_memory"
    assert ended(1, [], ready=True, oom=True).kind == "crash"  # somebody else's memory
    assert "stay in the foreground" in ended(0, ["daemon started"], ready=False, oom=False).evidence
    assert shown_status(-64) == "signal 64 (SIGRTMAX)"


def test_memory_comes_before_what_a_dying_server_says_of_ports():
    lines = [LINES["torch"][1], LINES["uvicorn"][1]]
    assert ended(1, lines, ready=False, oom=False).kind == "out_of_memory"


def test_what_a_validation_found_is_told_with_it():
    lines = ["pydantic_core.ValidationError: 1 validation error for EngineArgs", "max_num_seqs", "  must be above 0"]
    found = ended(1, lines, ready=False, oom=False)
    assert found.kind == "bad_flag"
    assert "for EngineArgs max_num_seqs must be above 0" in found.evidence


def test_a_long_line_is_cut_around_its_point():
    found = ended(1, ["x" * 500 + " so it is: CUDA out of memory. " + "y" * 500], ready=False, oom=False)
    assert "CUDA out of memory" in found.evidence
    assert len(found.evidence) < LONGEST_LINE + 130


def test_a_late_one_says_what_came_last():
    found = late(600, "http://127.0.0.1:8000/health answers 503", ["INFO loading shard 3 of 9"])
    assert found.kind == "startup_timeout"
    for words in ("loading shard 3 of 9", "not ready within 600 s", "answers 503", "raise server.ready_timeout"):
        assert words in found.evidence


@pytest.mark.parametrize("kind", ADVICE)
def test_the_judge_knows_every_kind(kind: str):
    end = EndRecord(cause="exited", exit_code=1, result={"error": "it died", "error_kind": kind}, has_result=True)
    judged = judge(end, Policy(result_required=True))
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.evidence, judged.blame) == (Kind(kind), "it died", RULES[Kind(kind)].blame)
    assert judged.retryable == (kind not in ("out_of_memory", "bad_flag"))


def test_memory_that_the_runner_saw_too_is_not_tried_again_either():
    end = EndRecord(
        cause="exited", exit_code=1, oom=True, result={"error": "x", "error_kind": "out_of_memory"}, has_result=True
    )
    judged = judge(end, Policy())
    assert isinstance(judged, Failure)
    assert (judged.kind, judged.retryable) == (Kind.OUT_OF_MEMORY, False)
