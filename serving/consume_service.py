"""Consumers' sessions at the broker: requests in, answers out.

A client that does not read what it asked for is refused more, and then loses its session; it never
makes anybody else wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import zmq

from ledgermq.broker.access import Right, UserTable
from ledgermq.broker.quotas import QuotaTable
from ledgermq.broker.rate_limits import RateLimits
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.host_address import encode_host
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.errors import (
    BusyError,
    CorruptLogError,
    LedgerError,
    NoPermissionError,
    ProtocolError,
    QuotaError,
    StaleGenerationError,
    StorageError,
)
from ledgermq.model.limits import FRAME_RECORDS_MAX, FRAME_SIZE_MAX
from ledgermq.model.settings import LogKind, Settings
from ledgermq.process.client_keys import load_client_secret
from ledgermq.process.client_rights import AccessGate, ClientRights, owner_of
from ledgermq.process.client_socket import (
    CLOSE_LINGER_MS,
    bind_client_socket,
    descriptor_of,
    is_reserved,
    peer_of,
    report_refused,
    skip_parts,
)
from ledgermq.process.key_guard import KeyGuard
from ledgermq.process.loop import Pollable
from ledgermq.process.node import Surroundings
from ledgermq.process.request_faults import RequestFaults
from ledgermq.process.session_room import SessionRoom
from ledgermq.process.socket_watch import REPORTED_MAX, SocketWatch, watch_limits
from ledgermq.process.standing import UNKNOWN
from ledgermq.serving.answers_on_way import AnswersOnWay
from ledgermq.serving.call_rights import Act, audit, check_call
from ledgermq.serving.call_service import CallService
from ledgermq.serving.callers import Caller, Client, OwnClient
from ledgermq.serving.pull_answers import Answer
from ledgermq.serving.pull_service import PullService
from ledgermq.serving.query_service import QueryService
from ledgermq.serving.state_requests import Encoded, Reply
from ledgermq.wire.header import Header, Kind, decode_header, encode_header
from ledgermq.wire.pull_frame import decode_pull
from ledgermq.wire.query_frame import decode_query
from ledgermq.wire.session import (
    BODY_SIZE_MAX,
    Standing,
    Welcome,
    decode_call,
    decode_hello,
    encode_refused,
    encode_result,
    encode_role,
    encode_welcome,
    hello_group,
    hello_version,
)

logger = logging.getLogger(__name__)

REQUESTS_PER_TURN_MAX = 256
BYTES_PER_TURN_MAX = 32 * 1024 * 1024
TURN_NS = 50_000_000
"""A request costs what its sender likes: after so long the process's other work has its turn."""

PARTS_MAX = 3

TRACKED_SIZE_MIN = 16 * 1024
"""Smaller answers are copied by the socket; larger ones are held by it, and counted."""

ANSWERS_QUEUED_MAX = 1_024
"""Messages that wait for one client to read: with ``TRACKED_SIZE_MIN``, 16 MiB of small ones."""

ACTS_MAX = 10_000
"""Admin acts without an outcome; of more only the call is told."""


@dataclass(slots=True)
class Session:
    """One connection that has said HELLO.

    ``group`` is the one that it consumes for, empty when it named none.
    """

    name: str
    rights: ClientRights
    group: str = ""


