"""The server does what its OpenAPI document says, for whatever is sent: tried with generated requests, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.support.fleet import Fleet, fleet_at
from tests.support.web_server import Served, serve

schemathesis = pytest.importorskip("schemathesis")
jsonschema_rs = pytest.importorskip("jsonschema_rs")
EXAMPLES = 8
STREAM = "/api/v1/events"  # never ends
STUDY = """
[study]
name = "s"
objective = { minimize = "seconds" }
[parameters]
n = [1, 2]
[trial]
command = ["true"]
"""
REAL: dict[str, Any] = {"run": "latest", "task": 1, "attempt": 1}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    yield from fleet_at(Path(tmp_path_factory.mktemp("openapi")))


@pytest.fixture(scope="module")
def server(fleet: Fleet) -> Served:
    (fleet.folder / "study.toml").write_text(STUDY)
    fleet.command("tune", "study.toml", "--detach")
    tasks = [{"key": "a", "command": ["true"]}, {"key": "b", "command": ["false"]}]
    fleet.command("run", fleet.tasks(tasks, attempts=1))
    REAL["plan"] = fleet.json("plan", "--tasks", "5", "--workers", "2")["id"]
    return serve(fleet, "--no-drive")


def strict_document(server: Served) -> Any:
    """The document, with answers that may have no member that it does not tell of."""
    document = server.ask("/api/v1/openapi.json", token=None).json
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return document


def operations(server: Served) -> list[Any]:
    document = strict_document(server)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return [found.ok() for found in schema.get_all_operations() if found.ok().path != STREAM]


@pytest.mark.slow
def test_every_operation_keeps_its_word(server: Served):
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    found = operations(server)
    assert len(found) > 25
    answers: dict[int, int] = {}
    tried: list[Any] = []
    for operation in found:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        )
        @given(case=operation.as_strategy())
        def try_it(case: Any) -> None:
            headers = {"Authorization": f"Bearer {server.token}"}
            tried.append(case.path_parameters)
            if len(tried) % 2:  # what is made up is rarely there
                case.path_parameters = {
                    **case.path_parameters,
                    **{k: v for k, v in REAL.items() if k in case.path_parameters},
                }
            response = case.call(headers=headers, timeout=30)
            answers[response.status_code] = answers.get(response.status_code, 0) + 1
            case.validate_response(response, checks=checks)

        try_it()
    assert answers.get(200), answers
    assert server.process.poll() is None
    assert sum(answers.values()) > 100


def body_errors(document: Any, path: str, body: Any) -> list[str]:
    """Where a body differs from what the document says of it."""
    answer = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = jsonschema_rs.validator_for({**answer, "components": document["components"]})
    return [f"{path}: {error.message}"[:500] for error in validator.iter_errors(body)]


def test_runs_that_exist_are_told_as_described(server: Served):
    document = strict_document(server)
    assert document["openapi"].startswith("3.1")
    assert all(name.isalnum() for name in document["components"]["schemas"]), "two types share a name"
    for path in document["paths"]:
        if (
            "{run}" not in path
            or "post" in document["paths"][path]
            or "files" in path
            or path.endswith(("/screenshot", "/vnc"))
        ):
            continue
        address = path.replace("{run}", "latest").replace("{task}", "1").replace("{attempt}", "1")
        answer = server.ask(address.replace("{stream}", "stdout"))
        assert answer.status == 200, path
        assert int(answer.headers["x-evalfleet-event"]) > 0
        if "application/json" in document["paths"][path]["get"]["responses"]["200"]["content"]:
            assert body_errors(document, path, answer.json) == []
            assert body_errors(document, path, {**answer.json, "more": 1})
            for name in answer.json:
                assert body_errors(document, path, {k: v for k, v in answer.json.items() if k != name}), name


def test_plans_are_told_as_described(server: Served):
    document = strict_document(server)
    for path in ("/api/v1/plans", "/api/v1/plans/{plan}"):
        answer = server.ask(path.replace("{plan}", REAL["plan"]))
        assert answer.status == 200
        assert body_errors(document, path, answer.json) == []
        for name in answer.json:
            assert body_errors(document, path, {k: v for k, v in answer.json.items() if k != name}), name
