"""Relay of requests from a follower to the leader: changes, sends, offsets and locks of consumers.

Each kind has a connection of its own, so that none holds up another; of what waits for the
leader each owner of requests has at most a share. What came over TLS goes on over TLS, or not at
all: by connections of its own, to a leader whose certificate has been signed by an authority of the
members.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum

from ledgermq.gateway.requests import Asked, ReplyLater, replying
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.server_links import (
    SERVER_WAITING_MAX,
    Authorities,
    ServerLink,
    ServerLinks,
    is_address,
)
from ledgermq.model.errors import BusyError, LedgerError, TimedOutError
from ledgermq.remoting.command import Command

logger = logging.getLogger(__name__)

TIMEOUT_MS = 3_000

SHARE_REQUESTS = SERVER_WAITING_MAX // 4
SHARE_BYTES = 8 * 1024 * 1024
"""Share of one owner (a user, or the clients of a host) in what waits for the leader: requests, and
bytes of their bodies; one more request is let over the bytes."""

RELAYED_KEY = "ledgermqRelayed"
"""A field of requests that another node has handed on: they are not handed on again. It is not
signed, and gives no right."""


class Relayed(Enum):
    """What is handed on: each kind by a connection of its own."""

    CHANGES = "changes of administrators"
    SENDS = "sends"
    CONSUMERS = "offsets and locks of consumers"


class LeaderRelay:
    """Hands a request on as it has come: the leader checks the signature itself."""

    def __init__(
        self,
        links: ServerLinks,
        addresses: GroupAddresses,
        reply: ReplyLater,
        kind: Relayed,
        *,
        authorities: Authorities | None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            authorities: of the certificates of the group's members; None: what came over TLS is
                not handed on.
        """
        self._authorities = authorities
        self._trouble = ""
        self._links = links
        self._addresses = addresses
        self._reply = reply
        self._kind = kind
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def hand_on(self, asked: Asked) -> bool:
        """Have the leader answer; false when that cannot be, and nothing was done.

        It cannot where the owner has a whole share of requests under way already, and where the
        client has TLS and no authorities are known by which the leader could be told.

        Raises:
            ProtocolError: no node would take it.
        """
        is_sealed = asked.connection.is_sealed
        if is_sealed and self._authorities is None:
            return False
        address = self._addresses.of_leader
        if RELAYED_KEY in asked.command.fields:
            return False
        if address is None or self._addresses.leads or not is_address(address):
            return False
        owner, size = asked.owner, len(asked.command.body)
        if self._requests[owner] >= SHARE_REQUESTS or self._bytes[owner] >= SHARE_BYTES:
            return False
        command = asked.command
        fields = {**command.fields, RELAYED_KEY: self._addresses.self_id}
        relayed = Command(
            command.code,
            fields=fields,
            body=bytes(command.body),
            language=command.language,
            version=command.version,
        )

        def made(told: Command) -> Command:
            return command.reply(
                told.code, fields=told.fields, body=bytes(told.body), remark=told.remark
            )

        take = replying(self._reply, asked, made)

        def taken(outcome: Command | LedgerError) -> None:
            self._count(owner, -1, -size)
            if is_sealed:
                self._note(outcome)
            take(outcome)

        self._count(owner, 1, size)
        link = self._link_to(address, is_sealed=is_sealed)
        try:
            link.ask(relayed, now_ms=asked.now_ms, timeout_ms=TIMEOUT_MS, take=taken)
        except LedgerError as error:
            self._count(owner, -1, -size)
            if not isinstance(error, BusyError | TimedOutError):
                raise
            if is_sealed:
                self._note(error)
            return False
        return True

    def _link_to(self, address: str, *, is_sealed: bool) -> ServerLink:
        if is_sealed:
            purpose = f"{self._kind.value}, over TLS"
            return self._links.to(address, purpose, authorities=self._authorities)
        return self._links.to(address, self._kind.value)

    def _note(self, outcome: Command | LedgerError) -> None:
        """Tell the operator once why the leader is not reached over TLS."""
        trouble = str(outcome) if isinstance(outcome, LedgerError) else ""
        if trouble and trouble != self._trouble:
            logger.warning(
                "what came over TLS is not handed on: leader=%s error=%s setting=%s",
                self._addresses.of_leader,
                trouble,
                self._authorities and self._authorities.setting,
            )
        self._trouble = trouble

    def _count(self, owner: str, requests: int, size: int) -> None:
        """Change what an owner has under way; one who has nothing is forgotten."""
        self._requests[owner] += requests
        self._bytes[owner] += size
        if not self._requests[owner]:
            del self._requests[owner], self._bytes[owner]
