"""OpenAPI document of the API, made of the rows of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ledgermq
from ledgermq.observer.api.calls import PREFIX, ApiCall
from ledgermq.observer.api.fields import INTEGER, INTEGERS, ITEMS_MAX, TEXTS, CallField
from ledgermq.observer.api.problems import CONTENT_TYPE

Schema = dict[str, object]

REFUSALS: Mapping[str, str] = {
    "400": "What was said cannot be asked so",
    "401": "A token is needed",
    "403": "The caller has not the right",
    "404": "There is no such topic, group or message",
    "409": "It cannot be done now: members consume, or it has ended otherwise",
    "421": "Another node leads: details.leader, and details.url where the settings name it",
    "429": "The caller asks too much at once",
    "503": "No answer now: nobody leads, or not in time; try again",
}

_PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "error", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "error": {"type": "string", "description": "Name of the error"},
        "number": {"type": "integer", "description": "Number of the error"},
        "retriable": {"type": "boolean", "description": "The same may succeed later"},
        "detail": {"type": "string", "description": "Why, in words"},
        "details": {"type": "object", "description": "The values that matter, by name"},
    },
}


def document(calls: Iterable[ApiCall]) -> dict[str, object]:
    """The document, as OpenAPI 3.1 has it."""
    paths: dict[str, dict[str, object]] = {}
    for call in calls:
        paths.setdefault(PREFIX + call.path, {})[call.method.lower()] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "LedgerMQ",
            "version": ledgermq.__version__,
            "description": "What the commands of ledgermq show and change, over HTTP. Answers have"
            " the keys of the commands' --json.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM},
            "responses": {
                f"Refused{status}": {
                    "description": text,
                    "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
                for status, text in REFUSALS.items()
            },
        },
    }


def _operation(call: ApiCall) -> Schema:
    parameters = [_parameter(field, "path") for field in call.path_fields]
    parameters += [_parameter(field, "query") for field in call.query]
    refusals = {one: {"$ref": f"#/components/responses/Refused{one}"} for one in REFUSALS}
    told: Schema = {
        "operationId": call.name,
        "summary": call.about,
        "description": f"Needs {call.needs}.",
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "What was asked for",
                "content": {"application/json": {"schema": _answer(call.shape)}},
            },
            **refusals,
        },
    }
    if call.changes:
        told["requestBody"] = {
            "required": any(field.is_needed for field in call.body),
            "content": {"application/json": {"schema": _body(call)}},
        }
    return told


def _parameter(field: CallField, place: str) -> Schema:
    return {
        "name": field.name,
        "in": place,
        "required": field.is_needed,
        "description": field.about,
        "schema": _schema(field),
    }


def _body(call: ApiCall) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in call.body if field.is_needed],
        "properties": {
            field.name: {**_schema(field), "description": field.about} for field in call.body
        },
    }


def _schema(field: CallField) -> Schema:
    bounds: Schema = {"minimum": field.least, "maximum": field.most}
    if field.kind == INTEGER:
        schema: Schema = {"type": "integer", **bounds}
    elif field.kind == INTEGERS:
        items: Schema = {"type": "integer", **bounds}
        schema = {"type": "array", "items": items, "maxItems": ITEMS_MAX}
    elif field.kind == TEXTS:
        schema = {"type": "array", "items": {"type": "string"}, "maxItems": ITEMS_MAX}
    else:
        schema = {"type": field.kind}
    if field.among:
        schema["enum"] = list(field.among)
    if field.default is not None:
        schema["default"] = field.default
    return schema


def _answer(shape: Mapping[str, str]) -> Schema:
    properties: Schema = {
        name: {"type": [kind[:-1], "null"] if kind.endswith("?") else kind}
        for name, kind in shape.items()
    }
    return {"type": "object", "required": list(shape), "properties": properties}
