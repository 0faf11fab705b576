"""The documentation says what the code does: tables, diagrams, options and messages are compared with their source."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest
from msgspec.structs import fields

from evalfleet import actions, config, duration, errors, model, plugins, taskfile
from evalfleet.benchmarks.desk import checks, getters, setup_steps
from evalfleet.benchmarks.desk import task as desk
from evalfleet.cli import main as entry
from evalfleet.config import core_tables
from evalfleet.core import transitions
from evalfleet.core.failures import kinds as failures
from evalfleet.core.rights import RIGHTS
from evalfleet.environments.guest import messages, server
from evalfleet.report import summary
from evalfleet.runner.attempt import states as attempt_states
from evalfleet.runner.gpu import states as lease_states
from evalfleet.taskfile import row as taskrow

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "evalfleet"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
# Pages of other authors, which follow their own features.
OTHERS = {DOCS / "reference" / name for name in ("runner.md", "summary.md", "python.md", "doctor.md")}
OURS = [page for page in PAGES if page not in OTHERS]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"there is no section {heading}"
    return match[1]


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, without heads."""
    found: list[list[str]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = block.splitlines()[2:]
        found += [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return found


def names(text: str) -> list[str]:
    """What stands in code type in the first cells."""
    return [name for row in rows(text) for name in re.findall(r"`([^`]+)`", row[0])]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Links and words


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_links_lead_somewhere(path: Path):
    text = FENCED.sub("", path.read_text("utf-8"))
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_page_is_in_the_menu_and_the_index():
    menu = set(re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {found.relative_to(DOCS).as_posix() for found in DOCS.rglob("*.md")}
    assert pages == menu
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", page("index.md")))
    assert pages - linked == {"index.md"}


_FOREIGN = r"\b(?:executors?|(?<!window )(?<!resource )managers?|utils|helpers?)\b"
_OF_SERVICES = r"\b(?:jobs?|nodes?|clusters?)\b"  # words of Batch, Azure ML and Slurm, for pages that speak of them


@pytest.mark.parametrize("path", OURS, ids=shown)
def test_no_page_uses_a_word_that_the_glossary_lacks(path: Path):
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", FENCED.sub("", path.read_text("utf-8")))
    assert re.findall(_FOREIGN, prose, re.IGNORECASE) == []
    if not re.search(r"\bBatch\b|Azure ML|\bRay\b|\bSlurm\b", prose):
        assert re.findall(_OF_SERVICES, prose, re.IGNORECASE) == []


@pytest.mark.parametrize("path", OURS, ids=shown)
def test_lines_are_not_endless(path: Path):
    text = FENCED.sub("", path.read_text("utf-8"))
    assert [line for line in text.splitlines() if len(line) > 140 and not line.startswith("|")] == []


def test_glossary_has_every_word_of_the_records():
    text = page("glossary.md")
    enums: list[Iterable[str]] = [model.RunState, model.TaskState, model.AttemptState, model.Outcome, model.Blame]
    words = [str(word) for enum in [*enums, model.BreakerState] for word in enum]
    assert [word for word in words if f"`{word}`" not in text] == []
    assert [str(verb) for verb in model.Verb if f"**{verb}**" not in text] == []
    tables: list[Mapping[Any, tuple[str, ...]]] = [
        transitions.RUN_EDGES,
        transitions.TASK_EDGES,
        transitions.ATTEMPT_EDGES,
    ]
    verbs = {verb for table in tables for verbs in table.values() for verb in verbs}
    assert [verb for verb in verbs if f"**{verb}**" not in text] == []


def test_glossary_is_in_order_and_has_one_line_per_noun():
    nouns = re.findall(r"^\| \*\*([^*]+)\*\* \|", section(page("glossary.md"), "Nouns"), re.MULTILINE)
    assert nouns == sorted(set(nouns))


# Lifecycle

DIAGRAMS = {
    "Run": (transitions.RUN_EDGES, model.RunState),
    "Task": (transitions.TASK_EDGES, model.TaskState),
    "Attempt": (transitions.ATTEMPT_EDGES, model.AttemptState),
    "Host": (transitions.HOST_EDGES, model.HostState),
    "Desired state of a host": (transitions.DESIRED_EDGES, model.DesiredState),
    "Pool": (transitions.POOL_EDGES, model.PoolState),
    "Breaker": (transitions.BREAKER_EDGES, model.BreakerState),
    "Breaker of a tier": (transitions.BREAKER_EDGES, model.BreakerState),
    "Attempt on its host": (attempt_states.EDGES, attempt_states.STATES),
    "Worker": (transitions.WORKER_EDGES, model.WorkerState),
    "GPU request": (transitions.GPU_EDGES, model.GpuRequestState),
    "Alert": (transitions.ALERT_EDGES, model.AlertState),
    "GPU lease on its host": (lease_states.EDGES, lease_states.STATES),
}


@pytest.mark.parametrize("name", DIAGRAMS)
def test_diagram_has_exactly_the_edges_of_the_table(name: str):
    edges, states = DIAGRAMS[name]
    text = section(page("lifecycle.md"), name)
    drawn = {
        (before, after): tuple(verbs.split(", "))
        for before, after, verbs in re.findall(r"^\s+(\w+) --> (\w+): (.+)$", text, re.MULTILINE)
    }
    assert drawn == {(str(before), str(after)): verbs for (before, after), verbs in edges.items()}
    assert re.findall(r"^\s+\[\*\] --> (\w+)$", text, re.MULTILINE) == [str(next(iter(states)))]
    assert names(text) == [str(state) for state in states]


# Failures


def test_failures_are_those_of_the_rules():
    told = {row[0].strip("`"): row[1:5] for row in rows(page("reference/failures.md")) if len(row) == 6}

    def yes(value: bool) -> str:
        return "yes" if value else "no"

    rules = {
        str(kind): [str(rule.blame), yes(rule.retryable), yes(rule.consumes), f"`{rule.outcome}`"]
        for kind, rule in failures.RULES.items()
    }
    assert told == rules
    assert f"this is version {failures.JUDGE_VERSION}." in page("reference/failures.md")


# Events

_EVENT = re.compile(
    r"(?:run|task|attempt|lease|worker|gpu|host|pool|breaker|backend|budget|alert|reap|home|tier|files)\.[a-z_]+"
)


_ATTRIBUTES = {"host.name"}  # of OpenTelemetry


def written_types() -> set[str]:
    """The types that some writing part of the source names."""
    found: set[str] = set()
    for folder in ("core", "store", "engine", "pools", "daemon", "web"):
        for path in (SOURCE / folder).rglob("*.py"):
            for part in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and _EVENT.fullmatch(part.value):
                    found.add(part.value)
    return found - _ATTRIBUTES - RIGHTS.keys()


def test_every_event_type_is_told():
    assert set(names(page("reference/events.md"))) == written_types()


# The task file


def keys_of(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_task_file_has_every_key():
    text = page("reference/task-file.md")
    assert set(names(section(text, "`[run]`"))) == set(taskrow.RUN_KEYS)
    assert set(names(section(text, "`[[task]]`"))) == keys_of(taskrow._TaskRow)


def test_task_file_has_the_real_defaults():
    told = {row[0].strip("`"): row[2] for row in rows(section(page("reference/task-file.md"), "`[run]`"))}
    policy = model.Policy()
    fields = {"timeout": "timeout_s", "retry_base": "retry_base_s", "retry_cap": "retry_cap_s"}
    for key, default in told.items():
        if not default.startswith("`"):
            continue
        value = tomllib.loads(f"x = {default.strip('`')}")["x"]
        if key == "result":
            assert (value == "required") is policy.result_required
        elif key in fields:
            assert duration.parse(value) == getattr(policy, fields[key])
        else:
            assert value == getattr(policy, key)
    assert {key for key, default in told.items() if default == "off"} == {"stall", "start_timeout"}


def test_example_of_the_task_file_is_good_input(tmp_path: Path):
    toml, json_lines = (text for language, text in FENCED.findall(page("reference/task-file.md")))
    (tmp_path / "a.toml").write_text(toml)
    (tmp_path / "a.jsonl").write_text(json_lines)
    assert len(taskfile.load(tmp_path / "a.toml").tasks) == 1
    assert taskfile.load(tmp_path / "a.jsonl").policy.attempts == 3


_GOOD = '[[task]]\nkey = "a_1"\ncommand = ["true"]\n'
MISTAKES: dict[str, bytes | None] = {
    "unknown key": _GOOD.replace("command", "comand").encode(),
    "a run's key at the top": b"attempts = 1\n" + _GOOD.encode(),
    "key used twice": (_GOOD * 2).encode(),
    "empty command": b'[[task]]\nkey = "a_1"\ncommand = []\n',
    "command as one text": b'[[task]]\nkey = "a_1"\ncommand = "true"\n',
    "bad duration": b'[run]\ntimeout = "15 minutes"\n' + _GOOD.encode(),
    "number out of range": b"[run]\nattempts = 0\n" + _GOOD.encode(),
    "no tasks": b"[run]\n",
    "not UTF-8": b"[run]\n\xff",
    "no such file": None,
}


def test_mistakes_have_the_messages_that_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    told = {row[0]: row[1].strip("`") for row in rows(section(page("reference/task-file.md"), "What is refused"))}
    said: dict[str, str] = {}
    for mistake, content in MISTAKES.items():
        path = Path("tasks.toml")
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(errors.TaskFileError) as caught:
            taskfile.load(path)
        said[mistake] = str(caught.value).replace("?.", "?")
    assert told == said


# The task contract


def test_contract_has_every_variable():
    source = (SOURCE / "runner" / "attempt" / "spec.py").read_text("utf-8")
    real = set(re.findall(r"\b(EVALFLEET_[A-Z_]+)=", source))
    real |= set(
        re.findall(r'"(EVALFLEET_[A-Z_]+)":', (SOURCE / "engine" / "attempts" / "launch.py").read_text("utf-8"))
    )
    assert set(names(section(page("reference/task-contract.md"), "Variables"))) == real


def test_contract_has_every_inherited_variable():
    text = page("reference/task-contract.md")
    assert [name for name in sorted(config._INHERITED) if f"`{name}`" not in text] == []


# Desk tasks


def test_desk_tasks_have_every_type_and_member():
    text = page("reference/desk-tasks.md")
    for title, kinds in (("Steps", setup_steps.SETUPS), ("Getters", getters.GETTERS), ("Checks", checks.CHECKS)):
        told = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows(section(text, title))}
        assert told == {name: set(kind.__struct_fields__) for name, kind in kinds.items()}  # type: ignore[attr-defined]


def test_example_of_a_desk_task_is_good_input():
    definition, settings = (body for _, body in FENCED.findall(page("howto/add-a-desk-task.md"))[:2])
    assert desk.parse(json.loads(definition), domain="lists", where="example").id == "rename-list"
    assert tomllib.loads(settings) == {"desk": {"tasks": "my-tasks"}}


def test_mistakes_in_desk_tasks_have_the_messages_that_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    good = json.loads(FENCED.findall(page("howto/add-a-desk-task.md"))[0][1])
    step, looked = good["config"][0], good["evaluator"]
    wrong = {
        "unknown key": {"config": [{**step, "parameters": {"pth": "x"}}]},
        "unknown type": {"config": [{**step, "type": "lunch"}]},
        "path outside the home folder": {"evaluator": {**looked, "result": {"type": "file_text", "path": "/etc"}}},
        "no check": {},
        "file and id differ": {"id": "b"},
    }
    said: dict[str, str] = {}
    for mistake, members in wrong.items():
        task = {**good, "id": "a", **members}
        if not members:
            del task["evaluator"]
        Path("a.json").write_text(json.dumps(task))
        with pytest.raises(errors.TaskFileError) as caught:
            desk.read(Path("a.json"))
        said[mistake] = str(caught.value)
    told = {row[0]: row[1].strip("`") for row in rows(section(page("reference/desk-tasks.md"), "What is refused"))}
    assert told == said


# The guest protocol


def test_guest_protocol_has_every_request_action_and_error():
    text = page("reference/guest-protocol.md")
    routes = {name.partition("?")[0] for name in names(section(text, "Requests"))}
    assert routes == set(server._routes(Any))  # pyright: ignore[reportArgumentType]
    told = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in rows(section(text, "Actions"))}
    kinds = {kind.__name__.lower(): [each.name for each in fields(kind)] for kind in get_args(actions.Action)}
    assert told == kinds
    errors_told = {row[1].strip("`"): row[0] for row in rows(section(text, "Errors"))}
    for kind, (status, _) in messages.KINDS.items():
        assert errors_told[kind] == str(status)


# Configuration


def settings_tables() -> dict[str, Any]:
    """Every table of the configuration file, by its name."""
    plugged = {name: plugins.built_in(plugins.SETTINGS, name) for name in plugins.BUILT_IN[plugins.SETTINGS]}
    return {"": core_tables.GeneralSettings, **core_tables.TABLES, **plugged}


def test_configuration_has_every_key_and_variable():
    table = rows(page("reference/configuration.md"))
    known = {
        f"{name}.{field.encode_name}".lstrip(".")
        for name, kind in settings_tables().items()
        for field in msgspec.structs.fields(kind)
    }
    assert {row[0].strip("`") for row in table} == {*known, "pool"}
    keys = {row[3].strip("`"): row[0].strip("`") for row in table if row[3]}
    variables = {**core_tables.VARIABLES, **plugins.VARIABLES, "EVALFLEET_HOME": ("", "home")}
    assert keys == {variable: ".".join(key).lstrip(".") for variable, key in variables.items()}


def test_configuration_has_the_real_defaults():
    for key, _, default, _, _ in rows(page("reference/configuration.md")):
        if not default.startswith("`") or key == "`home`":
            continue
        section, _, name = key.strip("`").rpartition(".")
        kind = settings_tables()[section]
        field = next(field for field in msgspec.structs.fields(kind) if field.encode_name == name)
        value = tomllib.loads(f"x = {default.strip('`')}")["x"]
        is_duration = field.name.endswith("_s")
        wanted = duration.parse(value) if is_duration else tuple(value) if isinstance(value, list) else value
        assert wanted == getattr(kind(), field.name), key


def test_example_of_the_configuration_is_good_input(tmp_path: Path):
    (tmp_path / "evalfleet.toml").write_text(FENCED.findall(page("reference/configuration.md"))[0][1])
    assert config.load(tmp_path / "home", environ={}, folder=tmp_path).local.price_usd_per_hour == 0.35


# The command line


def options(command: click.Command) -> set[str]:
    """Of a command, or of all commands of a group."""
    if isinstance(command, click.Group):
        return set().union(*map(options, command.commands.values()))
    return {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("name", entry.NAMES)
def test_command_line_has_every_option(name: str):
    text = section(page("reference/cli.md"), name)
    real = options(entry.cli.commands[name]) - {"--json", "--home"}
    assert {option for option in names(text) if option.startswith("-")} == real
    assert f"`evalfleet {name}" in text


def test_command_line_has_no_other_command():
    text = page("reference/cli.md")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(entry.NAMES)


def test_every_command_has_the_common_options():
    for name in entry.NAMES:
        command = entry.cli.commands[name]
        for one in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert {"--json", "--home"} <= options(one), one.name


# Exit codes


def test_exit_codes_are_all_told():
    told = {int(row[0]) for row in rows(page("reference/exit-codes.md"))}
    kinds = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    own = {entry.INTERRUPTED, entry.BROKEN_PIPE, entry.INTERNAL_ERROR, summary.OK, summary.BELOW, summary.PAUSED}
    assert told == kinds | own


# Snippets


SNIPPETS = {
    "solve.py": "write-a-task",
    "solve.sh": "write-a-task",
    "solve.mjs": "write-a-task",
    "patient_agent.py": "write-an-agent",
    "curl_agent.sh": "write-an-agent",
    "plugin/evalfleet_sums/process_trees.py": "write-a-backend",
    "plugin/tests/test_process_trees.py": "write-a-backend",
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet_is_the_example(name: str):
    blocks = [text for _, text in FENCED.findall(page(f"howto/{SNIPPETS[name]}.md"))]
    found = [text.split("\n", 1)[1] for text in blocks if text.split("\n", 1)[0] in (f"# {name}", f"// {name}")]
    assert found == [(ROOT / "examples" / name).read_text("utf-8")]


# Pages for those who carry on


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/howto/add-a-failure-pattern.md"])
def test_the_files_and_folders_that_a_page_names_are_there(name: str):
    text = (ROOT / name).read_text("utf-8")
    named = set(re.findall(r"(?<![\w/.])(?:[a-z_]+/)+(?:[a-z_]+\.(?:py|toml|jsonl|ts))?", text))
    places = (ROOT, SOURCE, ROOT / "docs")
    of_a_home = {"spool/", "spool/attempts/", "locks/"}
    assert sorted(one for one in named - of_a_home if not any((place / one).exists() for place in places)) == []
