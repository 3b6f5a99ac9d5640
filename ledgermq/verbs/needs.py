"""Rights that verbs need: what is looked at before anybody answers."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ledgermq.model.rights import Right

ANY = Right.PUB | Right.SUB
"""Either is enough."""


class VerbNeed(Enum):
    """Who may make a call at all, where users are checked; rights to what it names come besides."""

    USER = "one of the users"
    ADMIN_ANYWHERE = "an admin: the port makes such calls for its clients"
    ADMIN = "an admin, on this machine unless the settings allow it elsewhere"


class VerbNeeds(NamedTuple):
    """What a call needs.

    Attributes:
        topic: right to the argument ``topic``.
        topic_to_create: the right in its place where the argument ``create`` is true.
        is_of_group: the argument ``group`` needs a right, too.
        is_audited: each such call leaves a line in the log.
        is_read: it changes nothing that is known to whoever asks next. Of each verb that does,
            ``tests/acknowledged`` knows how that is found again when all processes have died.
        is_look: that, and its answer is names and numbers: who may only look may make it.
    """

    need: VerbNeed
    topic: Right | None = None
    topic_to_create: Right | None = None
    is_of_group: bool = False
    is_audited: bool = False
    is_read: bool = False
    is_look: bool = False


USER = VerbNeeds(VerbNeed.USER)
"""Also of a verb whose arguments do not say what it is about. It asks for the right to what it
finds by itself: that of a message is the right to its topic, however the message is named."""

ADMIN_ANYWHERE = VerbNeeds(VerbNeed.ADMIN_ANYWHERE)
ADMIN = VerbNeeds(VerbNeed.ADMIN)
CHANGE = VerbNeeds(VerbNeed.ADMIN, is_audited=True)
GROUP = VerbNeeds(VerbNeed.USER, is_of_group=True)


def read(needs: VerbNeeds) -> VerbNeeds:
    """The same of a call that changes nothing."""
    return needs._replace(is_read=True)


def shown(needs: VerbNeeds) -> VerbNeeds:
    """The same of a call that changes nothing, and who may only look may make it."""
    return needs._replace(is_read=True, is_look=True)


def topic_right(right: Right, *, to_create: Right | None = None) -> VerbNeeds:
    """A right to the argument ``topic``; another one where it may be created by that."""
    return VerbNeeds(VerbNeed.USER, topic=right, topic_to_create=to_create)


def both_rights(right: Right) -> VerbNeeds:
    """A right to the argument ``topic``, and that to consume as ``group``."""
    return VerbNeeds(VerbNeed.USER, topic=right, is_of_group=True)
