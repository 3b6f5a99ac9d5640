"""Errors that cross packages; each has a number that is never given to another one.

A bug is an ``assert``. What comes from disk, network, another process or the operator is one of
these.
"""

from __future__ import annotations

import errno
from pathlib import PurePath
from typing import ClassVar, Self

from ledgermq.model.features import LEVEL, version_of

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers by which an operating system says that a disk is full, or somebody's share of it."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Numbers that mean that the process or the machine has no descriptor left, and no disk has
failed."""


class LedgerError(Exception):
    """What went wrong in one sentence, with the values that matter as ``details``.

    Attributes:
        number: stable number of the kind of error, also on the wire.
        retriable: the same request may succeed later, unchanged.
        details: values by name, printed behind the sentence.
    """

    number: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        if not self.details:
            return self.message
        values = ", ".join(f"{name}={value!r}" for name, value in self.details.items())
        return f"{self.message} ({values})"


class ConfigError(LedgerError):
    """The operator's settings cannot be used; the text names file, line and key."""

    number = 10


class ClosedError(ConfigError):
    """The client was closed, or is another process's: one that was forked makes its own."""

    number = 63


class NameUnknownError(ConfigError):
    """The name of a node stands for no address, as far as the resolver knows; asked anew with the
    next call.
    """

    number = 67


class NewerVersionError(ConfigError):
    """What is in the log or in a file of the node needs a newer version: nothing is wrong with it.

    Attributes:
        level: the feature level that it needs, as far as it says so; else the next one.
    """

    number = 61

    def __init__(self, message: str, *, level: int, **details: object) -> None:
        super().__init__(message, level=level, known=LEVEL, version=version_of(level), **details)
        self.level = level


class ProtocolError(LedgerError):
    """A peer or client sent what the protocol does not allow; nothing was stored."""

    number = 20


class MessageIllegalError(LedgerError):
    """A message breaks a limit or a rule; nothing of its frame was stored."""

    number = 21


class TopicUnknownError(LedgerError):
    """The topic or the queue does not exist, or may not be used that way."""

    number = 22


class FilterIllegalError(LedgerError):
    """A filter cannot be read or may not be used; names position and token."""

    number = 28


class NoPermissionError(LedgerError):
    """The topic is not one that clients may use so, or this client may not; names the right."""

    number = 23


class ConnectDeniedError(NoPermissionError):
    """The account may not connect to the sockets of a node of this machine, and which group it has
    to join; or the node does not take the client's keys, or that it has none. The same call would
    fail again before that is changed.
    """

    number = 66


class GroupUnknownError(LedgerError):
    """There is no such subscription group."""

    number = 26


class MessageUnknownError(LedgerError):
    """There is no such message, or not any more."""

    number = 62


class GroupActiveError(LedgerError):
    """Members of the group consume now: they would undo what was asked for, or are of another kind
    than the one that wants to join them.
    """

    number = 27


class TransactionUnknownError(LedgerError):
    """No transaction of that name waits for its end, and how one ended is not remembered."""

    number = 50


class TransactionEndedError(LedgerError):
    """The transaction has ended already, and not in the way that was asked for."""

    number = 51


class StagedUnknownError(LedgerError):
    """Rows that are to be committed are not staged, or not any more; nothing was committed."""

    number = 52


class NotLeaderError(LedgerError):
    """This node may not take the request now; another one may."""

    number = 30
    retriable = True


class UnreachableError(NotLeaderError):
    """Nobody takes the connection at any of the addresses, and none of the nodes has answered this
    client before; nothing was asked or stored. The node may be about to start.
    """

    number = 64


class StrangerError(UnreachableError):
    """Something answers at the address that is no node of ours; names what it speaks.

    The same call would fail again.
    """

    number = 65
    retriable = False


class BusyError(LedgerError):
    """A bound was reached and nothing was stored; try again later."""

    number = 31
    retriable = True


class QuotaError(BusyError):
    """A quota is used up and nothing was stored or given; ``retry_after_ms`` says for how long."""

    number = 36


class ColdAwayError(LedgerError):
    """Old messages cannot be read now from where they are sealed: names the place, since when it is
    so, and why. Nothing was passed over.
    """

    number = 68
    retriable = True


class KeyMissingError(ColdAwayError):
    """Old messages are locked with a key of their topic that is not here: names both. Where the key
    was deleted, they are gone; asking again gives nothing.
    """

    number = 69
    retriable = False


class OutcomeUnknownError(LedgerError):
    """The request may or may not be stored: retry with the same unique ids."""

    number = 32
    retriable = True


class TimedOutError(OutcomeUnknownError):
    """No answer within the caller's time; the request may or may not be stored."""

    number = 33


class AttemptUnknownError(OutcomeUnknownError):
    """Nobody can tell any more whether an earlier attempt was stored, so nothing more was.

    The same request would be refused again.
    """

    number = 34
    retriable = False


class UnexpectedError(LedgerError):
    """The request has met a bug of the node; nobody knows what became of it, nothing else suffers.

    Not to be sent again as it is: it would meet the same bug.
    """

    number = 60


class CorruptLogError(LedgerError):
    """Bytes on disk are not what was written there; names file, offset and field."""

    number = 40


class DamagedLogError(CorruptLogError):
    """Bytes of the log are damaged, and are not given out until they are repaired."""

    number = 45
    retriable = True


class BodyUnreadableError(CorruptLogError):
    """A compressed body cannot be made plain; the message and its stored bytes are there."""

    number = 49


class StorageError(LedgerError):
    """The operating system said no; keeps ``errno``."""

    number = 41

    def __init__(self, message: str, *, errno: int | None = None, **details: object) -> None:
        super().__init__(message, **details)
        self.errno = errno

    @classmethod
    def of(cls, message: str, error: OSError, *, why: str = "apart", **details: object) -> Self:
        """The error for what the operating system refused; paths among ``details`` become texts.

        Args:
            why: where its reason is told: ``apart`` behind the details, ``within`` the sentence,
                or, empty, not at all.
        """
        told = {name: _text_of_path(value) for name, value in details.items()}
        if why == "within":
            message = f"{message}: {error.strerror}"
        elif why:
            told["reason"] = error.strerror
        return cls(message, errno=error.errno, **told)


def _text_of_path(value: object) -> object:
    return str(value) if isinstance(value, PurePath) else value


class refused_as:  # noqa: N801 - it is called as a function is
    """What the operating system refuses within the block is a ``StorageError`` of this sentence.

    The arguments are those of ``StorageError.of``; one that ``writes`` may find the disk full.
    """

    def __init__(
        self, message: str, *, why: str = "apart", writes: bool = False, **details: object
    ) -> None:
        self._message = message
        self._why = why
        self._writes = writes
        self._details = details

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        if isinstance(error, OSError):
            kind = DiskFullError if self._writes and error.errno in NO_SPACE else StorageError
            raise kind.of(self._message, error, why=self._why, **self._details) from error


class StaleGenerationError(LedgerError):
    """The process on the other side was replaced; shake hands again."""

    number = 42
    retriable = True


class StoreLockedError(LedgerError):
    """Another process holds the store directory; names its pid."""

    number = 43


class DiskFullError(StorageError):
    """The disk has no space, or less than the settings keep free; nothing was stored."""

    number = 44


def corrupt(text: str, file: str, offset: int, field: str, value: object) -> CorruptLogError:
    """What is wrong with a ``field`` at ``offset`` of ``file``, which says ``value``."""
    return CorruptLogError(text, file=file, offset=offset, field=field, value=value)
