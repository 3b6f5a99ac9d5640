"""Consumers' sessions at the broker: requests in, answers out.

A client that does not read what it asked for is refused more, and then loses its session; it never
makes anybody else wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ledgermq.broker.call_rights import Act, audit, check_call
from ledgermq.broker.callers import Caller, Client, OwnClient
from ledgermq.broker.calls import anybody
from ledgermq.broker.pulls.consumers import ClientServices
from ledgermq.broker.pulls.pull_answers import Answer
from ledgermq.broker.state.state_requests import Encoded, Reply
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    CorruptLogError,
    LedgerError,
    NoPermissionError,
    ProtocolError,
    StorageError,
)
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.model.rights import Right
from ledgermq.process.node import Surroundings
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.messages.rate_limits import RateLimits
from ledgermq.rules.tables.quotas import QuotaTable
from ledgermq.sessions.client_rights import AccessGate, owner_of, rights_of
from ledgermq.sessions.client_socket import is_reserved, open_client_socket
from ledgermq.sessions.leadership.standing import welcome_of
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.sessions.session_server import Session, SessionServer
from ledgermq.sessions.socket_watch import REPORTED_MAX
from ledgermq.verbs.shares import RUNS, ReceiveShared
from ledgermq.wire.header import Header, Kind, decode_header, encode_header
from ledgermq.wire.pull_frame import decode_pull
from ledgermq.wire.query_frame import decode_query
from ledgermq.wire.session import (
    BODY_SIZE_MAX,
    Standing,
    decode_call,
    decode_hello,
    encode_result,
    hello_group,
    hello_speaks_for,
    hello_version,
)

logger = logging.getLogger(__name__)

REQUESTS_PER_TURN_MAX = 256
BYTES_PER_TURN_MAX = 32 * 1024 * 1024
TURN_NS = 50_000_000
"""A request costs what its sender likes: after so long the process's other work has its turn."""


TRACKED_SIZE_MIN = 16 * 1024
"""Smaller answers are copied by the socket; larger ones are held by it, and counted."""

ANSWERS_QUEUED_MAX = 1_024
"""Messages that wait for one client to read: with ``TRACKED_SIZE_MIN``, 16 MiB of small ones."""

ACTS_MAX = 10_000
"""Admin acts without an outcome; of more only the call is told."""


class Tracker(Protocol):
    """Tells when ZeroMQ is done with a message; ``zmq.MessageTracker`` does."""

    @property
    def done(self) -> bool:
        """Whether its bytes have left, or were given up."""
        ...


class _Answer(NamedTuple):
    tracker: Tracker
    size: int


class AnswersOnWay:
    """Limits of unread answers: of each consumer, and of all together.

    A consumer that does not read its socket holds what ZeroMQ keeps for it, up to its window and
    one answer. It is refused more until it reads, and nobody waits for it. When all together hold
    more than their bound, only those are served who have read all that they were given.

    Invariant: ``size`` is the sum of what is in ``_answers``, gone clients' included.
    """

    def __init__(self, *, client_max: int, total_max: int) -> None:
        """Nothing is on its way.

        Args:
            client_max, total_max: bytes, of one client and of all.
        """
        self.size = 0
        self._client_max = client_max
        self._total_max = total_max
        self._answers: dict[OwnClient, deque[_Answer]] = {}
        self._sizes: dict[OwnClient, int] = {}

    def add(self, client: OwnClient, tracker: Tracker, size: int) -> None:
        """An answer of ``size`` bytes was handed to the socket."""
        self._answers.setdefault(client, deque()).append(_Answer(tracker, size))
        self._sizes[client] = self._sizes.get(client, 0) + size
        self.size += size

    def check(self, client: OwnClient) -> None:
        """Refuse to give more to a client that does not read.

        Raises:
            BusyError: names the bytes, the limit and its setting.
        """
        self._forget_sent(client)
        mine = self._sizes.get(client, 0)
        if mine >= self._client_max:
            raise BusyError(
                "client does not read its answers as fast as it asks for them",
                bytes=mine,
                limit=self._client_max,
                setting="limits.client_window_bytes",
            )
        if mine and self.size >= self._total_max:
            self.sweep()
            if self.size >= self._total_max:
                raise BusyError(
                    "clients do not read their answers, this one among them",
                    bytes=self.size,
                    limit=self._total_max,
                    setting="limits.total_answers_bytes",
                )

    def sweep(self) -> None:
        """Look at everybody's: what has left does not count any more."""
        for client in list(self._answers):
            self._forget_sent(client)

    def _forget_sent(self, client: OwnClient) -> None:
        answers = self._answers.get(client)
        if answers is None:
            return
        while answers and answers[0].tracker.done:
            size = answers.popleft().size
            self._sizes[client] -= size
            self.size -= size
        if not answers:
            del self._answers[client], self._sizes[client]


