"""Callers of HTTP: who asks, by a token, by the account at the other end, or by the address.

What a caller may do is not decided here: whatever is asked for a caller is asked of the broker in a
session that speaks for it (``ledgermq.wire.session.SpokenFor``), and has its rights there.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, cast

from starlette.requests import Request

from ledgermq.model.errors import NoPermissionError
from ledgermq.wire.session import ACCOUNT, ADMIN, LOOKS, SpokenFor

PEER = "ledgermq.peer"
"""Key in the scope of a request that came over the unix socket: account and group at its other
end."""


class HttpCaller(NamedTuple):
    """Who asks; the same value for the same caller, so that it can be a key.

    Attributes:
        kind: ``look`` (names and numbers), ``user`` (what that user of the node's may), ``admin``
            (everything), or ``account``: what the account would be at the node's own unix sockets.
        name: the token's; ``uid N`` of an account; ``anybody`` where no token is asked for.
        user: of kind ``user``.
        uid, gid: of kind ``account``.
        copies: it is a mirror: beside looking it copies the whole log, and says how far it is.
    """

    kind: str
    name: str
    user: str = ""
    uid: int = 0
    gid: int = 0
    copies: bool = False

    @property
    def only_looks(self) -> bool:
        """Whether it is of no use to offer it a message, or a change."""
        return self.kind == LOOKS

    @property
    def is_admin(self) -> bool:
        """Whether it has the right of an admin's token. An account, or a user, may be an admin
        besides: the broker knows.
        """
        return self.kind == ADMIN

    def spoken_for(self) -> SpokenFor:
        """The caller as a session's HELLO names it."""
        return SpokenFor(self.kind, self.name, self.user, self.uid, self.gid)


ANYBODY = HttpCaller(LOOKS, "anybody")
"""Where no token is asked for: whoever reaches the address sees names and numbers."""


def caller_of(request: Request) -> HttpCaller:
    """Who asks for a page that is guarded (``Pages.guarded``)."""
    return cast("HttpCaller", request.state.caller)


def account_of(request: Request) -> HttpCaller | None:
    """Who is at the other end of the unix socket; None of what came by tcp."""
    peer = request.scope.get(PEER)
    if peer is None:
        return None
    uid, gid = peer
    return HttpCaller(ACCOUNT, f"uid {uid}", uid=uid, gid=gid)


def check_host(request: Request) -> None:
    """Refuse a browser that was led to this address under another machine's name.

    Where no token is asked for, a page from anywhere could have its visitor's browser ask here, and
    read the answer, if its name were made to mean this machine (DNS rebinding).

    Raises:
        NoPermissionError: the request names a host that is neither an address nor ``localhost``.
    """
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        if name.lower() != "localhost":
            raise NoPermissionError(
                "asked for under a name: without tokens the node is asked for by its address",
                host=host[:64],
                setting="http.tokens_file",
            ) from None
