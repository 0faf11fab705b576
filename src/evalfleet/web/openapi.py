"""The OpenAPI document, made of the table of routes, so that it cannot tell of another API than there is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from evalfleet import __version__
from evalfleet.answers.runs import EventRow
from evalfleet.model import JsonObject
from evalfleet.web.routes import Parameter, Route

_IN_PATH = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_ERRORS = {400: "the input is wrong", 401: "a token is needed", 403: "not allowed", 404: "there is no such thing"}
_CHANGE_ERRORS = {409: "not possible now", 413: "too large", 415: "not JSON", 429: "too often"}


def document(routes: Sequence[Route]) -> JsonObject:
    """Return the document of an API with these routes."""
    paths: dict[str, JsonObject] = {}
    for route in routes:
        paths.setdefault(_IN_PATH.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route)
    bodies = [route.body for route in routes if route.body is not None]
    answers = list(dict.fromkeys(answer for route in routes for answer in route.answers))
    _, schemas = msgspec.json.schema_components(
        [*bodies, *answers, EventRow], ref_template="#/components/schemas/{name}"
    )
    _, sent = msgspec.json.schema_components(bodies)
    for name in schemas.keys() - sent.keys():
        _complete(name, schemas[name], answers)
    schemas["Error"] = _ERROR
    return {
        "openapi": "3.1.0",
        "info": {"title": "evalfleet", "version": __version__, "summary": "Runs, tasks, attempts, pools and alerts."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _complete(name: str, schema: JsonObject, answers: Sequence[type[msgspec.Struct]]) -> None:
    """An answer has every member, also those with a default, unless its type says that these are left out."""
    is_short = any(one.__name__ == name and one.__struct_config__.omit_defaults for one in answers)
    if "properties" in schema and not is_short:
        schema["required"] = list(schema["properties"])


_ERROR: JsonObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message", "status"],
            "properties": {
                "kind": {"type": "string"},
                "message": {"type": "string"},
                "status": {"type": "integer"},
            },
        }
    },
}


def _operation(route: Route) -> JsonObject:
    operation: JsonObject = {
        "summary": route.text,
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', _IN_PATH.sub(_name, route.path)).strip('_')}",
        "parameters": [*_path_parameters(route.path), *map(_parameter, route.query)],
        "responses": _responses(route),
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if route.operation is None:
        operation["security"] = []
    return operation


def _name(match: re.Match[str]) -> str:
    return match[1]


def _responses(route: Route) -> JsonObject:
    refs = [{"$ref": f"#/components/schemas/{answer.__name__}"} for answer in route.answers]
    schema: JsonObject = refs[0] if len(refs) == 1 else {"anyOf": refs} if refs else {}
    # A file has the type that its bytes say.
    media = "*/*" if route.media == "application/octet-stream" else route.media
    responses: JsonObject = {str(route.status): {"description": route.text, "content": {media: {"schema": schema}}}}
    if route.media == "websocket":
        responses = {"101": {"description": route.text}}
    errors = {**_ERRORS, **(_CHANGE_ERRORS if route.method == "POST" else {})}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return responses | {str(status): {"description": text, "content": content} for status, text in errors.items()}


def _path_parameters(path: str) -> list[JsonObject]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(pattern)}
        for name, pattern in _IN_PATH.findall(path)
    ]


def _path_schema(pattern: str) -> JsonObject:
    if pattern == "\\d+":
        return {"type": "integer", "minimum": 0, "maximum": 999_999_999}
    if pattern and "|" in pattern:
        return {"type": "string", "enum": pattern.split("|")}
    return {"type": "string", "minLength": 1}


def _parameter(one: Parameter) -> JsonObject:
    schema: dict[str, Any] = {"type": one.kind}
    if one.words:
        schema["enum"] = list(one.words)
    if one.least is not None:
        schema["minimum"] = one.least
    if one.kind == "integer":
        schema["maximum"] = one.most if one.most is not None else 1 << 62
    if one.kind == "string" and not one.words:
        schema["maxLength"] = 1000
    if one.many:
        schema = {"type": "array", "items": schema}
    return {"name": one.name, "in": "query", "required": one.required, "schema": schema}
