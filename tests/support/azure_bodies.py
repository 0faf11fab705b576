"""Checks of request and answer bodies: by the model classes of Azure's library, and by the official OpenAPI files."""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SPECS = Path(__file__).parents[3] / "shared" / "data" / "azure" / "specs" / "specification"
COMPUTE = SPECS / "compute/resource-manager/Microsoft.Compute/ComputeRP/stable/2024-07-01"
DISK = SPECS / "compute/resource-manager/Microsoft.Compute/DiskRP/stable/2024-03-02"
ML = SPECS / "machinelearningservices/resource-manager/Microsoft.MachineLearningServices/stable/2024-04-01"
NETWORK = SPECS / "network/resource-manager/Microsoft.Network/stable/2024-01-01"


def by_model(body: Any, model: Any, path: str = "") -> Iterator[str]:
    """Name every member of a body that the library's model does not have, or whose value is no such thing."""
    if isinstance(body, dict) and hasattr(model, "_is_model"):
        model()  # the class learns its own fields at the first instance
        fields = {field._rest_name: attribute for attribute, field in model._attr_to_rest_field.items()}
        hints = typing.get_type_hints(model, localns={"_models": sys.modules[model.__module__.rpartition(".")[0]]})
        for name, value in body.items():
            if name not in fields:
                yield f"{path}.{name}: {model.__name__} has no such member"
            else:
                yield from by_type(value, hints[fields[name]], f"{path}.{name}")


def by_type(value: Any, hint: Any, path: str) -> Iterator[str]:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    origin = typing.get_origin(hint)
    if origin is list:
        if not isinstance(value, list):
            yield f"{path}: not a list"
            return
        for number, each in enumerate(value):
            yield from by_type(each, options[0], f"{path}[{number}]")
    elif origin is typing.Union:
        faults = [list(by_type(value, option, path)) for option in options]
        if all(faults):
            yield from faults[0]
    elif hasattr(hint, "_is_model"):
        yield from by_model(value, hint, path) if isinstance(value, dict) else [f"{path}: not an object"]
    elif hint in (bool, int, float, str) and not isinstance(value, (int, float) if hint is float else hint):
        yield f"{path}: {value!r} is no {hint.__name__}"


@cache
def _document(path: Path) -> Any:
    return json.loads(path.read_text("utf-8-sig"))


def schema_of(file: Path, name: str) -> tuple[Path, Any]:
    return file, _document(file)["definitions"][name]


def by_schema(body: Any, file: Path, schema: Any, path: str = "", *, request: bool = True) -> Iterator[str]:
    """Name every member that the OpenAPI schema does not have, that is required and missing, or read-only and sent."""
    file, schema = _resolved(file, schema)
    if isinstance(body, dict):
        members, required, open_ended = _members(file, schema)
        if members or not open_ended:
            for name, value in body.items():
                if name not in members:
                    if not open_ended:
                        yield f"{path}.{name}: not in the schema"
                    continue
                where, member = members[name]
                if request and member.get("readOnly"):
                    yield f"{path}.{name}: read-only"
                yield from by_schema(value, where, member, f"{path}.{name}", request=request)
            yield from (f"{path}.{name}: required" for name in required if name not in body and request)
    elif isinstance(body, list):
        for number, each in enumerate(body):
            yield from by_schema(each, file, schema.get("items", {}), f"{path}[{number}]", request=request)
    else:
        allowed = schema.get("enum")
        if allowed and body not in allowed and not schema.get("x-ms-enum", {}).get("modelAsString"):
            yield f"{path}: {body!r} is none of {allowed}"


def _resolved(file: Path, schema: Any) -> tuple[Path, Any]:
    while "$ref" in schema:
        where, _, pointer = schema["$ref"].partition("#")
        file = (file.parent / where).resolve() if where else file
        schema = _document(file)
        for part in pointer.strip("/").split("/"):
            schema = schema[part]
    return file, schema


def _members(file: Path, schema: Any) -> tuple[dict[str, tuple[Path, Any]], set[str], bool]:
    members = {name: (file, member) for name, member in schema.get("properties", {}).items()}
    required = set(schema.get("required", ()))
    open_ended = "additionalProperties" in schema or (not members and "allOf" not in schema)
    for part in schema.get("allOf", ()):
        more, needed, _ = _members(*_resolved(file, part))
        members = {**more, **members}
        required |= needed
    return members, required, open_ended
