"""Link: one session with one socket of a node, opened anew when it ends.

A ``Link`` never blocks and has no thread; whoever owns it polls its file descriptors and calls
``advance`` and ``receive``. It is not safe to share among threads without a lock.

A connection that ended is never used again: its socket is closed with all that is queued in it, and
the next one has another identity. So nothing of an old session reaches the next writer unasked.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

import ledgermq
from ledgermq.client.core.address import Address
from ledgermq.client.core.connection import Context, NodeConnection, Part, ZmqConnection
from ledgermq.client.core.keys import ClientKeys, load_client_keys
from ledgermq.client.forks import OfOneProcess
from ledgermq.client.stream_connection import open_stream
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
)
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.session import (
    NOT_TOLD,
    SpokenFor,
    Standing,
    Welcome,
    decode_refused,
    decode_role,
    decode_welcome,
    encode_hello,
    role_position,
)

NEVER = float("inf")
"""A deadline that does not come."""

REOPEN_MS_MIN = 5
REOPEN_MS_MAX = 500
HELLO_TIMEOUT_S = 5.0
GOODBYE_LINGER_MS = 100

_parents: list[NodeConnection] = []
"""In a child that was forked: a socket of ZeroMQ's warns when it is let go of and not closed."""

_LIBRARY = f"ledgermq-python/{ledgermq.__version__}"


