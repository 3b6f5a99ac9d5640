"""Rights of those who sign requests, as RocketMQ's clients do: by an access key, and an address.

A request with an access key must have the signature that the user's secret makes, unless it comes
from one of the user's addresses; one without a key is that of the user to whom its address belongs.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from ledgermq.model.config.settings import AccessSection
from ledgermq.model.errors import ConfigError, NoPermissionError
from ledgermq.rules.access.access import User, UserTable
from ledgermq.rules.access.remote_address import matches
from ledgermq.sessions.client_rights import AccessGate, ClientRights, Peer

logger = logging.getLogger(__name__)

Open = Callable[[str, str], str]
"""A user's secret, from its name and how it stands in the table."""

IsSigned = Callable[[str], bool]
"""Whether a request has the signature that a secret makes."""

REMEMBERED_MAX = 10_000
"""Users at addresses, with what they were let do."""


class SignedRights:
    """Owned by a process; the same for all its connections."""

    def __init__(self, settings: AccessSection, users: UserTable, open_secret: Open) -> None:
        """Rules that hold until there are other settings."""
        self._open_secret = open_secret
        self.gate = AccessGate(settings, users)
        self._reported: set[str] = set()
        self._known: OrderedDict[tuple[str, str], ClientRights] = OrderedDict()

    def signer(self, host: str, key: str, is_signed: IsSigned) -> str:
        """The user whose access key a request from ``host`` has; empty when it has none.

        Raises:
            NoPermissionError: there is no such user, or the signature is another one.
        """
        if not key:
            return ""
        user = self.gate.users.get(key)
        if user is None:
            raise NoPermissionError("access key is none of the node's users", key=key[:127])
        if matches(user.addresses, host):
            return key
        secret = self._secret_of(user)
        if not secret or not is_signed(secret):
            raise NoPermissionError("signature of the request is wrong", user=key, peer=host)
        return key

    def rights(self, host: str, signed_by: str) -> ClientRights:
        """What the signer of a request from ``host`` may do; without one, whoever comes from
        there.
        """
        key = (host, signed_by)
        rights = self._known.get(key)
        if rights is None:
            while len(self._known) >= REMEMBERED_MAX:
                self._known.popitem(last=False)
            rights = self._known[key] = ClientRights(self.gate, Peer(host, signed_by=signed_by))
        else:
            self._known.move_to_end(key)
        return rights

    def _secret_of(self, user: User) -> str:
        """The secret with which a user signs.

        Raises:
            NoPermissionError: it was sealed with a key that this node does not have.
        """
        try:
            return self._open_secret(user.name, user.secret)
        except ConfigError as error:
            if user.secret not in self._reported:
                self._reported.add(user.secret)
                logger.error("signatures of a user cannot be checked: %s", error)
            raise NoPermissionError(
                "signature cannot be checked by this node: its log says why", user=user.name
            ) from error
