"""Sessions of one client socket: HELLO and WELCOME, who makes way, refusals, and their counters.

Writer and broker have one each. Where there is no place for one more session, an idle one makes way
(``SessionRoom``). If its client is still there, the refusal of its next message tells it to say
HELLO again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from ledgermq.ipc.counters import BrokerCounter, Counts, WriterCounter
from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    NoPermissionError,
    ProtocolError,
    QuotaError,
    StaleGenerationError,
)
from ledgermq.sessions.client_rights import ClientRights
from ledgermq.sessions.client_socket import ClientSocket
from ledgermq.sessions.leadership.standing import UNKNOWN
from ledgermq.wire.header import VERSION_MIN
from ledgermq.wire.session import (
    NOT_TOLD,
    Standing,
    Welcome,
    encode_refused,
    encode_role,
    encode_welcome,
)


class SessionRoom:
    """Sessions by the identity of their connections, those that were used last at the end.

    Invariants: ``_of_host`` has the identities of ``placed``, by host; an operator's is in neither.

    Attributes:
        limits: of the settings; may be replaced.
        placed: host of each.
    """

    def __init__(self, limits: LimitsSection) -> None:
        self.limits = limits
        self.placed: OrderedDict[bytes, str] = OrderedDict()
        self._of_host: dict[str, OrderedDict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self.placed)

    def displaced(
        self, host: str, *, is_idle: Callable[[bytes], bool] = lambda _: True
    ) -> bytes | None:
        """Whose session has to make way for another one of ``host``; None: there is room.

        Args:
            host: empty for an operator.
            is_idle: whether a session may be ended now.

        Raises:
            BusyError: all of them are in use; names the setting.
        """
        if not host:
            return None
        mine = self._of_host.get(host, ())
        for count, limit, candidates, name in (
            (len(mine), self.limits.sessions_per_address, mine, "sessions_per_address"),
            (len(self), self.limits.sessions_max, self.placed, "sessions_max"),
        ):
            if count < limit:
                continue
            found = next((one for one in candidates if is_idle(one)), None)
            if found is None:
                raise BusyError(
                    "too many connections that wait for answers",
                    connections=count,
                    limit=limit,
                    setting=f"limits.{name}",
                )
            return found
        return None

    def add(self, identity: bytes, host: str) -> None:
        """A session has begun, perhaps anew; an operator's, without a host, takes no place."""
        self.remove(identity)
        if host:
            self.placed[identity] = host
            self._of_host.setdefault(host, OrderedDict())[identity] = None

    def use(self, identity: bytes) -> None:
        """One of ``placed`` has been idle for no time now."""
        self.placed.move_to_end(identity)
        self._of_host[self.placed[identity]].move_to_end(identity)

    def remove(self, identity: bytes) -> None:
        """A session is over, if it had a place."""
        host = self.placed.pop(identity, None)
        if host is not None:
            mine = self._of_host[host]
            del mine[identity]
            if not mine:
                del self._of_host[host]


HELLO_PARTS = 3


@dataclass(slots=True)
class Session:
    """One connection that has said HELLO.

    Attributes:
        rights: what the client may do.
        instance: of the connections of one, the newest alone has a session; empty: of none.
        in_flight: bytes that the client has credit for, and no answer to. While there are some, its
            session makes way for nobody.
    """

    name: str
    rights: ClientRights
    instance: str = ""
    in_flight: int = 0


Known = TypeVar("Known", bound=Session)


class EndedSessions(NamedTuple):
    """Sessions that are over because another one has begun.

    Attributes:
        older: one of the same instance.
        displaced: another client's, which had to make way.
    """

    older: bytes | None = None
    displaced: bytes | None = None