class Link(OfOneProcess):
    """A session that comes back.

    Invariants: ``welcome`` is set exactly while a session stands; ``generation`` grows whenever a
    socket is opened or closed, so that pollers know when ``descriptors`` are others.

    Attributes:
        welcome: what the node told us, ``None`` while there is no session.
        last_welcome: the latest one, also between sessions.
        failure: why no session can ever stand, if that is known.
        lost_count: sessions and attempts that ended.
        position: what is sent now stands behind it in the log, as the writer of a leader has told;
            ``NOT_TOLD`` before. Who is told of stored messages raises it.
        stays_readable: see ``NodeConnection``.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        client: str,
        group: str = "",
        keys: ClientKeys | None = None,
        is_writers: bool = False,
        speaks_for: SpokenFor | None = None,
        tries_once: bool = False,
    ) -> None:
        """A link that opens its first session with the first ``advance``.

        Args:
            is_writers: the endpoint is a writer's, which on this machine has a socket of its own
                beside ZeroMQ's, unless the node is an older one.
            client: name that the node is told.
            group: the subscription group that its pulls are for; empty for none.
            keys: for a node that asks for them, over tcp.
            speaks_for: whose rights its sessions have, at a broker of this machine; None: ours.
            tries_once: a connection that nobody takes has ended, and the next one waits for its
                time; else ZeroMQ tries on at its own pace.
        """
        self._keys = keys
        self._tries_once = tries_once
        self._speaks_for = speaks_for
        is_local = is_writers and endpoint.startswith("ipc://")
        self._path = endpoint.removeprefix("ipc://") if is_local else ""
        self._is_locked_out = False
        self.endpoint = endpoint
        self.welcome: Welcome | None = None
        self.last_welcome: Welcome | None = None
        self.failure: LedgerError | None = None
        self.generation = 0
        self.lost_count = 0
        self.position = NOT_TOLD
        self._context = context
        self._client = client
        self._group = group
        self._instance = os.urandom(12).hex()
        self._ids: Iterator[int] = itertools.count(1)
        self._connection: NodeConnection | None = None
        self.stays_readable = False
        self._hello_id = 0
        self._hello_until = 0.0
        self._is_asking = False
        self._reopen_at = 0.0
        self._reopen_ms = REOPEN_MS_MIN
        self._reopen_ms_max = REOPEN_MS_MAX
        self._belong()

    def next_id(self) -> int:
        """A request id that this link has not used."""
        return next(self._ids)

    def share_ids(self, ids: Iterator[int]) -> None:
        """Take request ids from ``ids``, which others take theirs from, too."""
        self._ids = ids

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors that become readable when ``receive`` or ``advance`` has work.

        They may be edge-triggered, and say nothing then of what was there before the last
        ``receive`` found none.
        """
        return () if self._connection is None else self._connection.descriptors

    @property
    def deadline(self) -> float:
        """When ``advance`` has work that no descriptor tells of."""
        if self._connection is None:
            return self._reopen_at
        return self._hello_until if self._awaits_greeting else NEVER

    @property
    def _awaits_greeting(self) -> bool:
        return self.welcome is None or self._is_asking

    def advance(self, now: float) -> bool:
        """Open what is due, and look whether the connection ended; true when a session ended.

        Call ``receive`` until it gives nothing first: answers may lie before the end.
        """
        connection = self._connection
        if connection is None:
            if now >= self._reopen_at and self.failure is None:
                self._open(now)
            return False
        if connection.has_ended(now):
            self._is_locked_out |= connection.is_locked_out
            return self.lose(now)
        if (self.welcome is None or self._is_asking) and now >= self._hello_until:
            return self.lose(now)
        return False

    def receive(self) -> list[Part] | None:
        """The parts of the next message that is not about the session itself.

        The first part is of bytes, the others may be views, which own what they are of.
        """
        connection = self._connection
        if connection is None:
            return None
        while (parts := connection.receive()) is not None:
            if self.welcome is not None and not (self._is_asking and self._is_greeting(parts)):
                return parts
            self._take_greeting(parts)
            # ``FoundLink`` closes it with the greeting, to go on at the writer.
            if self._connection is not connection:
                break
        return None

    def send(self, parts: Sequence[bytes]) -> bool:
        """Hand over a message; false when none is taken now. Only while ``welcome`` is set."""
        connection = self._connection
        assert connection is not None and self.welcome is not None
        return connection.send(parts)

    def take_role(self, parts: Sequence[Part]) -> Standing:
        """Take a ROLE: what the node is now.

        Raises:
            ProtocolError: it is none.
        """
        if len(parts) != 2:
            raise ProtocolError("ROLE without a body", parts=len(parts))
        standing = decode_role(parts[1])
        self._note_position(role_position(parts[1]))
        return standing

    def lose(self, now: float) -> bool:
        """Give up the connection, and open another one soon; true when a session ended."""
        stood = self.welcome is not None
        self._close(0)
        self.lost_count += 1
        if stood:
            self._reopen_ms = REOPEN_MS_MIN
        self._reopen_at = now + self._reopen_ms / 1_000
        self._reopen_ms = min(2 * self._reopen_ms, self._reopen_ms_max)
        return stood

    @property
    def is_locked_out(self) -> bool:
        """Whether the node has refused this client's keys, or that it has none."""
        return self._is_locked_out

    def take_time(self, *, ms_max: int) -> None:
        """Wait so long, at most, between two attempts that fail."""
        self._reopen_ms_max = ms_max
        if self._reopen_ms > ms_max:
            # Somebody waits now.
            self._reopen_ms = REOPEN_MS_MIN
            self._reopen_at = 0.0

    def ask_again(self, now: float) -> None:
        """Say HELLO once more, for whoever waits for what this node tells.

        The session that stands is told anew, or begun anew where the node has forgotten it; a
        connection at whose other end nobody answers is given up. A node that has refused for good
        is asked whether it still does.
        """
        if self.failure is not None:
            self.failure = None
            self.lose(now)
        elif self._connection is not None and not self._awaits_greeting:
            self._is_asking = True
            self._say_hello(self._connection, now)

    def unreachable(self) -> LedgerError:
        """What to tell who waited for a session that never stood; nothing was sent."""
        if self._is_locked_out:
            return NoPermissionError(
                "node does not let this client in: it asks for keys (?keys=FILE behind the"
                " address), those of its users (ledgermq acl list); nothing was stored",
                endpoint=self.endpoint,
            )
        return self.failure or NotLeaderError(
            "no node answers: is it running, and may this user connect? Nothing was stored",
            endpoint=self.endpoint,
        )

    def close(self) -> None:
        """Say goodbye, and close the socket for good."""
        if self.welcome is not None:
            self.send([encode_header(Kind.GOODBYE, self.next_id())])
            self._close(GOODBYE_LINGER_MS)
        else:
            self._close(0)
        self._reopen_at = NEVER

    def _leave(self) -> None:
        """Leave all to the parent: it has failed for good.

        Another session would take the place of the parent's, and send again what that has sent.
        """
        if self._connection is not None:
            _parents.append(self._connection)
        self._connection = None
        self.welcome = None
        self.failure = self._left_error()
        self.generation += 1

    def _open(self, now: float) -> None:
        try:
            self._connection = self._connected()
        except ProtocolError as error:
            self.failure = error
            return
        except OSError:
            # The node is down, or begins; this user may not connect; no descriptor is left.
            self.lose(now)
            return
        self.generation += 1
        self.stays_readable = self._connection.stays_readable
        self._say_hello(self._connection, now)

    def _connected(self) -> NodeConnection:
        """A connection: the stream where there is one, else ZeroMQ's.

        Raises:
            ProtocolError: the endpoint can never be connected.
            OSError: nobody is there now, or no socket can be made.
        """
        if self._path:
            stream = open_stream(self._path)
            if stream is not None:
                return stream
        return ZmqConnection(self._context, self.endpoint, self._keys, tries_once=self._tries_once)

    def _say_hello(self, connection: NodeConnection, now: float) -> None:
        self._hello_id = self.next_id()
        hello = encode_hello(
            self._hello_id,
            client=self._client,
            library=_LIBRARY,
            instance=self._instance,
            group=self._group,
            speaks_for=self._speaks_for,
        )
        # The node has refused the keys already, and its refusal waits in the monitor; or nobody
        # takes what was sent before.
        self._hello_until = now + HELLO_TIMEOUT_S if connection.send(hello) else now

    def _is_greeting(self, parts: list[Part]) -> bool:
        """Whether a message of a session that stands answers the HELLO that was said again."""
        return decode_header(parts[0]).request_id == self._hello_id

    def _take_greeting(self, parts: list[Part]) -> None:
        header = decode_header(parts[0])
        if header.request_id != self._hello_id or len(parts) < 2:
            raise ProtocolError("answer to no question of this session", kind=header.kind.name)
        if header.kind is Kind.WELCOME:
            self.welcome = self.last_welcome = decode_welcome(parts[1])
            self._note_position(self.welcome.position)
            self._is_locked_out = self._is_asking = False
            self._hello_until = NEVER
            return
        refusal = decode_refused(parts[1])
        if refusal.retriable or self._is_asking:
            # ``advance`` ends what there is of a session.
            self._hello_until = 0.0
        if not refusal.retriable:
            self.failure = refusal.to_error()

    def _note_position(self, position: int) -> None:
        # Lower than before where the log has lost what one node alone has acknowledged.
        if position != NOT_TOLD:
            self.position = position

    def _close(self, linger_ms: int) -> None:
        self.welcome = None
        self._is_asking = False
        if self._connection is not None:
            self._connection.close(linger_ms)
            self.generation += 1
        self._connection = None


def keys_of(address: Address) -> ClientKeys | None:
    """The keys that ``address`` names; None when it names none.

    Raises:
        ConfigError: they cannot be used.
    """
    return load_client_keys(address.keys) if address.keys else None


class FoundLink(Link):
    """A session with the writer of a node of which only the broker's address is known.

    The broker is asked first, and again whenever no writer answers where it said.
    """

    def __init__(
        self,
        context: Context,
        address: Address,
        *,
        client: str,
        keys: ClientKeys | None,
        tries_once: bool = False,
    ) -> None:
        super().__init__(context, address.consume, client=client, keys=keys, tries_once=tries_once)
        self._address = address
        self._is_found = False

    def lose(self, now: float) -> bool:
        """Give up the connection, and open another one soon; true when a session ended."""
        stood = super().lose(now)
        if not stood:
            self._is_found = False
            self.endpoint = self._address.consume
        return stood

    def _take_greeting(self, parts: list[Part]) -> None:
        super()._take_greeting(parts)
        if self.welcome is None or self._is_found:
            return
        told = self.welcome.produce
        self._close(0)
        try:
            self.endpoint = self._address.produce_endpoint(told)
        except ConfigError as error:
            self.failure = error
            return
        self._is_found = True
        self._reopen_at = 0.0
