"""Sign-in: a visit for a token, or for a user's name and secret; who asks for a page."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ledgermq.hosts.address_share import share_of
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import NoPermissionError, QuotaError
from ledgermq.observer.callers import ANYBODY, HttpCaller, account_of, check_host
from ledgermq.observer.console.visits import LIFETIME_S, Attempts, Visit, Visits, proof_of
from ledgermq.observer.pages import Pages
from ledgermq.wire.session import ANY_USER

logger = logging.getLogger(__name__)

SecretOf = Callable[[str], Awaitable[str]]
"""The secret of a user of the node's; empty: there is none of that name, or it has none."""

_NOBODY: Final = "nobody has this secret, and comparing with it takes as long as with any other"


class SignIn:
    """Who asks for a page of the console.

    A visit that was signed in is its caller; else a token of the request, the account at the unix
    socket, or where no tokens are asked for anybody, who may look.
    """

    def __init__(
        self, settings: Settings, pages: Pages, secret_of: SecretOf, *, has_tls: bool
    ) -> None:
        self.visits = Visits()
        self._pages = pages
        self._secret_of = secret_of
        self._attempts = Attempts()
        self._has_tls = has_tls
        node = f"{settings.node.broker_name}\0{settings.node.self_id}\0{settings.listen.http}"
        # Of its own for each node: browsers keep one cookie for all ports of a host.
        mark = hashlib.sha256(node.encode()).hexdigest()[:8]
        self.cookie = f"{'__Host-' if has_tls else ''}ledgermq-{mark}"

    async def find(self, request: Request) -> tuple[HttpCaller | None, Visit | None]:
        """Who asks, and its visit.

        Raises:
            NoPermissionError: a browser was led here under another machine's name.
        LedgerError: it cannot be told now whether a user's secret is still the same.
        """
        visit = self.visits.find(request.cookies.get(self.cookie, ""))
        if visit is not None and visit.is_signed_in:
            if await self._is_current(visit):
                return visit.caller, visit
            self.visits.end(request.cookies[self.cookie])
        caller = self._pages.caller(request)
        if caller is None:
            return None, None
        if not self.needs_token or account_of(request) is not None:
            # Its address, or its account, speaks for a browser: no other site may borrow that.
            check_host(request)
        if visit is not None and visit.caller == caller:
            return caller, visit
        return caller, None

    def begin(self, caller: HttpCaller, shown: str, *, is_signed_in: bool) -> tuple[str, Visit]:
        """A visit of ``caller``, who has shown a token or a secret, or nothing."""
        return self.visits.begin(caller, proof_of(shown), is_signed_in=is_signed_in)

    async def sign_in(self, request: Request, name: str, shown: str) -> str:
        """The id of a new visit for a token, or with ``name`` for a user's secret.

        Raises:
            NoPermissionError: it is nobody's.
            QuotaError: too many have failed, from there or under that name.
        """
        client = request.client
        account = account_of(request)
        where = account.name if account else share_of(client.host) if client else "unknown"
        wait_s, attempt = self._attempts.begin(where, name)
        if wait_s:
            raise QuotaError("too many attempts to sign in have failed", wait_s=wait_s)
        caller = await self._caller_with(name, shown)
        if caller is None:
            logger.warning("sign-in refused: user=%r from %s", name[:64], where)
            raise NoPermissionError("nobody is known by that")
        self._attempts.succeeded(where, name, attempt)
        logger.info("signed in: %s from %s", caller.name, where)
        return self.begin(caller, shown, is_signed_in=True)[0]

    def keep(self, response: Response, visit_id: str) -> None:
        """Have the browser keep a visit; empty: forget it."""
        if visit_id:
            response.set_cookie(
                self.cookie,
                visit_id,
                max_age=LIFETIME_S,
                httponly=True,
                samesite="strict",
                secure=self._has_tls,
            )
        else:
            response.delete_cookie(
                self.cookie, httponly=True, samesite="strict", secure=self._has_tls
            )

    @property
    def needs_token(self) -> bool:
        """Whether nobody sees a page without having signed in."""
        return self._pages.tokens is not None

    async def _caller_with(self, name: str, shown: str) -> HttpCaller | None:
        if not name:
            tokens = self._pages.tokens
            return None if tokens is None else tokens.caller_with(shown)
        secret = await self._secret_of(name)
        is_right = hmac.compare_digest(proof_of(secret or _NOBODY), proof_of(shown))
        return HttpCaller(ANY_USER, name, name) if is_right and secret else None

    async def _is_current(self, visit: Visit) -> bool:
        """Whether what was shown still opens: the token is in the file, the secret is theirs."""
        caller = visit.caller
        tokens = self._pages.tokens
        if tokens is not None and tokens.caller_of_digest(visit.proof) == caller:
            return True
        if caller.kind != ANY_USER or caller.name != caller.user:
            return False
        secret = await self._secret_of(caller.user)
        return bool(secret) and hmac.compare_digest(proof_of(secret), visit.proof)


def is_from_here(request: Request) -> bool:
    """Whether the browser says that a form was sent by a page of this origin; true for programs,
    which say nothing.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")


def is_anybody(caller: HttpCaller) -> bool:
    """Whether only its address admits it."""
    return caller == ANYBODY
