"""Sessions of producers: connections that have said HELLO, as many as there may be at a time.

ZeroMQ does not tell when a connection ends. So nobody is refused because others were here before:
where all places are taken, the session that has been idle for longest makes way. If its client is
still there, the refusal of its next frame tells it to say HELLO again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from ledgermq.model.errors import BusyError
from ledgermq.process.client_rights import ClientRights

SESSIONS_MAX = 10_000


@dataclass(slots=True)
class Session:
    """One connection that has said HELLO.

    Attributes:
        rights: what the client may do.
        version: of the protocol.
        terms_ended: how many terms of its own the node had ended when the session began.
        in_flight: bytes that are not answered yet.
        is_refused: a frame was refused that may come again; those that were sent behind it must not
            be stored before it.
    """

    name: str
    instance: str
    terms_ended: int
    rights: ClientRights
    version: int
    in_flight: int = 0
    is_refused: bool = False


class ProducerSessions:
    """By the identity of the connection, those that were used last at the end.

    Invariants: there are at most ``limit``; ``_instances`` names, for each instance of a session,
    the session, and nothing else.
    """

    def __init__(self, *, limit: int = SESSIONS_MAX) -> None:
        self._limit = limit
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._instances: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[bytes]:
        """Identities; sessions may be ended meanwhile."""
        return iter(list(self._sessions))

    def get(self, identity: bytes) -> Session | None:
        """The session of a connection; None when it has none, or none any more."""
        return self._sessions.get(identity)

    def use(self, identity: bytes) -> Session | None:
        """As ``get``; it has been idle for no time now."""
        session = self._sessions.get(identity)
        if session is not None:
            self._sessions.move_to_end(identity)
        return session

    def begin(self, identity: bytes, session: Session) -> list[bytes]:
        """Begin a session, or begin it anew.

        Another session of the same instance is over: frames that an older connection of it left
        behind must not be stored after their repetition, and find no session.

        Returns:
            those that are over besides.

        Raises:
            BusyError: all are in use: each waits for the answer to a frame.
        """
        ended = []
        older = self._instances.get(session.instance, identity)
        if older != identity and _is_same_peer(self._sessions[older], session):
            ended.append(older)
        if identity not in self._sessions and len(self._sessions) - len(ended) >= self._limit:
            ended.append(self._idle_for_longest())
        for one in (identity, *ended):
            self.end(one)
        self._sessions[identity] = session
        if session.instance:
            self._instances.setdefault(session.instance, identity)
        return ended

    def end(self, identity: bytes) -> Session | None:
        """Forget a session, and return it if there was one."""
        session = self._sessions.pop(identity, None)
        if session is not None and self._instances.get(session.instance) == identity:
            del self._instances[session.instance]
        return session

    def _idle_for_longest(self) -> bytes:
        for identity, session in self._sessions.items():
            if not session.in_flight:
                return identity
        raise BusyError(
            "too many connections that wait for answers",
            connections=len(self._sessions),
            limit=self._limit,
        )


def _is_same_peer(older: Session, session: Session) -> bool:
    """Whether two sessions are of one client, and not of one that has heard another's instance."""
    return older.rights.peer == session.rights.peer or older.rights.who == session.rights.who