class ConsumeService:
    """Owned by the broker process.

    Invariant: holds and waiting calls belong to clients that have a session, or had one when their
    connection ended.
    """

    def __init__(
        self,
        around: Surroundings,
        pulls: PullService,
        calls: CallService,
        queries: QueryService,
        *,
        users: UserTable,
        quotas: QuotaTable,
    ) -> None:
        """Bind the socket.

        Raises:
            ConfigError: it cannot be bound, or the key of the settings cannot be used.
        """
        settings = around.settings
        self._gate = AccessGate(settings.access, users, check_users=calls.check_started)
        self._limits = RateLimits(
            "consume", quotas, settings.quotas, now_ns=around.clock.monotonic_ns()
        )
        self._acts: dict[Caller, Act] = {}
        self._unfinished: tuple[list[bytes], zmq.Frame | None] | None = None
        self._clock = around.clock
        self._queries = queries
        self._pulls = pulls
        pulls.know_hosts(self._host_of)
        pulls.limits = self._limits
        self._calls = calls
        self._page = around.page
        self._settings = settings
        self._produce_ipc = f"ipc://{around.paths.produce}"
        self._counters = around.page.counters(Role.BROKER)
        self._faults = RequestFaults(self._counters)
        self._sessions: dict[bytes, Session] = {}
        self._room = SessionRoom(settings.limits)
        self._standing = UNKNOWN
        self._reported: set[str] = set()
        self._window = settings.limits.client_window_bytes
        self._on_way = AnswersOnWay(
            client_max=self._window, total_max=settings.limits.total_answers_bytes
        )
        secret = load_client_secret(settings.listen)
        self._guard = None if secret is None else KeyGuard(around.context, self._gate.lets_key_in)
        self._watch = self._make_watch(is_sealed=secret is not None)
        self.socket = bind_client_socket(
            around.context,
            around.paths.consume,
            settings.listen.consume,
            mode=settings.listen.socket_mode,
            message_size_max=BODY_SIZE_MAX,
            secret=secret,
            answers_queued_max=ANSWERS_QUEUED_MAX,
            watch=self._watch,
        )
        self.socket.copy_threshold = TRACKED_SIZE_MIN

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and quotas count from now on."""
        self._gate.take_settings(settings.access)
        self._limits.take_settings(settings.quotas)
        self._room.limits = settings.limits
        self._watch.limits = watch_limits(settings.limits)

    @property
    def sources(self) -> list[Pollable]:
        """The socket, and who lets clients in."""
        return [self.socket] if self._guard is None else [self.socket, self._guard.socket]

    def look(self, now_ns: int) -> None:
        """End connections that hold too much; to be called each turn."""
        self._watch.look(now_ns)

    def let_in(self, ready: Mapping[Pollable, int]) -> None:
        """Answer about the keys of those who connect."""
        if self._guard is not None and self._guard.socket in ready:
            report_refused(self._guard)

    def tell_standing(self, standing: Standing) -> None:
        """Tell all clients what this node is in its group now, if that is something else."""
        if standing == self._standing:
            return
        if standing.leads and not self._standing.leads:
            self._limits.restart(self._now_ns())
        self._standing = standing
        for client in list(self._sessions):
            self._send([client, *encode_role(standing)])

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
        if self.socket not in ready:
            return False
        begin = self._counters[BrokerCounter.BYTES]
        until_ns = self._now_ns() + TURN_NS
        for _ in range(REQUESTS_PER_TURN_MAX):
            try:
                parts, head = self._receive()
            except zmq.Again:
                break
            self._take(parts, head, now_ms)
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
        session = self._sessions.get(client)
        if session is None:
            return
        if answer.topic:
            try:
                # It may have lost the right while it was held.
                session.rights.check_topic(answer.topic, Right.SUB)
            except NoPermissionError as error:
                self._refuse(client, answer.request_id, error)
                return
            self._charge(client, session, answer)
        counters = self._counters
        counters[BrokerCounter.MESSAGES] += answer.messages
        counters[BrokerCounter.BYTES] += len(answer.payload)
        self._send([client, answer.head, answer.payload])

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
            self._send([client, encode_header(Kind.RESULT, request_id), reply.outcome.body])
        else:
            self._send([client, *encode_result(request_id, reply.outcome)])

    def close(self) -> None:
        """Unbind; what is on its way gets a moment to leave."""
        self.socket.close(CLOSE_LINGER_MS)
        self._watch.close()
        if self._guard is not None:
            self._guard.close()
        self._counters.release()

    def _receive(self) -> tuple[list[bytes], zmq.Frame | None]:
        """One message and the frame of its header; only as many parts as any message has.

        Raises:
            zmq.Again: none waits, or only one of very many parts; others have their turn first.
        """
        socket = self.socket
        watch, begun = self._watch, self._unfinished or self._begun()
        parts, head = begun
        if not skip_parts(socket):
            if self._unfinished is None:
                self._unfinished = begun
                watch.end_sender(parts[0], -1 if head is None else descriptor_of(head))
            raise zmq.Again
        self._unfinished = None
        account = watch.accounts.get(parts[0])
        if account is not None:
            account.taken += watch.wire_size(parts) if account.address else 1
        return parts, head

    def _begun(self) -> tuple[list[bytes], zmq.Frame | None]:
        """The first parts of a message: all that any has, and one more."""
        socket = self.socket
        parts = [socket.recv(zmq.NOBLOCK)]
        head: zmq.Frame | None = None
        while len(parts) <= PARTS_MAX and socket.getsockopt(zmq.RCVMORE):
            frame = socket.recv(zmq.NOBLOCK, copy=False)
            head = head or frame
            parts.append(frame.bytes)
        return parts, head

    def _take(self, parts: list[bytes], head: zmq.Frame | None, now_ms: int) -> None:
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
            self._admit(client, header, parts[1:], head, now_ms)
        except LedgerError as error:
            self._refuse(client, request_id, error)
        except Exception as error:
            # Its sender alone pays for what nobody has thought of.
            self._refuse(client, request_id, self._faults.refusal(error, "request"))
            self._end_session(client)

    def _admit(
        self, client: bytes, header: Header, parts: list[bytes], head: zmq.Frame | None, now_ms: int
    ) -> None:
        kind = header.kind
        if kind is Kind.HELLO:
            self._greet(client, header.request_id, parts, head)
            return
        session = self._sessions.get(client)
        if session is None or not self._is_of(session, head):
            raise StaleGenerationError("no session: say HELLO first")
        self._room.use(client)
        if kind is Kind.PULL and len(parts) == 1:
            self._pull(client, session, parts[0], now_ms)
        elif kind is Kind.CALL and len(parts) == 2:
            self._counters[BrokerCounter.CALLS] += 1
            self._on_way.check(client)
            self._call(Caller(client, header.request_id), session, parts[1], now_ms)
        elif kind is Kind.QUERY and len(parts) == 2:
            self._counters[BrokerCounter.CALLS] += 1
            self._on_way.check(client)
            rights = session.rights
            found = self._queries.answer(
                header.request_id,
                decode_query(parts[1]),
                lambda topic: rights.check_topic(topic, Right.SUB),
            )
            self._counters[BrokerCounter.BYTES] += len(found.payload)
            self._send([client, found.head, found.payload])
        elif kind is Kind.GOODBYE:
            self._end_session(client)
        else:
            raise ProtocolError("message not taken here", kind=kind.name, parts=len(parts))

    def _is_of(self, session: Session, head: zmq.Frame | None) -> bool:
        """Whether a message is of who began the session.

        A client may choose its identity, and take that of another one which has gone.
        """
        if not self._gate.is_on:
            return True
        assert head is not None
        return peer_of(head, has_keys=self._guard is not None) == session.rights.peer

    def _call(self, caller: Caller, session: Session, body: bytes, now_ms: int) -> None:
        verb, arguments = decode_call(body)
        act = check_call(session.rights, self._calls.verbs, verb, arguments)
        try:
            result = self._calls.call(
                caller,
                verb,
                arguments,
                now_ms,
                check_topic=session.rights.check_topic,
                user=session.rights.who.user,
                is_admin=session.rights.is_admin,
                owner=owner_of(session.rights.who.user, session.rights.peer.host),
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

    def _pull(self, client: bytes, session: Session, part: bytes, now_ms: int) -> None:
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

    def _charge(self, client: OwnClient, session: Session, answer: Answer) -> None:
        """Messages are given: they count, also where that overdraws a quota."""
        if not self._limits.is_on:
            return
        size, now_ns = len(answer.payload), self._now_ns()
        for owner in self._owners(client, session, answer.topic):
            self._limits.take(owner, size=size, messages=answer.messages, now_ns=now_ns)

    def _owners(self, client: bytes, session: Session, topic: str) -> list[str]:
        user = session.rights.who.user
        return self._limits.owners(
            user=user, client=session.name, connection=client.hex(), topics=(topic,)
        )

    def _greet(
        self, client: bytes, request_id: int, parts: list[bytes], head: zmq.Frame | None
    ) -> None:
        """Begin a session, or begin it anew."""
        if len(parts) != 2:
            raise ProtocolError("HELLO without a body", parts=len(parts))
        name = decode_hello(parts[1])
        assert head is not None  # a HELLO was decoded from it
        peer = peer_of(head, has_keys=self._guard is not None)
        if not peer.address:
            raise NoPermissionError(
                "connection tells no address: its ZeroMQ speaks an older protocol than ZMTP 3"
            )
        if client not in self._watch.accounts:
            self._watch.greet(client, descriptor_of(head))
        if client in self._sessions:
            self._end_session(client)
        # Connections end without a word. One that is in use says HELLO again.
        displaced = self._room.displaced(peer.host)
        if displaced is not None:
            self._counters[BrokerCounter.SESSIONS_DISPLACED] += 1
            self._end_session(displaced)
        self._room.add(client, peer.host)
        rights = ClientRights(self._gate, peer)
        self._sessions[client] = Session(name, rights, hello_group(parts[1]))
        self._counters[BrokerCounter.SESSIONS] = len(self._sessions)
        produce = self._produce_ipc if peer.is_local else self._settings.listen.produce or ""
        welcome = self._welcome(produce, version=hello_version(parts[1]))
        self._send([client, *encode_welcome(request_id, welcome)])

    def _host_of(self, client: Client) -> str:
        """Address of a client's host, or which local process it is; empty for others."""
        session = self._sessions.get(client) if isinstance(client, OwnClient) else None
        return "" if session is None else session.rights.peer.address

    def _make_watch(self, *, is_sealed: bool) -> SocketWatch:
        limits = watch_limits(self._settings.limits)
        return SocketWatch(limits, is_sealed=is_sealed, note_ended=self._note_ended)

    def _note_ended(self) -> None:
        self._counters[BrokerCounter.CONNECTIONS_ENDED] += 1

    def _welcome(self, produce: str, *, version: int) -> Welcome:
        node = self._settings.node
        host = f"[{node.broker_ip}]" if ":" in node.broker_ip else node.broker_ip
        return Welcome(
            cluster=node.broker_cluster_name,
            broker=node.broker_name,
            node=node.self_id,
            generation=self._page.read_process(Role.BROKER).generation,
            role=self._standing.role,
            term=self._standing.term,
            leader=self._standing.leader,
            ack=self._settings.ack.mode.value,
            entry_header_size=ENTRY_HEADER_SIZE
            if self._settings.store.log is LogKind.DLEDGER
            else 0,
            store_host_size=len(encode_host((node.broker_ip, node.listen_port))),
            body_size_max=self._settings.store.max_message_size,
            frame_size_max=FRAME_SIZE_MAX,
            frame_records_max=FRAME_RECORDS_MAX,
            window_bytes=self._window,
            produce=produce,
            store_host=f"{host}:{node.listen_port}",
            version=version,
        )

    def _end_session(self, client: bytes) -> None:
        del self._sessions[client]
        self._room.remove(client)
        self._counters[BrokerCounter.SESSIONS] = len(self._sessions)
        self._pulls.cancel(client)
        self._calls.slices.cancel(client)
        self._limits.forget(client.hex())

    def _refuse(self, client: bytes, request_id: int, error: LedgerError) -> None:
        self._counters[BrokerCounter.REFUSED] += 1
        self._counters[BrokerCounter.DENIED] += isinstance(error, NoPermissionError)
        self._counters[BrokerCounter.THROTTLED] += isinstance(error, QuotaError)
        if isinstance(error, CorruptLogError | StorageError):
            self._report(error)
        status = "WINDOW_FULL" if type(error) is BusyError else None
        self._send([client, *encode_refused(request_id, error, status=status)])

    def _report(self, error: LedgerError) -> None:
        """Log what is wrong with the store, each place once: consumers ask again and again."""
        text = str(error)
        if text not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(text)
            logger.error("request not answered: %s", text)

    def _send(self, parts: list[bytes | memoryview]) -> None:
        client, size = parts[0], len(parts[-1])
        assert isinstance(client, bytes)
        try:
            if size < TRACKED_SIZE_MIN:
                self.socket.send_multipart(parts, zmq.NOBLOCK)
                return
            tracker = self.socket.send_multipart(parts, zmq.NOBLOCK, copy=False, track=True)
        except zmq.ZMQError as error:
            self._send_failed(client, error)
            return
        assert tracker is not None
        self._on_way.add(client, tracker, size)
        self._counters[BrokerCounter.ANSWERS_BYTES] = self._on_way.size

    def _send_failed(self, client: bytes, error: zmq.ZMQError) -> None:
        """A client that is gone, or does not read, loses its session."""
        if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise error
        self._counters[BrokerCounter.UNANSWERABLE] += 1
        if client in self._sessions:
            self._end_session(client)

    def tidy(self) -> None:
        """Forget what has left meanwhile; to be called now and then."""
        self._on_way.sweep()
        self._counters[BrokerCounter.ANSWERS_BYTES] = self._on_way.size

    def _now_ns(self) -> int:
        return self._clock.monotonic_ns()
