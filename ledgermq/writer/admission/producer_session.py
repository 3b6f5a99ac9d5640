"""Session of a producer, as the writer keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.sessions.session_server import Session


@dataclass(slots=True)
class ProducerSession(Session):
    """A producer's.

    Attributes:
        version: of the protocol.
        terms_ended: how many terms of its own the node had ended when the session began.
        is_refused: a frame was refused that may come again; those that were sent behind it must not
            be stored before it.
    """

    version: int = 0
    terms_ended: int = 0
    is_refused: bool = False
