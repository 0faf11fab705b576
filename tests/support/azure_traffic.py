"""Checks what clients and the emulator said to each other against Azure's OpenAPI files, and against the library's models where
there is no file. `check` is called wherever a test runs an emulator, so that no exchange of any such test goes unread."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.azure_bodies import COMPUTE, DISK, ML, NETWORK, SPECS, by_model
from tests.support.azure_shapes import DOCUMENTS
from tests.support.openapi import Schema, compiled, loaded, resolved

SKUS = SPECS / "compute/resource-manager/Microsoft.Compute/Skus/stable/2021-07-01"
BATCH = SPECS / "batch/data-plane"
RESOURCES = SPECS / "resources/resource-manager/Microsoft.Resources/stable/2024-07-01"
# The files in which a request is looked for, by the first parts that its path contains.
FILES = (
    ("/history/", Path("history")),
    ("/microsoft.machinelearningservices/ /jobs/", ML / "mfe.json"),
    ("/microsoft.machinelearningservices/ /environments/", ML / "mfe.json"),
    ("/microsoft.machinelearningservices/", ML / "machineLearningServices.json"),
    ("/runcommand/", COMPUTE / "runCommand.json"),
    ("/microsoft.compute/virtualmachines", COMPUTE / "virtualMachine.json"),
    ("/microsoft.compute/locations/", COMPUTE / "computeRPCommon.json"),
    ("/microsoft.compute/disks", DISK / "disk.json"),
    ("/microsoft.compute/snapshots", DISK / "snapshot.json"),
    ("/microsoft.compute/skus", SKUS / "skus.json"),
    ("/microsoft.network/networkinterfaces", NETWORK / "networkInterface.json"),
    ("/microsoft.network/publicipaddresses", NETWORK / "publicIpAddress.json"),
    ("/microsoft.network/virtualnetworks", NETWORK / "virtualNetwork.json"),
    ("/microsoft.network/networksecuritygroups", NETWORK / "networkSecurityGroup.json"),
    ("/microsoft.network/locations/", NETWORK / "usage.json"),
    ("/resourcegroups", RESOURCES / "resources.json"),
    ("/providers/", RESOURCES / "resources.json"),
    ("/resources", RESOURCES / "resources.json"),
)
# Not of Resource Manager, or in no file of Azure's: signing in, polls of operations, metadata inside a VM, commands over SSH.
_APART = re.compile(
    r"/oauth2/|/\.well-known/|^/metadata/|/operations/|/operationresults/|^/imds/|^ssh/|^/api/retail/", re.I
)
# The data plane of Batch: the file in the form of the library's own version, and the one that has reimaging besides.
BATCH_FILES = (
    BATCH / "Azure.Batch/preview/2024-02-01.19.0/BatchService.json",
    BATCH / "Microsoft.Batch/stable/2024-02-01.19.0/BatchService.json",
)
_BATCH = re.compile(r"^/batch/[^/]+")
_OPAQUE = {"$skiptoken", "$skip"}  # what the address of a next page carries
_VERBS = ("get", "put", "post", "patch", "delete", "head")


class Operation(NamedTuple):
    """One request that a file knows."""

    version: str
    body: Schema | ModelSchema | None
    needs_body: bool
    query: dict[str, bool]  # name -> whether it is required
    answers: Mapping[str, Schema | ModelSchema | None]  # by status
    is_long: bool
    model: str | None  # the library's class of the same body


def check(exchanges: Iterable[Mapping[str, Any]]) -> None:
    """Fail with path, member and reason of everything that Azure would not say or take. Without the files nothing is read."""
    if not SPECS.exists():
        return
    found: dict[str, None] = {}
    for each in exchanges:
        for problem in problems(each):
            found[problem] = None
    assert not found, "\n".join(["traffic that Azure's own description does not know:", *list(found)[:20]])


def check_file(path: Path) -> None:
    """The same for a file that `evalfleet emulator --traffic` wrote."""
    if path.exists() and SPECS.exists():
        with path.open(encoding="utf-8") as lines:
            check(json.loads(line) for line in lines if line.endswith("\n"))


def problems(exchange: Mapping[str, Any]) -> Iterator[str]:
    method, path, status = exchange["method"], exchange["path"], exchange["status"]
    if _APART.search(path) or method not in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD"):
        return
    is_client = "azsdk" in (agent := exchange["headers"].get("User-Agent", "")) or "evalfleet" in agent
    if status >= 400 and not is_client:
        return  # a test that sends something wrong on purpose, and is refused
    operation = _operation(method, path)
    where = f"{method} {path}"
    if operation is None:
        yield f"{where}: neither a file nor a shape knows such a request"
        return
    query = dict(part.partition("=")[::2] for part in exchange["query"].split("&") if part)
    is_same = query.get("api-version") == operation.version
    yield from _query_problems(where, operation, query)
    yield from _request_problems(where, operation, exchange["request"], is_same=is_same)
    for problem in _answer_problems(operation, exchange, is_same=is_same):
        yield f"{where}: {status}: {problem}"


def _query_problems(where: str, operation: Operation, query: Mapping[str, str]) -> Iterator[str]:
    if _OPAQUE & query.keys():
        return  # a next page: its address is the service's own
    for name in query:
        if name not in operation.query:
            yield f"{where}: ?{name}: not a parameter of the request"
    for name, is_required in operation.query.items():
        if is_required and name not in query:
            yield f"{where}: ?{name}: required"


def _request_problems(where: str, operation: Operation, body: Any, *, is_same: bool) -> Iterator[str]:
    if body is None or operation.body is None:
        if operation.needs_body and body is None:
            yield f"{where}: a body is required"
        elif body and operation.body is None:
            yield f"{where}: takes no body"
        return
    yield from (f"{where}: request{each}" for each in _body_problems(operation, operation.body, body, True, is_same))


def _answer_problems(operation: Operation, exchange: Mapping[str, Any], *, is_same: bool) -> Iterator[str]:
    status, body = exchange["status"], exchange["answer"]
    if status >= 400:
        is_batch = _BATCH.match(exchange["path"])
        error = body if is_batch else body.get("error") if isinstance(body, dict) else None
        if body is not None and not (isinstance(error, dict) and {"code", "message"} <= error.keys()):
            yield "an error without error.code and error.message"
        return
    if str(status) not in operation.answers:
        yield f"not one of its answers ({', '.join(operation.answers)})"
        return
    if operation.is_long and status in (201, 202):
        headers = {name.lower() for name in exchange.get("answer_headers") or ()}
        if not headers & {"azure-asyncoperation", "location"} and status == 202:
            yield "an accepted operation without the address where it can be followed"
    schema = operation.answers[str(status)]
    if schema is None:
        if body:
            yield "an answer without a body has one"
    elif body is None:
        if status == 200 and exchange["method"] != "HEAD" and not _is_file(exchange):
            yield "the body is missing"
    else:
        yield from (f"answer{each}" for each in _body_problems(operation, schema, body, False, is_same))


def _is_file(exchange: Mapping[str, Any]) -> bool:
    """Whether the answer was the content of a file, which is not written down."""
    return "octet-stream" in (exchange.get("answer_headers") or {}).get("Content-Type", "")


def _body_problems(
    operation: Operation, schema: Schema | ModelSchema, body: Any, request: bool, is_same: bool
) -> Iterator[str]:
    found = list(schema.problems(body, request=request))
    if found and not is_same and operation.model is not None:
        # The library speaks a newer version of the API than the file: it knows what is new since then.
        from azure.mgmt.compute import models

        newer = list(by_model(body, getattr(models, operation.model)))
        found = [each for each in found if not each.endswith(UNKNOWN)] + newer
    yield from found


class ModelSchema:
    """A library's own class in the place of a schema: for images and Batch accounts, of which there is no file."""

    def __init__(self, library: str, name: str, *, is_list: bool = False) -> None:
        self._library, self._name, self._is_list = library, name, is_list

    def problems(self, body: Any, *, request: bool) -> Iterator[str]:
        models = import_module(f"azure.mgmt.{self._library}.models")
        model = getattr(models, _REQUESTS.get(self._name, self._name) if request else self._name)
        for each in body["value"] if self._is_list else [body]:
            yield from by_model(each, model)


