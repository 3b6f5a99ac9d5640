"""Relay of administrators' requests from a follower to the leader."""

from __future__ import annotations

from ledgermq.gateway.addresses import GroupAddresses
from ledgermq.gateway.changes import RELAYED_KEY, Reply
from ledgermq.gateway.refusals import refusal
from ledgermq.gateway.requests import Asked
from ledgermq.gateway.route_codes import RouteCodes
from ledgermq.gateway.server_links import ServerLinks, is_address
from ledgermq.model.errors import BusyError, LedgerError, TimedOutError
from ledgermq.remoting.command import Command

TIMEOUT_MS = 3_000


class LeaderRelay:
    """Hands a request on as it has come: the leader checks the signature itself."""

    def __init__(
        self, links: ServerLinks, routes: RouteCodes, addresses: GroupAddresses, reply: Reply
    ) -> None:
        self._links = links
        self._routes = routes
        self._addresses = addresses
        self._reply = reply

    def hand_on(self, asked: Asked) -> bool:
        """Have the leader answer; false when that cannot be, and nothing was done."""
        leader = self._routes.leader
        address = self._routes.leader_address
        if RELAYED_KEY in asked.command.fields:
            return False
        if address is None or leader == self._addresses.self_id or not is_address(address):
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

        def take(outcome: Command | LedgerError) -> None:
            if isinstance(outcome, LedgerError):
                self._reply(asked, refusal(command, outcome))
                return
            reply = command.reply(
                outcome.code,
                fields=outcome.fields,
                body=bytes(outcome.body),
                remark=outcome.remark,
            )
            self._reply(asked, reply)

        link = self._links.to(address)
        try:
            link.ask(relayed, now_ms=asked.now_ms, timeout_ms=TIMEOUT_MS, take=take)
        except (BusyError, TimedOutError):
            return False
        return True