class SessionServer(Generic[Known]):
    """Sessions of the clients of a socket, by the identity of their connections.

    Invariant: ``_instances`` names, for each instance of a session, the session, and nothing else.

    Attributes:
        socket: the clients'.
        standing: what clients were told last of this node.
        sessions: all that there are; others only look at them.
        placed: those that take a place, which operators' do not; who is used is at its end.
        use: one of ``placed`` is used.
    """

    def __init__(
        self,
        socket: ClientSocket,
        counts: Counts,
        kinds: type[WriterCounter | BrokerCounter],
        limits: LimitsSection,
        *,
        welcome: Welcome,
        statuses: Mapping[type[LedgerError], str],
        forget: Callable[[bytes], object],
    ) -> None:
        """Nobody has said HELLO.

        Args:
            kinds: which of ``counts`` are counted.
            welcome: all of it but who leads.
            statuses: names of refusals that say more than that of the error's class.
            forget: called for each session that is over.
        """
        self.socket = socket
        self.standing = UNKNOWN
        self._counts = counts
        self._kinds = kinds
        self._welcome = welcome
        self._statuses = statuses
        self._forget = forget
        self._room = SessionRoom(limits)
        self.placed, self.use = self._room.placed, self._room.use
        self.sessions: dict[bytes, Known] = {}
        self._instances: dict[str, bytes] = {}

    def used(self, identity: bytes) -> Known:
        """The session of who has sent the message that was received last; it is not idle now.

        Raises:
            StaleGenerationError: it has none, or another client has: one may choose its identity,
                and take that of one which has gone.
        """
        session = self.sessions.get(identity)
        if session is not None:
            if identity in self.placed:
                self._room.use(identity)
            peer = self.socket.peer
            if session.rights.peer is peer or session.rights.peer == peer:
                return session
        raise StaleGenerationError("no session: say HELLO first")

    def take_limits(self, limits: LimitsSection) -> None:
        """The settings were read again: they count for who comes from now on."""
        self._room.limits = limits
        self.socket.take_limits(limits)

    def begin(self, identity: bytes, session: Known) -> EndedSessions:
        """Begin a session, or begin it anew.

        Another session of the same instance is over: frames that an older connection of it left
        behind must not be stored after their repetition, and find no session.

        Raises:
            BusyError: all are in use: each waits for the answer to a frame.
        """
        older = self._instances.get(session.instance, identity)
        if older != identity and _is_same_peer(self.sessions[older], session):
            self._end(older)
        else:
            older = identity
        host = session.rights.peer.host
        displaced = None
        if identity not in self.sessions:
            # A client that has connected anew displaces nobody.
            displaced = self._room.displaced(host, is_idle=self._is_idle)
            if displaced is not None:
                self._counts[self._kinds.SESSIONS_DISPLACED] += 1
                self._end(displaced)
        self._remove(identity)
        self._room.add(identity, host)
        self.sessions[identity] = session
        if session.instance:
            self._instances.setdefault(session.instance, identity)
        return EndedSessions(None if older == identity else older, displaced)

    def end(self, identity: bytes) -> None:
        """Forget a session, if there is one."""
        if identity in self.sessions:
            self._end(identity)
        self._counts[self._kinds.SESSIONS] = len(self.sessions)

    def hello(self, parts: list[bytes]) -> bytes:
        """The body of the HELLO that was received last.

        Raises:
            ProtocolError: it has none.
        """
        if len(parts) != HELLO_PARTS:
            raise ProtocolError("HELLO without a body", parts=len(parts) - 1)
        return parts[2]

    def welcome(
        self,
        identity: bytes,
        request_id: int,
        *,
        produce: str = "",
        version: int = VERSION_MIN,
        position: int = NOT_TOLD,
    ) -> None:
        """Answer a HELLO; see ``Welcome``."""
        self._counts[self._kinds.SESSIONS] = len(self.sessions)
        standing = self.standing
        welcome = replace(
            self._welcome,
            role=standing.role,
            term=standing.term,
            leader=standing.leader,
            produce=produce,
            version=version,
            position=position,
        )
        self.send(identity, encode_welcome(request_id, welcome))

    def tell_standing(self, standing: Standing, position: int = NOT_TOLD) -> None:
        """Tell all clients what this node is in its group now.

        Args:
            position: see ``Welcome``.
        """
        self.standing, parts = standing, encode_role(standing, position)
        for identity in list(self.sessions):
            self.send(identity, parts)

    def refuse(
        self, identity: bytes, request_id: int, error: LedgerError, *, record: int | None = None
    ) -> None:
        """Answer a request with ``error``; see ``encode_refused``."""
        counts, kinds = self._counts, self._kinds
        counts[kinds.REFUSED] += 1
        counts[kinds.DENIED] += isinstance(error, NoPermissionError)
        counts[kinds.THROTTLED] += isinstance(error, QuotaError)
        status = self._statuses.get(type(error))
        self.send(identity, encode_refused(request_id, error, record=record, status=status))

    def send(self, identity: bytes, parts: list[bytes]) -> None:
        """Answer a client; one that is gone, or does not read, loses its session."""
        if not self.socket.send(identity, parts):
            self.lose(identity)

    def lose(self, identity: bytes) -> None:
        """A client could not be answered."""
        self._counts[self._kinds.UNANSWERABLE] += 1
        self.end(identity)

    def close(self) -> None:
        """Unbind the socket."""
        self.socket.close()

    def _end(self, identity: bytes) -> None:
        self._remove(identity)
        self._forget(identity)

    def _remove(self, identity: bytes) -> None:
        self._room.remove(identity)
        session = self.sessions.pop(identity, None)
        if session is not None and self._instances.get(session.instance) == identity:
            del self._instances[session.instance]

    def _is_idle(self, identity: bytes) -> bool:
        return not self.sessions[identity].in_flight


def _is_same_peer(older: Session, session: Session) -> bool:
    """Whether two sessions are of one client, and not of one that has heard another's instance."""
    return older.rights.peer == session.rights.peer or older.rights.who == session.rights.who