@dataclass(slots=True)
class ConsumerSession(Session):
    """A consumer's, without an instance; ``group`` is the one that it consumes for, if any."""

    group: str = ""


class ConsumeService:
    """Owned by the broker process.

    Invariant: holds and waiting calls belong to clients that have a session, or had one when their
    connection ended.
    """

    def __init__(
        self,
        environment: Surroundings,
        services: ClientServices,
        *,
        users: UserTable,
        quotas: QuotaTable,
    ) -> None:
        """Bind the socket.

        Raises:
            ConfigError: it cannot be bound, or the key of the settings cannot be used.
        """
        settings, (pulls, calls, queries) = environment.settings, services
        self._gate = AccessGate(settings.access, users, check_users=calls.log.check_started)
        self._limits = RateLimits(
            "consume", quotas, settings.quotas, now_ns=environment.clock.monotonic_ns()
        )
        self._acts: dict[Caller, Act] = {}
        self._clock = environment.clock
        self._queries = queries
        self._pulls = pulls
        pulls.know_hosts(self._host_of)
        pulls.limits = self._limits
        self._calls = calls
        self._settings = settings
        self._produce_ipc = f"ipc://{environment.paths.produce}"
        self._counters = environment.page.counters(Role.BROKER)
        self._faults = RequestFaults(self._counters)
        self._reported: set[str] = set()
        self._on_way = AnswersOnWay(
            client_max=settings.limits.client_window_bytes,
            total_max=settings.limits.total_answers_bytes,
        )
        self.socket = open_client_socket(
            environment.context,
            environment.paths.consume,
            settings.listen.consume,
            settings=settings,
            gate=self._gate,
            message_size_max=BODY_SIZE_MAX,
            answers_queued_max=ANSWERS_QUEUED_MAX,
            copied_max=TRACKED_SIZE_MIN,
            note_ended=self._note_ended,
        )
        self._clients = SessionServer[ConsumerSession](
            self.socket,
            self._counters,
            BrokerCounter,
            settings.limits,
            welcome=welcome_of(settings, environment.page.read_process(Role.BROKER).generation),
            statuses={BusyError: "WINDOW_FULL"},
            forget=self._forget,
        )

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and quotas count from now on."""
        self._gate.take_settings(settings.access)
        self._limits.take_settings(settings.quotas)
        self._clients.take_limits(settings.limits)

    @property
    def sources(self) -> list[Pollable]:
        """The socket, and who lets clients in."""
        return [self.socket.source, *self.socket.guards]

    @property
    def zmq_uses(self) -> Sequence[int]:
        return self.socket.zmq_uses

    def message_deadline_ms(self) -> int | None:
        """Nothing: ``take_messages`` takes none."""
        return None

    @property
    def is_watched(self) -> bool:
        """Whether ``look`` has work although nothing comes."""
        return self.socket.is_watched

    def look(self, now_ns: int) -> None:
        """End connections that hold too much; to be called now and then."""
        self.socket.look(now_ns)

    def let_in(self, ready: Mapping[Pollable, int]) -> None:
        """Answer about the keys of those who connect."""
        if any(guard in ready for guard in self.socket.guards):
            self.socket.let_in()

    def tell_standing(self, standing: Standing) -> None:
        """Tell all clients what this node is in its group now, if that is something else."""
        before = self._clients.standing
        if standing == before:
            return
        if standing.leads and not before.leads:
            self._limits.restart(self._now_ns())
        self._clients.tell_standing(standing)

    def tell_stage(self, *, serves: int, tables: int, services: int) -> None:
        """Note in the page how far this node is as a leader: terms, 0 while it does not lead."""
        counters = self._counters
        counters[BrokerCounter.SERVES_TERM] = serves
        counters[BrokerCounter.TABLES_TERM] = tables
        counters[BrokerCounter.SERVICES_TERM] = services

    def next_deadline_ms(self) -> int | None:
        """Never: what waits here is waited for by the services."""
        return None

    def take_requests(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """Answer or hold what clients ask for, a bounded number of requests and bytes."""
        if self.socket.source not in ready:
            return False
        begin = self._counters[BrokerCounter.BYTES]
        until_ns = self._now_ns() + TURN_NS
        for _ in range(REQUESTS_PER_TURN_MAX):
            parts = self.socket.receive()
            if parts is None:
                break
            self._take(parts, now_ms)
            if self._counters[BrokerCounter.BYTES] - begin >= BYTES_PER_TURN_MAX:
                break
            if self._now_ns() >= until_ns:
                break
        return True

    def take_messages(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        """Our own clients send to the writer themselves, and pull many messages at a time."""
        del ready, now_ms
        return False

    def flush(self) -> None:
        """Nothing is kept back here."""

    def send_answers(self, answers: Iterable[Answer]) -> None:
        """Answer pulls that were held."""
        for answer in answers:
            self._counters[BrokerCounter.WAKES] += 1
            self.send_answer(answer)
        self._counters[BrokerCounter.HELD] = self._pulls.held

    def send_answer(self, answer: Answer) -> None:
        """Answer a pull."""
        client = answer.client
        assert isinstance(client, OwnClient), client
        if answer.error is not None:
            self._refuse(client, answer.request_id, answer.error)
            return
        session = self._clients.sessions.get(client)
        if session is None:
            return
        if answer.topic:
            try:
                # It may have lost the right while it was held.
                session.rights.check_topic(answer.topic, Right.SUB)
            except NoPermissionError as error:
                self._refuse(client, answer.request_id, error)
                return
            size, messages = len(answer.payload), answer.messages
            self._charge(client, session, answer.topic, size=size, messages=messages)
        counters = self._counters
        counters[BrokerCounter.MESSAGES] += answer.messages
        counters[BrokerCounter.BYTES] += len(answer.payload)
        self._send(client, [answer.head, answer.payload])

    def send_reply(self, reply: Reply) -> None:
        """Answer a call that has waited."""
        act = self._acts.pop(reply.caller, None)
        if act is not None:
            audit(act, reply.outcome if isinstance(reply.outcome, LedgerError) else None)
        self._tell(reply)

    def _tell(self, reply: Reply) -> None:
        client, request_id = reply.caller
        assert isinstance(client, OwnClient), client
        if isinstance(reply.outcome, LedgerError):
            self._refuse(client, request_id, reply.outcome)
        elif isinstance(reply.outcome, Encoded):
            self._send(client, [encode_header(Kind.RESULT, request_id), reply.outcome.body])
        else:
            self._note_received(client, reply.outcome)
            if not self._send(client, encode_result(request_id, reply.outcome)):
                for take_back in self._calls.on_untold:
                    take_back(reply.outcome)

    def close(self) -> None:
        """Unbind; what is on its way gets a moment to leave."""
        self._clients.close()
        self._counters.release()

    def _take(self, parts: list[bytes], now_ms: int) -> None:
        client = parts[0]
        request_id = 0
        if is_reserved(client):
            # It has given itself a name of those that ZeroMQ gives.
            self._counters[BrokerCounter.REFUSED] += 1
            return
        try:
            if len(parts) < 2:
                raise ProtocolError("message without a header", parts=len(parts) - 1)
            header = decode_header(parts[1])
            request_id = header.request_id
            self._admit(client, header, parts, now_ms)
        except LedgerError as error:
            self._refuse(client, request_id, error)
        except Exception as error:
            # Its sender alone pays for what nobody has thought of.
            self._refuse(client, request_id, self._faults.refusal(error, "request"))
            self._clients.end(client)

    def _admit(self, client: bytes, header: Header, parts: list[bytes], now_ms: int) -> None:
        kind = header.kind
        if kind is Kind.HELLO:
            self._greet(client, header.request_id, parts)
            return
        session = self._clients.used(client)
        if kind is Kind.PULL and len(parts) == 2:
            self._pull(client, session, parts[1], now_ms)
        elif kind is Kind.CALL and len(parts) == 3:
            self._counters[BrokerCounter.CALLS] += 1
            self._on_way.check(client)
            self._call(Caller(client, header.request_id), session, parts[2], now_ms)
        elif kind is Kind.QUERY and len(parts) == 3:
            self._counters[BrokerCounter.CALLS] += 1
            self._on_way.check(client)
            rights = session.rights
            found = self._queries.answer(
                header.request_id,
                decode_query(parts[2]),
                lambda topic: rights.check_topic(topic, Right.SUB),
            )
            self._counters[BrokerCounter.BYTES] += len(found.payload)
            self._send(client, [found.head, found.payload])
        elif kind is Kind.GOODBYE:
            self._clients.end(client)
        else:
            raise ProtocolError(
                "message not taken here: those to be stored go to the address that WELCOME tells",
                kind=kind.name,
                parts=len(parts) - 1,
            )

    def _call(self, caller: Caller, session: ConsumerSession, body: bytes, now_ms: int) -> None:
        verb, arguments = decode_call(body)
        rights = session.rights
        act = check_call(rights, self._calls.verbs, verb, arguments)
        if verb == ReceiveShared.NAME and self._limits.is_on:
            assert isinstance(caller.client, OwnClient), caller
            owners = self._owners(caller.client, session, str(arguments.get("topic")))
            self._limits.check(owners, self._now_ns())
        try:
            result = self._calls.call(
                caller,
                verb,
                arguments,
                now_ms,
                # What who only looks may ask for is not looked at again.
                check_topic=anybody if rights.only_looks else rights.check_topic,
                user=rights.who.user,
                is_admin=rights.is_admin,
                owner=owner_of(rights.who.user, rights.peer.host),
            )
        except LedgerError as error:
            if act is not None:
                audit(act, error)
            raise
        if result is not None:
            if act is not None:
                audit(act, None)
            self._tell(Reply(caller, result))
        elif act is not None and len(self._acts) < ACTS_MAX:
            self._acts[caller] = act

    def _pull(self, client: bytes, session: ConsumerSession, part: bytes, now_ms: int) -> None:
        self._counters[BrokerCounter.PULLS] += 1
        pull = decode_pull(part)
        session.rights.check_topic(pull.topic, Right.SUB)
        if session.group:
            session.rights.check_group(session.group)
            self._calls.groups.check_may_consume(session.group)
        try:
            self._on_way.check(client)
        except BusyError:
            self._counters[BrokerCounter.SLOW_REFUSED] += 1
            raise
        if self._limits.is_on:
            self._limits.check(self._owners(client, session, pull.topic), self._now_ns())
        answer = self._pulls.pull(client, pull, now_ms)
        if answer is not None:
            self.send_answer(answer)

    def _charge(
        self, client: OwnClient, session: ConsumerSession, topic: str, *, size: int, messages: int
    ) -> None:
        """Messages are given: they count, also where that overdraws a quota."""
        if not self._limits.is_on:
            return
        now_ns = self._now_ns()
        for owner in self._owners(client, session, topic):
            self._limits.take(owner, size=size, messages=messages, now_ns=now_ns)

    def _note_received(self, client: OwnClient, told: Mapping[str, object]) -> None:
        """Messages of a share group are given: they count as those of a pull do."""
        payload, runs, topic = told.get(PAYLOAD), told.get(RUNS), told.get("topic")
        rows = told.get("messages")
        if isinstance(runs, list):
            rows = [size for run in runs for size in run["sizes"]]
        if not (isinstance(payload, bytes) and isinstance(rows, list) and isinstance(topic, str)):
            return
        self._counters[BrokerCounter.MESSAGES] += len(rows)
        self._counters[BrokerCounter.BYTES] += len(payload)
        session = self._clients.sessions.get(client)
        if session is not None:
            self._charge(client, session, topic, size=len(payload), messages=len(rows))

    def _owners(self, client: bytes, session: ConsumerSession, topic: str) -> list[str]:
        user = session.rights.who.user
        return self._limits.owners(
            user=user, client=session.name, connection=client.hex(), topics=(topic,)
        )

    def _greet(self, client: bytes, request_id: int, parts: list[bytes]) -> None:
        """Begin a session, or begin it anew."""
        hello, peer = self._clients.hello(parts), self.socket.peer
        name = decode_hello(hello)
        if not peer.address:
            raise NoPermissionError(
                "connection tells no address: its ZeroMQ speaks an older protocol than ZMTP 3"
            )
        self.socket.greet(client)
        self._clients.end(client)
        rights = rights_of(self._gate, peer, hello_speaks_for(hello))
        self._clients.begin(client, ConsumerSession(name, rights, group=hello_group(hello)))
        produce = self._produce_ipc if peer.is_local else self._settings.listen.produce or ""
        version = hello_version(hello)
        self._clients.welcome(client, request_id, produce=produce, version=version)

    def _host_of(self, client: Client) -> str:
        """Address of a client's host, or which local process it is; empty for others."""
        session = self._clients.sessions.get(client) if isinstance(client, OwnClient) else None
        return "" if session is None else session.rights.peer.address

    def _note_ended(self) -> None:
        self._counters[BrokerCounter.CONNECTIONS_ENDED] += 1

    def _forget(self, client: bytes) -> None:
        """A session is over."""
        self._pulls.cancel(client)
        self._calls.slices.cancel(client)
        for forget in self._calls.on_gone:
            forget(client)
        self._limits.forget(client.hex())

    def _refuse(self, client: bytes, request_id: int, error: LedgerError) -> None:
        if isinstance(error, CorruptLogError | StorageError):
            self._report(error)
        self._clients.refuse(client, request_id, error)

    def _report(self, error: LedgerError) -> None:
        """Log what is wrong with the store, each place once: consumers ask again and again."""
        text = str(error)
        if text not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(text)
            logger.error("request not answered: %s", text)

    def _send(self, client: bytes, parts: Sequence[bytes | memoryview]) -> bool:
        """Send an answer; false where the client has gone, or does not read: it has no session any
        more.
        """
        size = len(parts[-1])
        if size < TRACKED_SIZE_MIN:
            is_sent = self.socket.send(client, parts)
        else:
            tracker = self.socket.send_tracked(client, parts)
            is_sent = tracker is not None
            if tracker is not None:
                self._on_way.add(client, tracker, size)
                self._counters[BrokerCounter.ANSWERS_BYTES] = self._on_way.size
        if not is_sent:
            self._clients.lose(client)
        return is_sent

    def tidy(self) -> None:
        """Forget what has left meanwhile; to be called now and then."""
        self._on_way.sweep()
        self._counters[BrokerCounter.ANSWERS_BYTES] = self._on_way.size

    def _now_ns(self) -> int:
        return self._clock.monotonic_ns()
