"""The API: routes made of the rows of calls, and what becomes of one request."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from itertools import groupby

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.model.errors import LedgerError, NoPermissionError, ProtocolError
from ledgermq.observer.api.call_rows import CALLS, PREFIX, ApiCall
from ledgermq.observer.api.document import document, http_status, problem, problem_of
from ledgermq.observer.api.fields import Given, Values, checked, of_body, of_query
from ledgermq.observer.callers import ANYBODY, check_host
from ledgermq.observer.inquiries.inquirer import Sources
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.pages import Page, Pages

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/json"


class Api:
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
        self._document = json.dumps(document(CALLS)).encode()
        self.routes: Sequence[Route] = self._made()

    def _made(self) -> list[Route]:
        # One route a path: Starlette tells who asks by another method which ones there are.
        by_path = sorted(CALLS, key=lambda call: call.path)
        routes = [
            self._route(path, {call.method: call for call in calls})
            for path, calls in groupby(by_path, key=lambda call: call.path)
        ]
        # Longer ones first: what stands in braces would take what stands there as it is.
        routes.sort(key=lambda route: (route.path.count("{"), -len(route.path)))
        first = self._any("/openapi.json", self._openapi)
        return [first, *routes, self._any("/{path:path}", _nothing)]

    def _any(self, path: str, page: Page) -> Route:
        """A route of all methods: what is refused is told as a problem, whatever it is."""
        route = Route(PREFIX + path, self._guarded(page))
        route.methods = None
        return route

    def _route(self, path: str, calls: dict[str, ApiCall]) -> Route:
        async def answer(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            call = calls.get(method)
            if call is None:
                refusal = problem_of(
                    HTTPStatus.METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", f"no {method} there"
                )
                refusal.headers["allow"] = ", ".join(sorted(calls))
                return refusal
            return await self._answer(call, request)

        # A client whose quota it is may have a slash in its name.
        return self._any(path.replace("{owner}", "{owner:path}"), answer)

    def _guarded(self, page: Page) -> Page:
        async def answer(request: Request) -> Response:
            self._counters[ObserverCounter.API_CALLS] += 1
            caller = self._pages.caller(request)
            try:
                if caller is None:
                    self._counters[ObserverCounter.DENIED] += 1
                    return problem_of(
                        HTTPStatus.UNAUTHORIZED,
                        "TOKEN_NEEDED",
                        "a token is needed: Authorization: Bearer TOKEN",
                    )
                if caller == ANYBODY:
                    check_host(request)
                request.state.caller = caller
                return await page(request)
            except LedgerError as error:
                self._counters[ObserverCounter.DENIED] += isinstance(error, NoPermissionError)
                is_ours = http_status(error) >= HTTPStatus.INTERNAL_SERVER_ERROR
                self._counters[ObserverCounter.API_FAILED] += is_ours
                return problem(error)

        return answer

    async def _openapi(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise ProtocolError("the document is asked for by GET", method=request.method)
        return Response(self._document, media_type=CONTENT_TYPE)

    async def _answer(self, call: ApiCall, request: Request) -> Response:
        values: Values = {}
        if call.changes:
            # A form of a page from elsewhere can have no such type, and so is no call.
            sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if sent != CONTENT_TYPE:
                return problem_of(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "CONTENT_TYPE",
                    f"a change needs Content-Type: {CONTENT_TYPE}",
                )
            values.update(of_body(call.body, await request.body()))
        values.update(of_query(call.query, request.query_params.multi_items()))
        for field in call.path_fields:
            values[field.name] = checked(field, _text_of(request, field.name))
        inquiries = Inquiries(self._sources, request.state.caller)
        found = await call.answer(inquiries, Given(values))
        self._counters[ObserverCounter.API_CHANGES] += call.changes
        return Response(json.dumps(found), media_type=CONTENT_TYPE)


def _text_of(request: Request, name: str) -> str:
    text = request.path_params[name]
    if "\N{REPLACEMENT CHARACTER}" in text:
        raise ProtocolError("path is not UTF-8", name=name)
    return str(text)


async def _nothing(request: Request) -> Response:
    return problem_of(
        HTTPStatus.NOT_FOUND, "NO_SUCH_CALL", f"no such call: see {PREFIX}/openapi.json"
    )
