"""Modes in which groups of RocketMQ's push consumers ask for a topic's messages.

A text of the name values for each group and topic that is to take messages singly: ``POP`` and the
number of further members whose queues a member takes from, too; 0: all. Others pull.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ledgermq.rules.tables.name_values import REQUEST_MODES, NameValues

SHARE_QUEUES_MAX = 2**31 - 1
_POP = "POP"


class RequestMode(NamedTuple):
    """How a group asks for the messages of a topic.

    Attributes:
        takes_singly: by POP, and not by pulls.
        share_queues: of POP: a member takes from its own queues and from those of so many members
            behind it; 0: from all.
    """

    takes_singly: bool
    share_queues: int = 0

    @property
    def text(self) -> str | None:
        """The text that says so; None: none does."""
        return f"{_POP} {self.share_queues}" if self.takes_singly else None


PULL = RequestMode(False)


def mode_key(group: str, topic: str) -> str:
    """The key of a group's mode in a topic, in ``REQUEST_MODES``."""
    return f"{group}@{topic}"


def request_modes(names: NameValues) -> Iterator[tuple[str, str, RequestMode]]:
    """Groups and topics that are said to have a mode, and what it is."""
    for key in sorted(names.of(REQUEST_MODES)):
        group, _, topic = key.rpartition("@")
        yield group, topic, request_mode(names, group, topic)


def request_mode(names: NameValues, group: str, topic: str) -> RequestMode:
    """How a group is to ask for a topic's messages; a text that an operator has put there, and that
    says nothing, is as if there were none.
    """
    kind, _, share = (names.get(REQUEST_MODES, mode_key(group, topic)) or "").partition(" ")
    if kind != _POP or not (share.isascii() and share.isdecimal()):
        return PULL
    return RequestMode(True, min(int(share[:10]), SHARE_QUEUES_MAX))
