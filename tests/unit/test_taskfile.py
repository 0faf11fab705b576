from __future__ import annotations

import gc
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet import taskfile
from evalfleet.errors import TaskFileError
from evalfleet.model import Distribution, Policy, Requests, TaskSpec

FULL = """
[run]
name = "nightly"
attempts = 4
timeout = "15m"
stall = "5m"
start_timeout = "10m"
budget_usd = 5.0
accept = 0.95
exit_is_verdict = true
timeout_is_verdict = true
result = "required"
progress = "events"
files = ["agent.py"]
breaker = false
max_lost = 2
retry_base = "500ms"
retry_cap = 30
workers = 8
distribution = "round-robin"
gpus = [3, 0, 3]
gpu_pack = true

[[task]]
key = "notepad_1"
domain = "editor"
command = ["python3", "agent.py", ""]
env = { A = "1" }
secrets = ["OPENAI_API_KEY", "OPENAI_API_KEY"]
payload = { any = "json", day = 2026-01-02 }
timeout = "10m"
stall = 90
start_timeout = "1h30m"
requests = { gpus = 1, memory_mb = 500, gpu_memory_mb = 8000 }
gpu_env = "uuid"

[[task]]
key = "paint_big_2"
command = ["true"]
"""

FULL_POLICY = Policy(
    attempts=4,
    timeout_s=900.0,
    stall_s=300.0,
    start_timeout_s=600.0,
    budget_usd=5.0,
    accept=0.95,
    exit_is_verdict=True,
    timeout_is_verdict=True,
    result_required=True,
    progress="events",
    files=("agent.py",),
    breaker=False,
    max_lost=2,
    retry_base_s=0.5,
    retry_cap_s=30.0,
    workers=8,
    distribution=Distribution.ROUND_ROBIN,
    gpus=(0, 3),
    gpu_pack=True,
)

FULL_TASKS = [
    TaskSpec(
        key="notepad_1",
        domain="editor",
        command=("python3", "agent.py", ""),
        env={"A": "1"},
        secrets=("OPENAI_API_KEY",),
        payload={"any": "json", "day": "2026-01-02"},
        timeout_s=600.0,
        stall_s=90.0,
        start_timeout_s=5400.0,
        requests=Requests(gpus=1, memory_mb=500, gpu_memory_mb=8000),
        gpu_env="uuid",
    ),
    TaskSpec(key="paint_big_2", domain="paint_big", command=("true",)),
]


