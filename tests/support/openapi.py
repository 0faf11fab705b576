"""Schemas of OpenAPI files, read once and made into what checks bodies quickly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.azure_shapes import DOCUMENTS

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_made: dict[int, tuple[Any, Schema]] = {}  # by the schema's identity, which the stored schema itself keeps alive


@cache
def loaded(path: Path) -> Any:
    if path.name in DOCUMENTS:
        return DOCUMENTS[path.name]
    return json.loads(path.read_text("utf-8-sig"))


def resolved(file: Path, schema: Any) -> tuple[Path, Any]:
    """Follow references; the file where the end of them stands, and what stands there."""
    while "$ref" in schema:
        where, _, pointer = schema["$ref"].partition("#")
        file = (file.parent / where).resolve() if where else file
        schema = loaded(file)
        for part in pointer.strip("/").split("/"):
            schema = schema[part]
    return file, schema


def compiled(file: Path, schema: Any) -> Schema:
    read_only = bool(schema.get("readOnly"))
    file, schema = resolved(file, schema)
    known = _made.get(id(schema))
    if known is None:
        known = (schema, Schema(file, schema))
        _made[id(schema)] = known
    return known[1].as_read_only() if read_only else known[1]


class Schema:
    """One schema. Its members are made when they are first met: some schemas contain themselves."""

    def __init__(self, file: Path, schema: Any) -> None:
        self._file, self._schema = file, schema
        self.read_only = bool(schema.get("readOnly"))
        self._type = schema.get("type")
        self._enum = None if schema.get("x-ms-enum", {}).get("modelAsString") else schema.get("enum")
        self._pattern = re.compile(schema["pattern"]) if "pattern" in schema else None
        self._properties: dict[str, tuple[Path, Any]] = {}
        self._required: set[str] = set()
        self._is_open = False
        self._gather(file, schema)
        # Open where it says so, or where it says nothing at all.
        self._is_open = schema.get("additionalProperties", not self._properties) is not False
        self._members: dict[str, Schema] = {}

    def as_read_only(self) -> Schema:
        if self.read_only:
            return self
        copy = Schema(self._file, self._schema)
        copy.read_only = True
        return copy

    def _gather(self, file: Path, schema: Any) -> None:
        for part in schema.get("allOf", ()):
            self._gather(*resolved(file, part))
        self._properties |= {name: (file, member) for name, member in schema.get("properties", {}).items()}
        self._required |= set(schema.get("required", ()))

    def member(self, name: str) -> Schema | None:
        if name not in self._members and name in self._properties:
            self._members[name] = compiled(*self._properties[name])
        return self._members.get(name)

    def problems(self, body: Any, path: str = "", *, request: bool) -> Iterator[str]:
        """Name every member that is unknown, missing, read-only and sent, or no such value."""
        variant = self._variant(body)
        if variant is not self:
            yield from variant.problems(body, path, request=request)
            return
        wanted = "object" if self._properties and self._type is None else self._type
        kind = _TYPES.get(wanted or "")
        if kind is not None and (not isinstance(body, kind) or (isinstance(body, bool) and wanted != "boolean")):
            yield f"{path}: {body!r:.60} is no {wanted}"
        elif isinstance(body, dict):
            yield from self._of_members(body, path, request)
        elif isinstance(body, list):
            items = self._schema.get("items")
            if items is not None:
                inner = compiled(self._file, items)
                for number, each in enumerate(body):
                    yield from inner.problems(each, f"{path}[{number}]", request=request)
        else:
            yield from self._of_value(body, path)

    def _variant(self, body: Any) -> Schema:
        """The schema of what the body says that it is, where this one has several forms."""
        name = self._schema.get("discriminator")
        if name is None or not isinstance(body, dict):
            return self
        for key, form in loaded(self._file)["definitions"].items():
            is_named = body.get(name) == form.get("x-ms-discriminator-value", key)
            if is_named and any(resolved(self._file, each)[1] is self._schema for each in form.get("allOf", ())):
                return compiled(self._file, form)
        return self

    def _of_members(self, body: dict[str, Any], path: str, request: bool) -> Iterator[str]:
        values = self._schema.get("additionalProperties")
        for name, value in body.items():
            member = self.member(name)
            if member is None:
                if not self._is_open:
                    yield f"{path}.{name}: not in the schema"
                elif isinstance(values, dict) and values:
                    yield from compiled(self._file, values).problems(value, f"{path}.{name}", request=request)
                continue
            if request and member.read_only:
                yield f"{path}.{name}: read-only"
            elif value is not None or not member.read_only:
                yield from member.problems(value, f"{path}.{name}", request=request)
        for name in self._required:
            member = self.member(name)
            if name not in body and not (request and member is not None and member.read_only):
                yield f"{path}.{name}: required"

    def _of_value(self, value: Any, path: str) -> Iterator[str]:
        schema = self._schema
        if self._enum and value not in self._enum:
            yield f"{path}: {value!r} is none of {self._enum}"
        if isinstance(value, str):
            if self._pattern is not None and not self._pattern.search(value):
                yield f"{path}: {value!r} does not match {self._pattern.pattern}"
            if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
                yield f"{path}: {value!r:.60} has a wrong length"
            if schema.get("format") == "date-time" and not _MOMENT.fullmatch(value):
                yield f"{path}: {value!r} is no moment"
        elif isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get(
            "maximum", value
        ):
            yield f"{path}: {value!r} is out of bounds"
