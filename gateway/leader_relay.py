"""Relay of requests from a follower to the leader: those of administrators, and sends."""

from __future__ import annotations

from ledgermq.gateway.requests import Asked, ReplyLater, replying
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.server_links import ServerLinks, is_address
from ledgermq.model.errors import BusyError, TimedOutError
from ledgermq.remoting.command import Command

TIMEOUT_MS = 3_000

RELAYED_KEY = "ledgermqRelayed"
"""A field of requests that another node has handed on: they are not handed on again. It is not
signed, and gives no right."""


class LeaderRelay:
    """Hands a request on as it has come: the leader checks the signature itself."""

    def __init__(self, links: ServerLinks, addresses: GroupAddresses, reply: ReplyLater) -> None:
        self._links = links
        self._addresses = addresses
        self._reply = reply

    def hand_on(self, asked: Asked) -> bool:
        """Have the leader answer; false when that cannot be, and nothing was done."""
        address = self._addresses.of_leader
        if RELAYED_KEY in asked.command.fields:
            return False
        if address is None or self._addresses.leads or not is_address(address):
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

        link, take = self._links.to(address), replying(self._reply, asked, made)
        try:
            link.ask(relayed, now_ms=asked.now_ms, timeout_ms=TIMEOUT_MS, take=take)
        except (BusyError, TimedOutError):
            return False
        return True