_BY_MODEL = {  # the end of a path -> the library and its class
    r"/galleries(/[^/]+)?$": ("compute", "Gallery"),
    r"/galleries/[^/]+/images(/[^/]+)?$": ("compute", "GalleryImage"),
    r"/galleries/[^/]+/images/[^/]+/versions(/[^/]+)?$": ("compute", "GalleryImageVersion"),
    r"/microsoft\.batch/batchaccounts(/[^/]+)?$": ("batch", "BatchAccount"),
}
_LISTS = ("/galleries", "/images", "/versions", "/batchaccounts")
_REQUESTS = {"BatchAccount": "BatchAccountCreateParameters"}  # what is sent, where that is another class
UNKNOWN = "not in the schema"
_MODELS = {"VirtualMachine": "VirtualMachine", "VirtualMachineUpdate": "VirtualMachineUpdate"}


def _operation(method: str, path: str) -> Operation | None:
    low = path.lower().rstrip("/")
    if _BATCH.match(low):
        found = (_in_file(file, method, _files_as_one(_BATCH.sub("", low))) for file in BATCH_FILES)
        return next((each for each in found if each is not None), None)
    for pattern, (library, model) in _BY_MODEL.items():
        if re.search(pattern, low):
            return _of_model(library, model, method, is_list=low.endswith(_LISTS))
    file = next((file for parts, file in FILES if all(part in f"{low}/" for part in parts.split())), None)
    documents = [Path(name) for name in DOCUMENTS] if file is None or file.name == "resources.json" else []
    for each in [*documents, *([file] if file else [])]:
        found = _in_file(each, method, low)
        if found is not None:
            return found
    return None


