"""Registry: schemas over HTTP by the paths and words that clients of Confluent's registry know.

The address of it is ``http://HOST:PORT/registry``. What there is of that API: subjects, versions,
ids, a check, and rules; there are no contexts, modes, references and soft deletions.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
)
from ledgermq.model.names.schemas import DEFAULT_COMPATIBILITY, ID_MAX, Compatibility, SchemaType
from ledgermq.observer.api.document import http_status
from ledgermq.observer.api.fields import loaded
from ledgermq.observer.callers import ANYBODY, HttpCaller, check_host
from ledgermq.observer.inquiries.inquirer import Sources
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.pages import Pages
from ledgermq.verbs.schemas import (
    CheckSchema,
    DeleteSchema,
    RegisteredSchema,
    RegisterSchema,
    SchemaOfId,
    SetSchemaRule,
    ShowSchema,
)

PREFIX = "/registry"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TAKEN = frozenset((CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json"))
"""A form of a page from elsewhere can have none of these, and so changes nothing."""

SUBJECT_UNKNOWN, VERSION_UNKNOWN, SCHEMA_UNKNOWN = 40401, 40402, 40403
NOT_COMPATIBLE, INVALID = 409, 42201
"""Numbers of errors as clients know them."""

Answer = Callable[[Inquiries, Request], Awaitable[object]]


class SchemaRegistry:
    """Owned by the observer's loop.

    Attributes:
        routes: all that there are; to be put before those of other pages.
    """

    def __init__(self, sources: Sources, counters: Counts, pages: Pages) -> None:
        """Nothing is asked yet.

        Args:
            counters: the observer's.
            pages: which know who asks.
        """
        self._sources = sources
        self._counters = counters
        self._pages = pages
        paths: dict[str, dict[str, Answer]] = {
            "/schemas/types": {"GET": _types},
            "/schemas/ids/{id}": {"GET": _of_id},
            "/subjects": {"GET": _subjects},
            "/subjects/{subject}": {"POST": _look_up, "DELETE": _delete},
            "/subjects/{subject}/versions": {"GET": _versions, "POST": _register},
            "/subjects/{subject}/versions/{version}": {"GET": _version, "DELETE": _delete},
            "/compatibility/subjects/{subject}/versions/{version}": {"POST": _check},
            "/compatibility/subjects/{subject}/versions": {"POST": _check},
            "/config": {"GET": _default_rule},
            "/config/{subject}": {"GET": _rule, "PUT": _set_rule},
            "/{path:path}": {"GET": _nothing},
        }
        self.routes: Sequence[Route] = [self._route(path, paths[path]) for path in paths]

    def _route(self, path: str, answers: dict[str, Answer]) -> Route:
        async def page(request: Request) -> Response:
            answer = answers.get("GET" if request.method == "HEAD" else request.method)
            self._counters[ObserverCounter.API_CALLS] += 1
            if answer is None:
                return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, 405, f"no {request.method} there")
            try:
                return await self._answer(answer, request)
            except _RegistryError as error:
                return _refusal(error.status, error.code, error.reason)
            except LedgerError as error:
                # Clients that know of several nodes ask the next one then.
                is_elsewhere = isinstance(error, NotLeaderError)
                status = HTTPStatus.SERVICE_UNAVAILABLE if is_elsewhere else http_status(error)
                self._counters[ObserverCounter.DENIED] += isinstance(error, NoPermissionError)
                return _refusal(status, status.value, str(error))

        route = Route(PREFIX + path, page)
        route.methods = None
        return route

    async def _answer(self, answer: Answer, request: Request) -> Response:
        caller = self._caller(request)
        if caller is None:
            self._counters[ObserverCounter.DENIED] += 1
            refused = _refusal(HTTPStatus.UNAUTHORIZED, 401, "a token is needed")
            refused.headers["www-authenticate"] = 'Bearer, Basic realm="ledgermq"'
            return refused
        if caller == ANYBODY:
            check_host(request)
        sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method in ("POST", "PUT") and sent not in _TAKEN:
            return _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, 415, f"Content-Type: {CONTENT_TYPE}")
        found = await answer(Inquiries(self._sources, caller), request)
        self._counters[ObserverCounter.API_CHANGES] += request.method not in ("GET", "HEAD")
        return Response(json.dumps(found), media_type=CONTENT_TYPE)

    def _caller(self, request: Request) -> HttpCaller | None:
        """Who asks; a token may stand where a password does: many tools know nothing else."""
        tokens = self._pages.tokens
        scheme, _, told = request.headers.get("authorization", "").partition(" ")
        if tokens is None or scheme.lower() != "basic":
            return self._pages.caller(request)
        try:
            password = base64.b64decode(told, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return None
        return tokens.caller_with(password.decode("latin-1"))


class _RegistryError(Exception):
    """What a client is told by a number that it knows."""

    def __init__(self, status: HTTPStatus, code: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.reason = reason


def _refusal(status: HTTPStatus, code: int, reason: str) -> Response:
    content = json.dumps({"error_code": code, "message": reason})
    return Response(content, status, media_type=CONTENT_TYPE)


async def _nothing(_ask: Inquiries, _request: Request) -> object:
    """Clients ask for what newer registries have, and do without it."""
    raise _RegistryError(HTTPStatus.NOT_FOUND, HTTPStatus.NOT_FOUND.value, "no such path")


async def _types(_ask: Inquiries, _request: Request) -> object:
    return [*SchemaType]


async def _of_id(ask: Inquiries, request: Request) -> object:
    identity = _number(request.path_params["id"])
    try:
        found = await ask.told(SchemaOfId(identity))
    except ConfigError as error:
        raise _RegistryError(HTTPStatus.NOT_FOUND, SCHEMA_UNKNOWN, str(error)) from None
    return _text_of(found)


async def _subjects(ask: Inquiries, _request: Request) -> object:
    return [row.subject for row in await ask.subjects() if row.versions]


async def _versions(ask: Inquiries, request: Request) -> object:
    row, _ = await _shown(ask, request.path_params["subject"], None)
    return row


async def _version(ask: Inquiries, request: Request) -> object:
    told = request.path_params["version"]
    number = None if told in ("latest", "-1") else _number(told)
    _, found = await _shown(ask, request.path_params["subject"], number)
    told = {"subject": found.subject, "version": found.version, "id": found.id}
    return {**told, **_text_of(found)}


async def _register(ask: Inquiries, request: Request) -> object:
    kind, text = await _sent(request)
    subject = request.path_params["subject"]
    try:
        numbers = await ask.told(RegisterSchema(subject, kind, text))
    except ConfigError as error:
        if await _conflicts(ask, subject, kind, text):
            raise _RegistryError(HTTPStatus.CONFLICT, NOT_COMPATIBLE, str(error)) from None
        raise _RegistryError(HTTPStatus.UNPROCESSABLE_ENTITY, INVALID, str(error)) from None
    return {"id": numbers.id, "version": numbers.version, "schemaType": kind, "schema": text}


async def _conflicts(ask: Inquiries, subject: str, kind: str, text: str) -> bool:
    """Whether a refused schema is one, and only not compatible."""
    try:
        found = await ask.told(CheckSchema(subject, kind, text))
        return bool(found)
    except ConfigError:
        return False


async def _look_up(ask: Inquiries, request: Request) -> object:
    """The version that has a text, newest first."""
    kind, text = await _sent(request)
    subject = request.path_params["subject"]
    numbers, found = await _shown(ask, subject, None)
    for number in reversed(numbers):
        if number != found.version:
            _, found = await _shown(ask, subject, number)
        if (found.type, found.schema) == (kind, text):
            numbered = {"subject": subject, "version": found.version, "id": found.id}
            return {**numbered, **_text_of(found)}
    raise _RegistryError(HTTPStatus.NOT_FOUND, SCHEMA_UNKNOWN, "no version has this schema")


async def _check(ask: Inquiries, request: Request) -> object:
    kind, text = await _sent(request)
    found = await ask.told(CheckSchema(request.path_params["subject"], kind, text))
    messages = [f"version {one.version}: {one.place}: {one.reason}" for one in found]
    told = {"messages": messages} if request.query_params.get("verbose") == "true" else {}
    return {"is_compatible": not found, **told}


async def _delete(ask: Inquiries, request: Request) -> object:
    subject = request.path_params["subject"]
    told = request.path_params.get("version")
    numbers, latest = await _shown(ask, subject, None)
    if told is None:
        await ask.told(DeleteSchema(subject))
        return numbers
    number = latest.version if told in ("latest", "-1") else _number(told)
    if number not in numbers:
        raise _RegistryError(HTTPStatus.NOT_FOUND, VERSION_UNKNOWN, f"no version {number}")
    await ask.told(DeleteSchema(subject, number))
    return number


async def _default_rule(_ask: Inquiries, _request: Request) -> object:
    return {"compatibilityLevel": DEFAULT_COMPATIBILITY.value}


async def _rule(ask: Inquiries, request: Request) -> object:
    try:
        row, _ = await ask.told(ShowSchema(request.path_params["subject"]))
    except ConfigError as error:
        raise _RegistryError(HTTPStatus.NOT_FOUND, SUBJECT_UNKNOWN, str(error)) from None
    return {"compatibilityLevel": row.compatibility}


async def _set_rule(ask: Inquiries, request: Request) -> object:
    rule = (await _json_of(request)).get("compatibility")
    if rule not in [*Compatibility]:
        allowed = ", ".join(Compatibility)
        raise _RegistryError(HTTPStatus.UNPROCESSABLE_ENTITY, 42203, f"allowed: {allowed}")
    await ask.told(SetSchemaRule(request.path_params["subject"], str(rule), ahead=True))
    return {"compatibility": rule}


async def _shown(
    ask: Inquiries, subject: str, number: int | None
) -> tuple[list[int], RegisteredSchema]:
    try:
        row, found = await ask.told(ShowSchema(subject, number))
    except ConfigError as error:
        if number is not None:
            await _shown(ask, subject, None)
            raise _RegistryError(HTTPStatus.NOT_FOUND, VERSION_UNKNOWN, str(error)) from None
        raise _RegistryError(HTTPStatus.NOT_FOUND, SUBJECT_UNKNOWN, str(error)) from None
    if not found.version:
        raise _RegistryError(HTTPStatus.NOT_FOUND, SUBJECT_UNKNOWN, "subject has no version")
    return [*row.versions], found


def _text_of(found: RegisteredSchema) -> dict[str, object]:
    """The text, and the type where it is not Avro: which clients take it for otherwise."""
    kind = {} if found.type == SchemaType.AVRO else {"schemaType": found.type}
    return {**kind, "schema": found.schema}


async def _sent(request: Request) -> tuple[str, str]:
    """Type and text of the schema that a request has."""
    fields = await _json_of(request)
    kind, text = fields.get("schemaType") or SchemaType.AVRO.value, fields.get("schema")
    if kind not in [*SchemaType] or not isinstance(text, str) or not text:
        reason = f"schema is no text, or its type none of {', '.join(SchemaType)}"
        raise _RegistryError(HTTPStatus.UNPROCESSABLE_ENTITY, INVALID, reason)
    if fields.get("references"):
        reason = "schemas with references are not taken: put all into one"
        raise _RegistryError(HTTPStatus.UNPROCESSABLE_ENTITY, INVALID, reason)
    return str(kind), text


async def _json_of(request: Request) -> dict[str, object]:
    try:
        found = loaded(await request.body())
    except (ValueError, RecursionError):
        raise ProtocolError("body is no JSON") from None
    if not isinstance(found, dict):
        raise ProtocolError("body is no JSON object")
    return found


def _number(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 0 < int(text) <= ID_MAX:
        return int(text)
    raise _RegistryError(
        HTTPStatus.UNPROCESSABLE_ENTITY, 42202, f"not a number from 1 to {ID_MAX}, nor latest"
    )
