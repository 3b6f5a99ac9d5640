"""Link: one session with one socket of a node, opened anew when it ends.

A ``Link`` never blocks and has no thread; whoever owns it polls its file descriptors and calls
``advance`` and ``receive``. It is not safe to share among threads without a lock.

A connection that ended is never used again: its socket is closed with all that is queued in it, and
the next one has another identity. So nothing of an old session reaches the next writer unasked.

A link that is ``watchful`` finds out why its first session does not come to stand (``probe``):
where nobody takes the connection for ``GRACE_S``, or a stranger does, or a node does not let this
client in, it has failed, and who waits is told so at once. It tries on all the same, and never
fails so once a node has answered it: that one is coming back.
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
from ledgermq.client.probe import CAN_PROBE, Probe
from ledgermq.client.stream_connection import StreamConnection, open_stream
from ledgermq.model.errors import (
    ConfigError,
    ConnectDeniedError,
    LedgerError,
    NotLeaderError,
    ProtocolError,
    StrangerError,
    UnreachableError,
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
REOPEN_MS_MAX = 200
ABSENT_MS = 500
"""Where nobody was at first, whoever asks is told so at once, up to the next attempt."""

HELLO_TIMEOUT_S = 5.0
GOODBYE_LINGER_MS = 100

GRACE_S = 0.5
"""For so long nobody may take the first connection of a watchful link: processes of a node are
begun again in less."""

WATCHFUL_MS = 100
"""Between two attempts meanwhile, at most."""

PROBED_AFTER_S = 0.1
"""Where a first connection was made, and nobody has answered for so long, it is looked who is
there."""

_PLAIN, _SEALED = "NULL", "CURVE"
"""What ZeroMQ calls connections without keys, and with them."""

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
        failure: why no session can stand, if that is known: ever; or, where nobody was there, until
            it is tried again, in less than ``ABSENT_MS``.
        lost_count: sessions and attempts that ended.
        ended_by: what has ended the last one, where that is known and no ``failure``.
        position: what is sent now stands behind it in the log, as the writer of a leader has told;
            ``NOT_TOLD`` before. Who is told of stored messages raises it.
        stays_readable: see ``NodeConnection``.
        stream: the connection, where it is one, of a session that may stand.
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
        is_watchful: bool = False,
    ) -> None:
        """A link that opens its first session with the first ``advance``.

        Args:
            is_writers: the endpoint is a writer's, which on this machine has a socket of its own
                beside ZeroMQ's, unless the node is an older one.
            client: name that the node is told.
            group: the subscription group that its pulls are for; empty for none.
            keys: for a node that asks for them, over tcp.
            speaks_for: whose rights its sessions have, at a broker of this machine; None: ours.
            is_watchful: see the module.
        """
        self._keys = keys
        self._is_watchful = is_watchful and CAN_PROBE
        self._probe: Probe | None = None
        self._probe_at = NEVER
        self._absent_since = NEVER
        self._is_absent = False
        self._turned_away_since = NEVER
        self._mechanism = ""
        self._seen = ""
        self._speaks_for = speaks_for
        is_local = is_writers and endpoint.startswith("ipc://")
        self._path = endpoint.removeprefix("ipc://") if is_local else ""
        self._is_locked_out = self._was_cut_off = False
        self.endpoint = endpoint
        self.welcome: Welcome | None = None
        self.last_welcome: Welcome | None = None
        self.failure: LedgerError | None = None
        self.generation = 0
        self.lost_count = 0
        self.ended_by = ""
        self.position = NOT_TOLD
        self._context = context
        self._client = client
        self._group = group
        self._instance = os.urandom(12).hex()
        self._ids: Iterator[int] = itertools.count(1)
        self._connection: NodeConnection | None = None
        self.stream: StreamConnection | None = None
        self.stays_readable = False
        self._hello_id = 0
        self._hello_until = 0.0
        self._refused = ""
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
        own = () if self._connection is None else self._connection.descriptors
        return own if self._probe is None else (*own, *self._probe.descriptors)

    @property
    def deadline(self) -> float:
        """When ``advance`` has work that no descriptor tells of."""
        if self._connection is None:
            when = self._reopen_at if self._probe is None else NEVER
        else:
            when = self._hello_until if self._awaits_greeting else NEVER
        if self._is_watchful:
            when = min(when, self._probe_at if self._probe is None else self._probe.deadline)
        return when

    @property
    def _awaits_greeting(self) -> bool:
        return self.welcome is None or self._is_asking

    def advance(self, now: float) -> bool:
        """Open what is due, and look whether the connection ended; true when a session ended.

        Call ``receive`` until it gives nothing first: answers may lie before the end.
        """
        if self._is_watchful:
            self._look_who_is_there(now)
        connection = self._connection
        if connection is None:
            if now >= self._reopen_at and self._probe is None:
                self._begin_again(now)
            return False
        if connection.has_ended(now):
            self._is_locked_out |= connection.is_locked_out
            self._was_cut_off = connection.was_cut_off
            return self.lose(now, "connection ended")
        if (self.welcome is None or self._is_asking) and now >= self._hello_until:
            return self.lose(now, self._refused or f"HELLO not answered in {HELLO_TIMEOUT_S:g} s")
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
            try:
                self._take_greeting(parts)
            except ProtocolError as error:
                if self._is_watchful:
                    # Whoever takes messages gives up the connection.
                    self._is_absent = True
                    self.failure = StrangerError(
                        "what answers at this address speaks ZeroMQ, and not the protocol of this"
                        " version: another program, or a node of another version",
                        endpoint=self.endpoint,
                        reason=str(error),
                    )
                raise
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

    def lose(self, now: float, why: str = "") -> bool:
        """Give up the connection, and open another one soon; true when a session ended."""
        stood = self.welcome is not None
        self._close(0)
        self.lost_count += 1
        self.ended_by = why
        if stood:
            self._reopen_ms = REOPEN_MS_MIN
        elif self._is_watchful and self._absent_since == NEVER:
            self._probe_at = now
        self._reopen_at = now + self._reopen_ms / 1_000
        pause_ms_max = WATCHFUL_MS if self._is_watchful else self._reopen_ms_max
        self._reopen_ms = min(2 * self._reopen_ms, pause_ms_max)
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
        if self._is_absent:
            # It tries on by itself.
            return
        if self.failure is not None:
            self.failure = None
            self.lose(now)
        elif self._connection is not None and not self._awaits_greeting:
            self._is_asking = True
            self._say_hello(self._connection, now)

    def unreachable(self) -> LedgerError:
        """What to tell who waited for a session that never stood; nothing was sent."""
        if self._is_locked_out and not self._is_absent:
            return self._refusal()
        if self.failure is not None:
            return self.failure
        seen = {"seen": self._seen} if self._seen else {}
        return NotLeaderError(
            "no node answers: is it running, and may this user connect?",
            endpoint=self.endpoint,
            **seen,
        )

    def close(self) -> None:
        """Say goodbye, and close the socket for good."""
        if self.welcome is not None:
            self.send([encode_header(Kind.GOODBYE, self.next_id())])
            self._close(GOODBYE_LINGER_MS)
        else:
            self._close(0)
        self.trust()
        self._reopen_at = NEVER

    def _leave(self) -> None:
        """Leave all to the parent: it has failed for good.

        Another session would take the place of the parent's, and send again what that has sent.
        """
        if self._connection is not None:
            _parents.append(self._connection)
        self._connection = self.stream = None
        self.trust()
        self.welcome = None
        self.failure = self._left_error()
        self.generation += 1

    def _begin_again(self, now: float) -> None:
        """Connect; where nobody was there before, only once somebody is."""
        if self._is_absent:
            self.failure = None
            self._is_absent = False
        if self.failure is None and self._absent_since == NEVER:
            self._open(now)
        elif self.failure is None:
            self._probe_at = now
            self._look_who_is_there(now)

    def _look_who_is_there(self, now: float) -> None:
        """Begin a probe that is due, and take what one has found."""
        if self._probe is None:
            if now < self._probe_at:
                return
            self._probe = Probe(self.endpoint, now)
            self._probe_at = NEVER
            self.generation += 1
        probe = self._probe
        if probe.look(now):
            self.generation += 1
        if not probe.is_done:
            return
        self._probe = None
        self.generation += 1
        self._seen, self._mechanism = probe.seen, probe.mechanism
        if probe.error is None:
            if self._absent_since != NEVER:
                self._absent_since = NEVER
                self._reopen_at = now
            self._note_refusal(now)
            return
        self._absent_since = min(self._absent_since, now)
        self.lose(now)
        if probe.is_sure or now >= self._absent_since + GRACE_S:
            # For so long whoever asks is told at once.
            self._reopen_at = now + ABSENT_MS / 1_000
            self.failure = probe.error
            self._is_absent = True

    def _note_refusal(self, now: float) -> None:
        """Fail where a node that is there has not let this client in, for long enough."""
        is_sure = self._mechanism == (_PLAIN if self._keys is not None else _SEALED)
        if not is_sure:
            if self._connection is not None:
                # That attempt is under way.
                return
            if not self._is_locked_out and not (self._was_cut_off and self._keys is not None):
                self._turned_away_since = NEVER
                return
        self._turned_away_since = min(self._turned_away_since, now)
        if is_sure or now >= self._turned_away_since + GRACE_S:
            self.lose(now)
            # The next attempt tells, and not another look at who is there.
            self._probe_at = NEVER
            self._reopen_at = now + ABSENT_MS / 1_000
            self.failure = self._refusal()
            self._is_absent = True

    def _refusal(self) -> LedgerError:
        """What to tell whom the node does not let in, as far as it is known why."""
        keys = self._keys
        if keys is None:
            return ConnectDeniedError(
                "node does not let this client in: it asks for keys (?keys=FILE behind the"
                " address), those of its users (ledgermq acl list)",
                endpoint=self.endpoint,
            )
        if self._mechanism == _PLAIN:
            return ConnectDeniedError(
                "node takes no keys at this address (listen.curve_secret_file): leave ?keys= out",
                endpoint=self.endpoint,
            )
        if self._is_locked_out:
            return ConnectDeniedError(
                "node does not let this client in: its key is that of none of the node's users"
                " (ledgermq acl list)",
                endpoint=self.endpoint,
                key=keys.public.decode(),
            )
        return UnreachableError(
            "node ends the connection while keys are exchanged: its own is another one than"
            " 'server' in the file of keys, or it begins and does not know its users yet",
            endpoint=self.endpoint,
            server=keys.server.decode(),
        )

    def trust(self) -> None:
        """Have no doubt that a node is there, any more: who is away is waited for."""
        if self._is_absent:
            self.failure = None
        self._is_watchful = self._is_absent = False
        self._absent_since = NEVER
        self._seen = ""
        if self._probe is not None:
            self._probe.close()
            self._probe = None
            self.generation += 1

    def _open(self, now: float) -> None:
        try:
            self._connection = self._connected()
        except ProtocolError as error:
            self.failure = error
            return
        except OSError as error:
            # The node is down, or begins; this user may not connect; no descriptor is left.
            self.lose(now, f"no connection: {error.strerror}")
            return
        self.generation += 1
        self.stays_readable = self._connection.stays_readable
        self._say_hello(self._connection, now)
        if self._is_watchful and self._probe is None:
            self._probe_at = now + PROBED_AFTER_S

    def _connected(self) -> NodeConnection:
        """A connection: the stream where there is one, else ZeroMQ's.

        Raises:
            ProtocolError: the endpoint can never be connected.
            OSError: nobody is there now, or no socket can be made.
        """
        if self._path:
            self.stream = open_stream(self._path)
            if self.stream is not None:
                return self.stream
        return ZmqConnection(self._context, self.endpoint, self._keys)

    def _say_hello(self, connection: NodeConnection, now: float) -> None:
        self._hello_id = self.next_id()
        self._refused = ""
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
            if self._is_watchful:
                self.trust()
            return
        refusal = decode_refused(parts[1])
        if refusal.retriable or self._is_asking:
            # ``advance`` ends what there is of a session.
            self._hello_until = 0.0
            self._refused = refusal.reason
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
        self._connection = self.stream = None


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
    ) -> None:
        super().__init__(context, address.consume, client=client, keys=keys)
        self._address = address
        self._is_found = False

    def lose(self, now: float, why: str = "") -> bool:
        """Give up the connection, and open another one soon; true when a session ended."""
        stood = super().lose(now, why)
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
