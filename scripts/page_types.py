"""Write frontend/src/lib/answers.ts: the types of what the API answers, made of its OpenAPI document.

With --check nothing is written; the exit code is 1 where the file is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from evalfleet.web.openapi import document
from evalfleet.web.routes import API, routes

FILE = Path(__file__).parent.parent / "frontend" / "src" / "lib" / "answers.ts"
HEAD = (
    "// Made by scripts/page_types.py of the server's structs; do not edit. run it again after a change of an answer.\n"
)
REF = "#/components/schemas/"
WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
FEED = "EventRow"  # what the live feed sends is no answer of JSON

Schema = dict[str, Any]


def generated() -> str:
    """The whole file."""
    site: Any = SimpleNamespace(remote=SimpleNamespace(lines=None), settings=SimpleNamespace(waa=None))
    api = document([route for route in routes(site) if route.path.startswith(API)])
    schemas: dict[str, Schema] = api["components"]["schemas"]
    wanted = sorted(_reached([FEED, *_answers(api)], schemas))
    return HEAD + "".join(f"\n{_declared(name, schemas[name])}\n" for name in wanted)


def _answers(api: Schema) -> Iterator[str]:
    for path in api["paths"].values():
        for operation in path.values():
            good = next(iter(operation["responses"].values()))
            yield from _refs(good)


def _reached(names: list[str], schemas: dict[str, Schema]) -> set[str]:
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += _refs(schemas[name])
    return found


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in cast("Schema", value).items():
            if key == "$ref":
                yield str(inner).removeprefix(REF)
            else:
                yield from _refs(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _refs(inner)


def _declared(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_type(schema)};"
    members = "".join(
        f"  {member}{'' if member in schema.get('required', ()) else '?'}: {_type(inner)};\n"
        for member, inner in schema["properties"].items()
    )
    told = " ".join(str(schema.get("description", "")).split())
    return f"{f'/** {told} */{chr(10)}' if told else ''}export interface {name} {{\n{members}}}"


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF)
    if "enum" in schema:
        return " | ".join(json.dumps(word) for word in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    match schema.get("type"):
        case "array":
            return _array(schema)
        case "object":
            inner = schema.get("additionalProperties")
            return f"Record<string, {_type(inner) if isinstance(inner, dict) else 'unknown'}>"
        case str() as word:
            return WORDS[word]
        case _:
            return "unknown"


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    inner = _type(schema.get("items") or {})
    return f"({inner})[]" if "|" in inner else f"{inner}[]"


def main() -> int:
    text = generated()
    if "--check" not in sys.argv[1:]:
        if not FILE.exists() or FILE.read_text("utf-8") != text:
            FILE.write_text(text, "utf-8")
        return 0
    if FILE.exists() and FILE.read_text("utf-8") == text:
        return 0
    print(f"{FILE.name} is stale: run .venv/bin/python scripts/page_types.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
