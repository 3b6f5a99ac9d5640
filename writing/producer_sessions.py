"""Sessions of producers: connections that have said HELLO, a bounded number of them.

Where there is no place for one more, an idle one makes way (``process/session_room.py``). If its
client is still there, the refusal of its next frame tells it to say HELLO again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ledgermq.model.settings import LimitsSection
from ledgermq.process.client_rights import ClientRights
from ledgermq.process.session_room import SessionRoom


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


class Ended(NamedTuple):
    """Sessions that are over because another one has begun.

    Attributes:
        older: one of the same instance.
        displaced: another client's, which had to make way.
    """

    older: bytes | None = None
    displaced: bytes | None = None


class ProducerSessions:
    """By the identity of the connection.

    Invariant: ``_instances`` names, for each instance of a session, the session, and nothing else.
    """

    def __init__(self, limits: LimitsSection) -> None:
        self._room = SessionRoom(limits)
        self._sessions: dict[bytes, Session] = {}
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
            self._room.use(identity)
        return session

    def take_limits(self, limits: LimitsSection) -> None:
        """The settings were read again: they count for who comes from now on."""
        self._room.limits = limits

    def begin(self, identity: bytes, session: Session) -> Ended:
        """Begin a session, or begin it anew.

        Another session of the same instance is over: frames that an older connection of it left
        behind must not be stored after their repetition, and find no session.

        Raises:
            BusyError: all are in use: each waits for the answer to a frame.
        """
        ended = Ended()
        older = self._instances.get(session.instance, identity)
        if older != identity and _is_same_peer(self._sessions[older], session):
            ended = Ended(older=older)
            self.end(older)
        host = session.rights.peer.host
        if identity not in self._sessions:
            displaced = self._room.displaced(host, is_idle=self._is_idle)
            if displaced is not None:
                ended = ended._replace(displaced=displaced)
                self.end(displaced)
        self.end(identity)
        self._room.add(identity, host)
        self._sessions[identity] = session
        if session.instance:
            self._instances.setdefault(session.instance, identity)
        return ended

    def end(self, identity: bytes) -> Session | None:
        """Forget a session, and return it if there was one."""
        self._room.remove(identity)
        session = self._sessions.pop(identity, None)
        if session is not None and self._instances.get(session.instance) == identity:
            del self._instances[session.instance]
        return session

    def _is_idle(self, identity: bytes) -> bool:
        return not self._sessions[identity].in_flight


def _is_same_peer(older: Session, session: Session) -> bool:
    """Whether two sessions are of one client, and not of one that has heard another's instance."""
    return older.rights.peer == session.rights.peer or older.rights.who == session.rights.who
