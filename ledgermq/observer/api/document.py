"""OpenAPI document of the API, made of the rows of its calls; its refusals as RFC 9457 has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.responses import Response

import ledgermq
from ledgermq.model.errors import (
    BodyUnreadableError,
    BusyError,
    ConfigError,
    CorruptLogError,
    FilterIllegalError,
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    MessageUnknownError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    QuotaError,
    StorageError,
    TopicUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
)
from ledgermq.observer.api.call_rows import PREFIX, ApiCall
from ledgermq.observer.api.fields import INTEGER, INTEGERS, ITEMS_MAX, TEXTS, CallField
from ledgermq.wire.statuses import status_of

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


CONTENT_TYPE = "application/problem+json"

STATUSES: dict[type[LedgerError], HTTPStatus] = {
    ConfigError: HTTPStatus.BAD_REQUEST,
    ProtocolError: HTTPStatus.BAD_REQUEST,
    MessageIllegalError: HTTPStatus.BAD_REQUEST,
    FilterIllegalError: HTTPStatus.BAD_REQUEST,
    NoPermissionError: HTTPStatus.FORBIDDEN,
    TopicUnknownError: HTTPStatus.NOT_FOUND,
    GroupUnknownError: HTTPStatus.NOT_FOUND,
    MessageUnknownError: HTTPStatus.NOT_FOUND,
    TransactionUnknownError: HTTPStatus.NOT_FOUND,
    TransactionEndedError: HTTPStatus.CONFLICT,
    GroupActiveError: HTTPStatus.CONFLICT,
    QuotaError: HTTPStatus.TOO_MANY_REQUESTS,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    OutcomeUnknownError: HTTPStatus.SERVICE_UNAVAILABLE,
    StorageError: HTTPStatus.SERVICE_UNAVAILABLE,
    CorruptLogError: HTTPStatus.INTERNAL_SERVER_ERROR,
    BodyUnreadableError: HTTPStatus.INTERNAL_SERVER_ERROR,
}

TRY_AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def http_status(error: LedgerError) -> HTTPStatus:
    """The status of an error, or of the nearest class that has one."""
    if isinstance(error, NotLeaderError):
        is_elsewhere = "leader" in error.details
        return HTTPStatus.MISDIRECTED_REQUEST if is_elsewhere else HTTPStatus.SERVICE_UNAVAILABLE
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem(error: LedgerError) -> Response:
    """The answer that tells of ``error``."""
    status = http_status(error)
    # What the broker told says more than the class.
    name = error.details.get("status") or status_of(error).name
    details = {key: value for key, value in error.details.items() if key != "status"}
    return problem_of(
        status,
        str(name),
        error.message,
        number=error.number,
        retriable=error.retriable,
        details=details,
    )


def problem_of(status: HTTPStatus, name: str, reason: str, **more: object) -> Response:
    """The answer that says ``reason`` in words."""
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "error": name,
        "detail": reason,
        **more,
    }
    headers = {"retry-after": "1"} if status in TRY_AGAIN else {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    content = json.dumps(document, default=str)
    return Response(content, status, headers, media_type=CONTENT_TYPE)