def write(folder: Path, text: str | bytes, name: str = "tasks.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_key_of_toml(tmp_path: Path):
    submission = taskfile.load(write(tmp_path, FULL))
    assert submission.name == "nightly"
    assert submission.policy == FULL_POLICY
    assert list(submission.tasks) == FULL_TASKS
    assert len(submission.tasks) == 2
    assert submission.folder == str(tmp_path)
    assert submission.secrets == ("OPENAI_API_KEY",)


def as_json_lines() -> str:
    import tomllib

    document = tomllib.loads(FULL.replace("2026-01-02", '"2026-01-02"'))
    return "\n\n".join(json.dumps(row) for row in [{"run": document["run"]}, *document["task"]]) + "\n"


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.ndjson", "tasks.json", "tasks"])
def test_json_lines_say_the_same(tmp_path: Path, name: str):
    submission = taskfile.load(write(tmp_path, as_json_lines(), name))
    assert (submission.name, submission.policy) == ("nightly", FULL_POLICY)
    assert list(submission.tasks) == FULL_TASKS
    assert list(submission.tasks) == FULL_TASKS  # again: it is not used up
    assert len(submission.tasks) == 2
    assert submission.secrets == ("OPENAI_API_KEY",)


@pytest.mark.parametrize("text", [FULL, as_json_lines(), "\ufeff" + as_json_lines(), "\ufeff" + FULL])
def test_standard_input_is_either(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    submission = taskfile.load("-", io.BytesIO(text.encode()))
    assert list(submission.tasks) == FULL_TASKS
    assert submission.folder == str(tmp_path)


def test_defaults(tmp_path: Path):
    submission = taskfile.load(write(tmp_path, '{"key": "a", "command": ["true"]}', "small.jsonl"))
    assert submission.name == "small"
    assert submission.policy == Policy()
    assert list(submission.tasks) == [TaskSpec(key="a", domain="a", command=("true",))]


def test_null_is_unset(tmp_path: Path):
    line = '{"key": "_1", "command": ["true"], "env": null, "timeout": null, "requests": null, "domain": null}'
    assert list(taskfile.load(write(tmp_path, line, "t.jsonl")).tasks) == [
        TaskSpec(key="_1", domain="_1", command=("true",))
    ]


@pytest.mark.parametrize("key", ["../../x", "a b", "a\nb", "🙂", "x" * 300, "ключ_1"])
def test_hostile_keys_are_keys(tmp_path: Path, key: str):
    path = write(tmp_path, json.dumps({"key": key, "command": ["true"]}), "t.jsonl")
    assert [task.key for task in taskfile.load(path).tasks] == [key]


def test_a_pipe_can_be_a_file(tmp_path: Path):
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=('{"key": "a", "command": ["true"]}\n',))
    writer.start()
    submission = taskfile.load(path)
    writer.join()
    assert [task.key for task in submission.tasks] == ["a"]


TASK = '[[task]]\nkey = "a_1"\ncommand = ["true"]\n'

BAD_TOML: list[tuple[str | bytes, list[str]]] = [
    ("", ["no tasks", "[[task]]"]),
    ("task = []", ["no tasks"]),
    ('[run]\nname = "x"', ["no tasks"]),
    ("[run\n", ["line 1", "not valid TOML"]),
    ('[run]\nname = "x"\nattempts = = 3\n', ["line 3, column 12", "not valid TOML"]),
    (b'[run]\nname = "\xff"\n', ["line 2", "not UTF-8", "0xff", "offset 14", "save the file as UTF-8"]),
    ("x = 1\n".encode("utf-16"), ["line 1", "not UTF-8"]),
    ('[task]\nkey = "a"', ["[[task]]", "single brackets"]),
    ("task = 3", ["[[task]]"]),
    ("task = [3]", ["task number 1", "expected one task"]),
    ("[[run]]\n" + TASK, ["[[run]]", "write [run]"]),
    ("[[tasks]]", ['unknown key "tasks"', 'did you mean "task"?']),
    ("attempts = 3\n" + TASK, ['unknown key "attempts"', "under [run]"]),
    ("run = 3\n" + TASK, ["[run]", "expected a table"]),
    ("[run]\natempts = 3\n" + TASK, ["[run]", 'unknown key "atempts"', 'did you mean "attempts"?']),
    ('[run]\nattempts = "3"\n' + TASK, ["[run]", "attempts", "a whole number", "text in quotes"]),
    ("[run]\nattempts = 0\n" + TASK, ["attempts: 0 is out of range", "least is 1"]),
    ("[run]\nattempts = -1\n" + TASK, ["attempts: -1 is out of range"]),
    ("[run]\nattempts = true\n" + TASK, ["attempts: expected a whole number, got true or false"]),
    ("[run]\nbudget_usd = -5\n" + TASK, ["budget_usd: -5 is out of range"]),
    ("[run]\nbudget_usd = inf\n" + TASK, ["[run]", "inf"]),
    ("[run]\naccept = 1.5\n" + TASK, ["accept: 1.5 is out of range", "from 0 to 1"]),
    ("[run]\naccept = -0.1\n" + TASK, ["accept", "from 0 to 1"]),
    ("[run]\naccept = nan\n" + TASK, ["[run]", "nan"]),
    ('[run]\nresult = "maybe"\n' + TASK, ["result", '"maybe"', "optional, required"]),
    ('[run]\nprogress = "event"\n' + TASK, ["progress", 'did you mean "events"?']),
    ('[run]\ndistribution = "roundrobin"\n' + TASK, ["distribution", 'did you mean "round-robin"?']),
    ('[run]\nfiles = "agent.py"\n' + TASK, ["files", "a list of paths"]),
    ('[run]\nfiles = [""]\n' + TASK, ["files", "empty"]),
    ('[run]\nname = ""\n' + TASK, ["name", "empty"]),
    ('[run]\nname = "a\\u0000"\n' + TASK, ["name", "NUL"]),
    ('[run]\ntimeout = "15 parsecs"\n' + TASK, ["[run]", 'timeout: "15 parsecs" is not a duration', '"15m"']),
    ("[run]\ntimeout = 0\n" + TASK, ["timeout: 0 is zero", "above zero"]),
    ("[run]\ntimeout = -5\n" + TASK, ["timeout: -5 is negative"]),
    ('[run]\ntimeout = "-5m"\n' + TASK, ['timeout: "-5m" is negative']),
    ('[run]\ntimeout = ""\n' + TASK, ['timeout: "" is not a duration']),
    ('[run]\nretry_cap = ["1s"]\n' + TASK, ["retry_cap", "a duration such as"]),
    ("[run]\nworkers = 0\n" + TASK, ["workers: 0"]),
    ("[run]\nmax_lost = -1\n" + TASK, ["max_lost: -1"]),
    ('[run]\nbreaker = "no"\n' + TASK, ["breaker", "true or false"]),
    (TASK + TASK, ['task "a_1"', "used twice", "number 1 and 2"]),
    ('[[task]]\ncommand = ["true"]', ["task number 1", '"key" is missing']),
    ('[[task]]\nkey = "a"', ['task "a"', '"command" is missing']),
    ('[[task]]\nkey = ""\ncommand = ["true"]', ["task number 1", "key: is empty"]),
    ('[[task]]\nkey = 7\ncommand = ["true"]', ["task number 1", "key: expected text in quotes"]),
    ('[[task]]\nkey = "a\\u0000b"\ncommand = ["true"]', ["key: has a NUL byte"]),
    ('[[task]]\nkey = "a"\ncommand = []', ['task "a"', "command: is empty"]),
    ('[[task]]\nkey = "a"\ncommand = [""]', ['task "a"', "command", "first word", "empty"]),
    ('[[task]]\nkey = "a"\ncommand = ["x", "\\u0000"]', ['task "a"', "command: has a NUL byte"]),
    ('[[task]]\nkey = "a"\ncommand = "echo hi"', ['task "a"', "command: expected a list", '["sh", "-c", "…"]']),
    ('[[task]]\nkey = "a"\ncommand = ["echo", 3]', ['task "a"', "command[1]", "words in quotes"]),
    (TASK + "comand = 1", ['task "a_1"', 'unknown key "comand"', 'did you mean "command"?']),
    (TASK + 'domain = ""', ["domain: is empty"]),
    (TASK + 'timeout = "1x"', ['task "a_1"', 'timeout: "1x" is not a duration']),
    (TASK + 'timeout = "400d"', ["timeout", "longer than 365 days"]),
    (TASK + 'env = "A=1"', ["env: expected a table of texts"]),
    (TASK + "env = { A = 1 }", ['task "a_1"', "env.A: the value must be text; put it in quotes"]),
    (TASK + 'env = { "A=B" = "hush" }', ['env: "A=B" cannot be', "'='"]),
    (TASK + 'env = { "" = "hush" }', ['env: "" cannot be']),
    (TASK + 'env = { A = "hush\\u0000" }', ["env.A: the value has a NUL byte"]),
    (TASK + 'env = { EVALFLEET_HOME = "hush" }', ['"EVALFLEET_HOME" is reserved']),
    (TASK + 'secrets = "KEY"', ["secrets: expected a list of names"]),
    (TASK + 'secrets = ["hush-1"]', ["secrets", "not the name of an environment variable"]),
    (TASK + 'secrets = ["EVALFLEET_TASK"]', ["secrets", "reserved"]),
    (TASK + 'secrets = ["A"]\nenv = { A = "hush" }', ['secrets: "A" is also in env']),
    (TASK + "requests = { gpu = 1 }", ['requests: unknown key "gpu"', 'did you mean "gpus"?']),
    (TASK + "requests = { gpus = -1 }", ["requests.gpus: -1 is out of range"]),
    (TASK + "requests = { memory_mb = 1.5 }", ["requests.memory_mb: expected a whole number"]),
    (TASK + "requests = { gpu_memory_mb = 8000 }", ["requests.gpu_memory_mb: is memory of each GPU", "gpus = 1"]),
    (TASK + "requests = { gpus = 1, gpu_memory_mb = -1 }", ["requests.gpu_memory_mb: -1 is out of range"]),
    (TASK + 'gpu_env = "pci"', ["gpu_env:", "index"]),
    ("[run]\ngpus = []\n" + TASK, ["gpus: is empty", "leave it out"]),
    ("[run]\ngpus = [-1]\n" + TASK, ["gpus: -1 is out of range"]),
    ('[run]\ngpus = "0,1"\n' + TASK, ["gpus: expected a list", "[0, 1]"]),
    (TASK + "payload = { x = nan }", ['task "a_1"', "JSON cannot hold"]),
    ('[[task]]\nkey = "\\ud800"\ncommand = ["true"]', ["line 2", "not valid TOML"]),
]

GOOD = b'{"key": "a_1", "command": ["true"]}\n'
BAD_LINES: list[tuple[bytes, list[str]]] = [
    (b"", ["no tasks"]),
    (b"\n \n", ["no tasks"]),
    (b'{"run": {"name": "x"}}\n', ["no tasks"]),
    (b'{"run": {"attempts": 0}}\n' + GOOD, ["line 1, run", "attempts: 0"]),
    (b'\n{"run": {"attemps": 1}}\n' + GOOD, ["line 2, run", 'did you mean "attempts"?']),
    (b'{"run": 3}\n' + GOOD, ["line 1, run", "expected a table"]),
    (b'{"run": {}, "key": "a"}\n', ["line 1", '"key"', "line of their own"]),
    (b'{"run": {}\n' + GOOD, ["line 1", "does not end on this line"]),
    (GOOD + b'{"run": {}}\n', ["line 2", "must be the first line"]),
    (GOOD + b"\n" + GOOD, ["line 3", '"a_1"', "used twice", "lines 1 and 3"]),
    (GOOD + b'{"key": "a", "key": "b", "command": ["a"]}\n', ["line 2: ", '"key" stands twice']),
    (b'{"key": "b", "command": ["a"], "payload": {"x": {"q": 1, "q": 2}}}\n', ["line 1", '"q" stands twice']),
    (b'{"run": {"attempts": 1, "attempts": 2}}\n' + GOOD, ["line 1", '"attempts" stands twice']),
    (GOOD + b'{"key": "b", "comand": []}\n', ['line 2 (task "b")', 'unknown key "comand"', 'did you mean "command"?']),
    (GOOD + b'{"key": "b"}\n', ['line 2 (task "b")', '"command" is missing']),
    (b'{"key": "b", "command": "ls"}\n', ['line 1 (task "b")', "command: expected a list"]),
    (b'{"key": "b", "command": []}\n', ["line 1", "command: is empty"]),
    (b'{"key": "b", "command": ["a\\u0000"]}\n', ["line 1", "command: has a NUL byte"]),
    (b'{"key": "b", "command": ["a"], "env": {"A": 12345}}\n', ["line 1", "env.A: the value must be text"]),
    (b'{"key": "b", "command": ["a"], "timeout": "15 parsecs"}\n', ["line 1", '"15 parsecs" is not a duration']),
    (b'{"key": "b", "command": ["a"], "requests": {"gpus": -2}}', ["line 1", "requests.gpus: -2"]),
    (b'{"key": "b", "command": ["a"], "requests": {"gpus": 99999999999999999999}}', ["line 1", "requests.gpus"]),
    (b'{"key": "b", "command": ["a"], "payload": 1e999}', ["line 1", "out of range"]),
    (b'{"key": "b", "command": ["a"], "payload": NaN}', ["line 1", "not valid JSON"]),
    (b'{"key": "b\xff", "command": ["a"]}\n', ["line 1", "not UTF-8", "0xff", "offset 10"]),
    (b'{"key": "\\ud800", "command": ["a"]}\n', ["line 1", "surrogate"]),
    (b'{"key": "b\x00", "command": ["a"]}\n', ["line 1", "NUL"]),
    (b"hello\n", ["line 1", "not valid JSON"]),
    (b'{"key": "b",\n "command": ["a"]}\n', ["line 1", "does not end on this line", "one line"]),
    (b'[{"key": "b", "command": ["a"]}, 3]\n', ["task number 2", "expected one task"]),
    (b'[{"key": "b", "command": ["a"]}\n', ["line 2, column 1", "not valid JSON"]),
    (b'[{"key": "b", "key": "c", "command": ["a"]}]\n', ['"key" stands twice']),
    (b'[{"key": "b", "command": ["a"], "payload": NaN}]\n', ['task "b"', "nan"]),
    (b"[]\n", ["no tasks"]),
    (b"[" * 100_000, ["nested too deeply"]),
    (GOOD + b'[{"key": "b", "command": ["a"]}]\n', ["line 2", "one object per line", "jq"]),
    (b'{"run": {"command": "ls"}}\n' + GOOD, ["line 1, run", "command: expected a list"]),
    (b'{"run": {"env": {"EVALFLEET_X": "1"}}}\n' + GOOD, ["reserved"]),
    (b'{"run": {"env": {"A": "1"}, "secrets": ["A"]}}\n' + GOOD, ["also in env"]),
    (b"3\n", ["line 1", "expected one task"]),
    (GOOD + b'{"key": "b", "payload": "' + b"x" * 10_000_000 + b'"}\n', ["line 2", "10,000,028 bytes", "1 MiB"]),
    (b'{"key": "b", "command": ["a"], "payload": ' + b"[" * 100_000 + b"\n", ["line 1", "nested too deeply"]),
]


def refused(path: Path) -> str:
    with pytest.raises(TaskFileError) as caught:
        taskfile.load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith((".", "?"))
    assert message.isprintable()
    assert len(message) < 500
    assert "hush" not in message
    assert "12345" not in message
    assert caught.value.exit_code == 2
    return message


@pytest.mark.parametrize(("text", "parts"), BAD_TOML)
def test_bad_toml(tmp_path: Path, text: str | bytes, parts: list[str]):
    message = refused(write(tmp_path, text))
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(("text", "parts"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_bad_json_lines(tmp_path: Path, text: bytes, parts: list[str]):
    message = refused(write(tmp_path, text, "tasks.jsonl"))
    assert [part for part in parts if part not in message] == [], message


def test_no_such_file(tmp_path: Path):
    assert "there is no such file" in refused(tmp_path / "none.toml")


def test_folder(tmp_path: Path):
    assert "is a folder" in refused(tmp_path)


def test_impossible_path():
    with pytest.raises(TaskFileError, match="cannot be read"):
        taskfile.load("a\0b")


def test_keys_that_a_terminal_would_obey_are_escaped(tmp_path: Path):
    assert "\\u001b" in refused(write(tmp_path, '{"key": "\\u001b[2J\\u202e", "command": []}', "t.jsonl"))


def test_bad_standard_input_is_named():
    with pytest.raises(TaskFileError, match="standard input, line 1"):
        taskfile.load("-", io.BytesIO(b'{"key": 1}'))


def test_file_that_changes_between_check_and_use(tmp_path: Path):
    path = write(tmp_path, GOOD, "tasks.jsonl")
    submission = taskfile.load(path)
    path.write_bytes(GOOD + b'{"key": "b", "command": ["true"]}\n')
    with pytest.raises(TaskFileError, match="changed while it was read"):
        list(submission.tasks)


def test_mappings():
    submission = taskfile.from_mappings(
        [{"key": "a_1", "command": ("true",), "timeout": 5}], {"workers": 2}, folder="/f", name="n"
    )
    assert list(submission.tasks) == [TaskSpec(key="a_1", domain="a", command=("true",), timeout_s=5.0)]
    assert (submission.name, submission.policy.workers, submission.folder) == ("n", 2, "/f")


@pytest.mark.parametrize(
    ("task", "part"),
    [
        ({"key": "\ud800", "command": ["a"]}, "surrogate"),
        ({"key": "a", "command": ["a"], "payload": object()}, "cannot be written as JSON"),
        ({"key": "a", "command": ["a"], "payload": float("inf")}, "JSON cannot hold"),
        ("a", "expected one task"),
    ],
)
def test_bad_mappings(task: Any, part: str):
    with pytest.raises(TaskFileError, match=part):
        taskfile.from_mappings([task], folder="/f", name="n")


def test_many_tasks_do_not_lie_in_memory(tmp_path: Path):
    import tracemalloc

    path = tmp_path / "many.jsonl"
    with path.open("w") as file:
        for number in range(20_000):
            row = {"key": f"domain_{number}", "command": ["python3", "agent.py", str(number)], "payload": "x" * 200}
            file.write(json.dumps(row) + "\n")
    tracemalloc.start()
    try:
        submission = taskfile.load(path)
        assert sum(1 for _ in submission.tasks) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000  # the tasks themselves would take 14 MB
    del submission
    gc.collect()  # closes the file without a warning


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["key", "command", "env", "timeout", "secrets", "requests", "x"]), json_values))
def test_any_json_object_is_a_task_or_refused(row: dict[str, Any]):
    try:
        taskfile.load("-", io.BytesIO(json.dumps(row).encode()))
    except TaskFileError as error:
        assert str(error).startswith("standard input")


