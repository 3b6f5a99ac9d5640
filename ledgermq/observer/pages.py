"""Pages over HTTP: which there are, who may see them, and what they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.model.errors import LedgerError, NoPermissionError
from ledgermq.observer.callers import ANYBODY, HttpCaller, account_of, check_host
from ledgermq.observer.health_source import HealthSource, silence_text
from ledgermq.observer.tokens import Tokens
from ledgermq.process.node_status import Health

WhyNot = Callable[[Health], str]
"""Says why a question is answered with no, in words; empty for yes."""

Page = Callable[[Request], Awaitable[Response]]


class Pages:
    """The ASGI application, and what its pages are made of.

    Attributes:
        tokens: of those who may see more than health; None: everybody who reaches the port.
    """

    def __init__(self, source: HealthSource, counters: Counts, tokens: Tokens | None) -> None:
        self.tokens = tokens
        self._source = source
        self._counters = counters

    def app(self, routes: Sequence[BaseRoute] = (), **pages: Page) -> Starlette:
        """The application.

        Args:
            routes: more of them; who may not see them is their own business (``guarded``).
            pages: more of them, guarded, by their path without a slash.
        """
        return Starlette(
            routes=[
                Route("/health/live", self._live),
                Route("/health/ready", self._ready),
                Route("/health/leader", self._leader),
                *(Route(f"/{path}", self.guarded(page)) for path, page in pages.items()),
                *routes,
                # Who may not look does not learn what there is.
                Route("/{path:path}", self.guarded(_nothing)),
            ]
        )

    def caller(self, request: Request) -> HttpCaller | None:
        """Who asks; None: nobody who is known, where tokens are asked for.

        Whoever is at the unix socket the kernel knows; of tcp it is whose token comes along, or
        where there are none ``ANYBODY``.
        """
        account = account_of(request)
        if account is not None:
            return account
        if self.tokens is None:
            return ANYBODY
        return self.tokens.caller_of(request.headers.get("authorization", ""))

    def guarded(self, page: Page) -> Page:
        """``page`` for those alone who are known, and who ask for this machine by an address where
        that is all that admits them; who it is ``caller_of`` tells it.
        """

        async def answer(request: Request) -> Response:
            caller = self.caller(request)
            if caller is not None:
                try:
                    if caller == ANYBODY:
                        check_host(request)
                except NoPermissionError as error:
                    self._counters[ObserverCounter.DENIED] += 1
                    return PlainTextResponse(f"{error}\n", HTTPStatus.FORBIDDEN)
                request.state.caller = caller
                return await page(request)
            self._counters[ObserverCounter.DENIED] += 1
            return PlainTextResponse(
                "a token is needed: Authorization: Bearer TOKEN\n",
                HTTPStatus.UNAUTHORIZED,
                {"www-authenticate": "Bearer"},
            )

        return answer

    async def _live(self, request: Request) -> Response:
        return await self._health(request, lambda _health: "")

    async def _ready(self, request: Request) -> Response:
        return await self._health(request, lambda health: health["why_not_ready"])

    async def _leader(self, request: Request) -> Response:
        return await self._health(request, lambda health: health["why_not_leading"])

    async def _health(self, request: Request, why_not: WhyNot) -> Response:
        try:
            health = await self._source.health()
        except LedgerError as error:
            return PlainTextResponse(f"{silence_text(error)}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        reason = why_not(health)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"reason": reason, **health}, status)
        return PlainTextResponse(f"{reason or health['state']}\n", status)


async def _nothing(_request: Request) -> Response:
    return PlainTextResponse("no such page\n", HTTPStatus.NOT_FOUND)