def _files_as_one(path: str) -> str:
    """A path inside a node or task is one parameter, with all its slashes."""
    head, found, rest = path.partition("/files/")
    return f"{head}{found}{rest.replace('/', '%2f')}"


@cache
def _of_model(library: str, model: str, method: str, *, is_list: bool) -> Operation:
    schema = ModelSchema(library, model, is_list=is_list)
    answers = {"GET": ("200",), "PUT": ("200", "201", "202")}.get(method, ())
    deleted = ("200", "202", "204") if library == "batch" else ("202", "204")
    return Operation(
        version="",
        body=schema if method == "PUT" else None,
        needs_body=method == "PUT",
        query={"api-version": True, "$expand": False},
        answers={**dict.fromkeys(answers, schema), **dict.fromkeys(deleted if method == "DELETE" else ())},
        is_long=method != "GET",
        model=None,
    )


def _in_file(file: Path, method: str, low: str) -> Operation | None:
    for pattern, operations in _templates(file):
        if method in operations and pattern.fullmatch(low):
            return operations[method]()
    return None


@cache
def _templates(file: Path) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """The paths of a file, those with fewer parameters first."""
    document = loaded(file)
    found: list[tuple[int, re.Pattern[str], dict[str, Any]]] = []
    for template, operations in document["paths"].items():
        low = re.sub(r"\{\w+\}", "{}", template.lower().rstrip("/"))
        pattern = re.compile("[^/]+".join(map(re.escape, low.split("{}"))))
        version = document["info"]["version"]
        made = {
            verb.upper(): cache(lambda o=operation, v=version: _made(file, o, v))
            for verb, operation in operations.items()
            if verb in _VERBS
        }
        found.append((low.count("{}"), pattern, made))
    return [(pattern, made) for _, pattern, made in sorted(found, key=lambda each: each[0])]


def _made(file: Path, operation: Any, version: str) -> Operation:
    parameters = [resolved(file, each) for each in operation.get("parameters", ())]
    body = next(((where, each) for where, each in parameters if each["in"] == "body"), None)
    answers = {
        status: compiled(file, answer["schema"]) if "schema" in answer else None
        for status, answer in operation["responses"].items()
        if status != "default"
    }
    named = str((body[1]["schema"] if body else _first_schema(operation)).get("$ref", "")).rpartition("/")[2]
    return Operation(
        version=version,
        body=compiled(body[0], body[1]["schema"]) if body else None,
        needs_body=bool(body and body[1].get("required")),
        query={each["name"]: bool(each.get("required")) for _, each in parameters if each["in"] == "query"},
        answers=answers,
        is_long=bool(operation.get("x-ms-long-running-operation")),
        model=_MODELS.get(named),
    )


def _first_schema(operation: Any) -> Any:
    return operation["responses"].get("200", {}).get("schema", {})
