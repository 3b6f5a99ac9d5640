"""Codes of RocketMQ's consumers, as one part of the port."""

from __future__ import annotations

from ledgermq.gateway.client_requests import ClientRequests
from ledgermq.gateway.client_table import ClientTable
from ledgermq.gateway.lock_codes import LockCodes
from ledgermq.gateway.lookup_codes import LookupCodes
from ledgermq.gateway.member_codes import MemberCodes
from ledgermq.gateway.offset_codes import OffsetCodes
from ledgermq.gateway.offset_commits import OffsetCommits
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.port_quotas import PortQuotas
from ledgermq.gateway.pull_checks import PullChecks
from ledgermq.gateway.pull_codes import PullCodes
from ledgermq.gateway.remoting_sockets import Connection
from ledgermq.gateway.requests import Codes, ReplyLater
from ledgermq.gateway.return_codes import ReturnCodes
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.settings import Settings
from ledgermq.process.environment import Environment
from ledgermq.remoting.codes import RequestCode
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.call_service import CallService
from ledgermq.serving.pull_answers import Answer
from ledgermq.serving.pull_service import PullService
from ledgermq.serving.query_service import QueryService
from ledgermq.wire.session import Standing


class ConsumeCodes:
    """Owned by the port.

    Attributes:
        codes: who answers which request.
        short: those of them that concern nobody else, unless a group is to be made.
    """

    def __init__(
        self,
        around: Environment,
        tables: BrokerTables,
        services: tuple[PullService, CallService, QueryService],
        *,
        clients: ClientTable,
        requests: ClientRequests,
        calls: PortCalls,
        reply: ReplyLater,
        quotas: PortQuotas,
    ) -> None:
        pulls, service, queries = services
        self._counts = around.page.counters(Role.BROKER)
        self._commits = OffsetCommits(calls, tables)
        checks = PullChecks(clients, tables, around.settings)
        self._quotas = quotas
        self._pulls = PullCodes(pulls, checks, self._commits, self._counts, reply, quotas=quotas)
        offsets = OffsetCodes(service.known, self._commits, reply)
        self._clients = clients
        self._members = MemberCodes(
            clients,
            requests,
            calls,
            tables,
            others=service.others,
            reply=reply,
            bytes_max=around.settings.limits.members_bytes,
        )
        self.short = frozenset({*self._pulls.codes, RequestCode.HEART_BEAT})
        parts = (
            self._members,
            self._pulls,
            offsets,
            LockCodes(calls, reply),
            ReturnCodes(calls, tables, reply),
            LookupCodes(queries, checks, quotas),
        )
        self.codes: Codes = {
            code: handler for part in parts for code, handler in part.codes.items()
        }

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of limits count from now on."""
        self._members.bytes_max = settings.limits.members_bytes

    def tell_standing(self, standing: Standing) -> None:
        """Another node may lead now."""
        self._commits.tell_standing(standing)

    def note_offset(self, group: str, topic: str, queue_id: int, offset: int, owner: str) -> None:
        """A consumer of a port process has committed with a pull."""
        self._commits.note(group, topic, queue_id, offset, owner=owner)

    def take_answer(self, answer: Answer) -> None:
        """Answer a pull that was held."""
        self._pulls.take_answer(answer)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self._members.forget(connection)
        self._pulls.forget(connection)

    def turn(self, now_ms: int) -> None:
        """Let go of silent clients, and send offsets that were gathered, if it is time to."""
        self._members.turn(now_ms)
        self._commits.turn(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do; ``None`` when never."""
        deadlines = (self._clients.next_expiry_ms(), self._commits.next_deadline_ms())
        return min((one for one in deadlines if one is not None), default=None)

    def close(self) -> None:
        """Give back what was lent."""
        self._counts.release()