@given(st.binary(max_size=200))
def test_any_bytes_are_tasks_or_refused(content: bytes):
    for prefix in (b"", b"{"):
        try:
            taskfile.load("-", io.BytesIO(prefix + content))
        except TaskFileError as error:
            assert str(error).startswith("standard input")


def test_what_only_looks_doubled_is_taken(tmp_path: Path):
    """Spaces, escapes and other ways to write a number are no second member."""
    line = (
        b'{ "key":\t"\\u00e9 \\"key\\": 1", "command" : ["a", "a"], "payload": [{"q": 1.0}, {"q": 1e5}, 1'
        + b"0" * 30
        + b"]}\n"
    )
    path = tmp_path / "t.jsonl"
    path.write_bytes(line)
    (task,) = taskfile.load(path).tasks
    assert task.key == 'é "key": 1'


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_is_read_as_other_programs_write_it(tmp_path: Path, indent: int | None):
    rows = [{"run": {"name": "x", "attempts": 2}}, {"key": "a", "command": ["a"]}, {"key": "b", "command": ["b"]}]
    for name in ("tasks.json", "tasks.jsonl", "tasks"):
        found = taskfile.load(write(tmp_path, json.dumps(rows, indent=indent), name))
        assert (found.name, found.policy.attempts, [spec.key for spec in found.tasks]) == ("x", 2, ["a", "b"])
    assert len(taskfile.load("-", io.BytesIO(json.dumps(rows[1:], indent=indent).encode())).tasks) == 2


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "toml"])
def test_what_the_run_says_for_all_of_its_tasks(tmp_path: Path, lines: bool):
    run = {"command": ["run"], "env": {"A": "1", "B": "1"}, "secrets": ["KEY"], "payload": {"x": 1, "y": 1}}
    tasks = [
        {"key": "plain"},
        {"key": "own", "command": ["own"], "env": {"B": "2"}, "secrets": ["MORE"], "payload": {"y": 2}},
        {"key": "text", "payload": "text"},
    ]
    if lines:
        path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in [{"run": run}, *tasks]), "t.jsonl")
    else:
        text = """
            run = { command = ["run"], env = { A = "1", B = "1" }, secrets = ["KEY"], payload = { x = 1, y = 1 } }
            task = [
                { key = "plain" },
                { key = "own", command = ["own"], env = { B = "2" }, secrets = ["MORE"], payload = { y = 2 } },
                { key = "text", payload = "text" },
            ]"""
        path = write(tmp_path, text)
    found = taskfile.load(path)
    plain, own, text = found.tasks
    assert (plain.command, plain.env, plain.secrets) == (("run",), {"A": "1", "B": "1"}, ("KEY",))
    assert plain.payload == {"x": 1, "y": 1}
    assert (own.command, own.env, own.secrets) == (("own",), {"A": "1", "B": "2"}, ("KEY", "MORE"))
    assert own.payload == {"x": 1, "y": 2}
    assert (text.command, text.payload) == (("run",), "text")
    assert found.secrets == ("KEY", "MORE")
