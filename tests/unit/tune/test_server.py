"""Reading `[trial] server`, and what becomes of it for each trial."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.store.cases import claimed, drive

from evalfleet.engine.attempts.launch import launch_of
from evalfleet.errors import InputError
from evalfleet.report.studies.study import as_flags
from evalfleet.store.open import open_store
from evalfleet.tune.server import flag_words
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.tasks import trial_spec
from evalfleet.tune.trial import Role, Wanted

SERVER: dict[str, Any] = {
    "command": ["serve", "--port", "{port}", "{flags}", '{"json": 1}', "{tp}x"],
    "ready": "http://127.0.0.1:{port}/health",
}
PARAMETERS: dict[str, Any] = {
    "tp": [1, 2],
    "chunked": [True, False],
    "chunk": {"type": "integer", "low": 1, "high": 9, "when": "chunked"},
    "load": ["a b", "c"],
}


def study(server: dict[str, Any] | None = None, trial: dict[str, Any] | None = None, **fields: Any) -> Study:
    return study_of(
        {
            "study": {"name": "s", "objective": {"maximize": "speed"}, **fields},
            "parameters": PARAMETERS,
            "trial": {"command": ["bench", "{load}"], "server": {**SERVER, **(server or {})}, **(trial or {})},
        }
    )


def spec(one: Study, **parameters: Any):
    return trial_spec(one, Wanted(role=Role.SEARCH, parameters=parameters), 1)


def test_the_places_of_parameters_are_filled_for_each_trial():
    one = study(
        {"env": {"MODE": "{chunked}", "AT": "{port}"}, "flags": ["chunked", "chunk", "tp"], "ready_timeout": "1m"},
        {"env": {"URL": "http://h:{port}", "TP": "{tp}"}},
    )
    made = spec(one, tp=2, chunked=True, chunk=3, load="a b")
    assert made.command == ("bench", "a b")
    assert made.env == {"URL": "http://h:{port}", "TP": "2"}
    assert made.start_timeout_s == 90.0
    assert made.payload["server"] == {
        "command": ["serve", "--port", "{port}", "--chunked", "--chunk", "3", "--tp", "2", '{"json": 1}', "2x"],
        "ready": "http://127.0.0.1:{port}/health",
        "ready_timeout_s": 60.0,
        "stop_timeout_s": 10.0,
        "env": {"MODE": "true", "AT": "{port}"},
        "port_in": ["URL"],
    }
    other = spec(one, tp=1, chunked=False, load="c")
    assert other.payload["server"]["command"][3:5] == ["--tp", "1"]
    assert other.payload["server"]["env"]["MODE"] == "false"


def test_without_a_server_braces_mean_nothing():
    one = study_of(
        {
            "study": {"name": "s", "objective": {"maximize": "speed"}},
            "parameters": PARAMETERS,
            "trial": {"command": ["bench", "{load}", "{port}", "{flags}"]},
        }
    )
    made = spec(one, tp=1, chunked=False, load="c")
    assert made.command == ("bench", "{load}", "{port}", "{flags}")
    assert (made.start_timeout_s, "server" in made.payload) == (None, False)


def test_flags_are_those_that_best_prints():
    parameters = {"max_num_seqs": 3, "eager": True, "cache": False, "name": "a b", "share": 0.9}
    words = ["--max-num-seqs", "3", "--eager", "--name", "a b", "--share", "0.9"]
    assert flag_words(parameters) == words == shlex.split(as_flags(parameters))


@pytest.mark.parametrize(
    ("server", "trial", "said"),
    [
        ({"command": []}, {}, "trial.server.command: is empty"),
        ({"ready": "127.0.0.1:{port}"}, {}, "trial.server.ready: '127.0.0.1:{port}' is not an address"),
        ({"ready": "https://h/x"}, {}, "is not an address"),
        ({"ready": "http://h:99999/"}, {}, "is not an address"),
        ({"ready_timeout": "soon"}, {}, "trial.server.ready_timeout: "),
        ({"flags": ["tps"]}, {}, "trial.server.flags: 'tps' is not a parameter; choose from tp, "),
        ({"command": ["serve", "{chunk}"]}, {}, "trial.server.command: {chunk} has no value where its `when`"),
        ({}, {"command": ["bench", "--x={flags}"]}, "trial.command: {flags} expands to several words"),
        ({"env": {"A": "{flags}"}}, {}, "trial.server.env: {flags} expands to several words"),
        ({"wait": 3}, {}, "wait"),
    ],
)
def test_a_wrong_server_is_refused_in_words(server: dict[str, Any], trial: dict[str, Any], said: str):
    with pytest.raises(InputError) as refused:
        study(server, trial)
    assert said in str(refused.value).replace('"', "'")


def test_a_baseline_must_have_what_the_commands_need():
    study(baseline={"tp": 1, "load": "c"})
    with pytest.raises(InputError, match=r"study.baseline: has no tp, which .* needs"):
        study(baseline={"load": "c"})
    with pytest.raises(InputError, match=r"study.baseline: has no load"):
        study(baseline={"tp": 1})


def test_a_parameter_must_not_be_called_as_a_place():
    table = {
        "study": {"name": "s", "objective": {"maximize": "speed"}},
        "parameters": {"port": [1, 2]},
        "trial": {"command": ["bench"], "server": SERVER},
    }
    with pytest.raises(InputError, match=r"parameters.port: .* rename the parameter"):
        study_of(table)


def test_only_a_trial_is_run_with_something_around_it(tmp_path: Path):
    store = open_store(tmp_path)
    try:
        run = drive(store)
        task, attempt = store.tasks.at(run.id, 1), claimed(store, run).attempt
        trial = replace(task, spec=replace(task.spec, payload={"server": SERVER}))
        assert launch_of(run, trial, attempt, {}, 1.0).spec["around"] is None
        searched = replace(run, policy=replace(run.policy, study={}))
        assert launch_of(searched, trial, attempt, {}, 1.0).spec["around"] == "server"
        assert launch_of(searched, task, attempt, {}, 1.0).spec["around"] is None
    finally:
        store.close()
