"""Term and vote on this node's disk: our two slots, and DLedger's ``currterm`` beside them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from ledgermq.ipc.loop import StopFlag
from ledgermq.model.errors import CorruptLogError, DiskFullError, StorageError
from ledgermq.model.events import Event
from ledgermq.model.ids import Term
from ledgermq.raft.messages import HardState
from ledgermq.raft.term_slots import (
    FILE_SIZE,
    VOTE_SIZE_MAX,
    StoredState,
    decode_slots,
    encode_slot,
)
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.files.disk_sync import make_directories, sync_content, sync_directory, sync_file
from ledgermq.store.files.kept_aside import FOLDER, keep_aside
from ledgermq.store.files.properties_file import (
    CurrentTerm,
    decode_current_term,
    encode_current_term,
)
from ledgermq.store.files.small_file import replace_file

logger = logging.getLogger(__name__)

_REMEDY = (
    "nobody knows whom this member has voted for; write a currTerm into the file that is higher"
    " than in those of all other members, without a voteLeader (docs/operating/what-to-do.md,"
    " «Term and vote cannot be read»)"
)

RETRY_S = 1.0
TRIES = 60
"""Times that the disk is asked for space for term and vote, ``RETRY_S`` apart, before the node
gives up."""


class SlotsFile:
    """Small file that is written slot by slot, and synced, before anybody hears of it.

    Attributes:
        path: where it is.
        content: what was found in it.
    """

    def __init__(self, path: Path, size: int, *, of: str) -> None:
        """Open ``path``, made with ``size`` zeros if it is not there.

        Args:
            of: what is in it, as errors say it.

        Raises:
            StorageError: the operating system refused.
        """
        self.path = path
        self._of = of
        try:
            make_directories(path.parent)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.content = os.pread(self._fd, size, 0)
            if not self.content:
                os.ftruncate(self._fd, size)
                sync_file(self._fd)
                sync_directory(path.parent)
        except OSError as error:
            raise self.error("open", error) from error

    def write(self, offset: int, slot: bytes) -> None:
        """Durable when this returns.

        Raises:
            DiskFullError: there is no space for it now.
            StorageError: it is not, and nothing that depends on it may leave the node.
        """
        try:
            os.pwrite(self._fd, slot, offset)
        except OSError as error:
            raise self.error("write", error) from error
        try:
            sync_content(self._fd)
        except OSError as error:
            raise self.error("sync", error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def error(self, verb: str, error: OSError) -> StorageError:
        """What to raise for ``error`` of ``verb``: a sync without space is no full disk."""
        text = f"could not {verb} {self._of}"
        if verb == "sync":
            reason = error.strerror
            return StorageError(text, errno=error.errno, file=str(self.path), reason=reason)
        return storage_error(text, error, file=str(self.path))


class TermFile:
    """Reads and writes the hard state; owned by the raft process."""

    def __init__(self, slots: Path, current_term: Path | None, *, is_alone: bool = False) -> None:
        """Open ``slots``, made if it is not there; what is found is durable then.

        Args:
            current_term: DLedger's text file, a mirror for a broker that takes the directory back;
                None with a plain CommitLog. One that lags is written anew.
            is_alone: nobody else can have got this node's vote: a text file that cannot be read,
                as RocketMQ leaves it after a power failure, is kept aside and counts for nothing.

        Raises:
            StorageError: the operating system refused.
            CorruptLogError: what is there cannot be trusted for a vote; says what to do.
        """
        self._is_alone = is_alone
        self._current_term = current_term
        self._slots = SlotsFile(slots, FILE_SIZE, of="term and vote")
        if current_term is not None:
            # Of a new log, which the writer may not have begun when this node is asked to vote.
            try:
                make_directories(current_term.parent)
            except OSError as error:
                raise self._slots.error("open", error) from error
        stored = self._decode(self._slots.content)
        mirrored = self._read_current_term()
        self._sequence, self.state = stored or StoredState(0, HardState(Term(0), None))
        if stored is not None:
            # Who wrote it may have ended before it was synced, or because that failed. Into its own
            # slot: the other one has what was promised before.
            self._write(stored)
        if _order(mirrored) > _order(self.state):
            # Another broker had the directory since, and does not sync.
            self.persist(mirrored)
        elif stored is not None and mirrored != self.state:
            self._mend_mirror()

    def persist(self, state: HardState) -> None:
        """Durable when this returns.

        Raises:
            DiskFullError: there is no space for it now.
            StorageError: it is not, and nothing that depends on it may leave the node.
        """
        self._write(StoredState(self._sequence + 1, state))
        self._sequence += 1
        self.state = state
        try:
            self._mirror()
        except DiskFullError as error:
            # The next term or vote, or the next start, says it again.
            logger.warning("DLedger's text file of term and vote not written: %s", error)

    def close(self) -> None:
        """Close the file."""
        self._slots.close()

    def _mirror(self) -> None:
        if self._current_term is not None:
            content = encode_current_term(CurrentTerm(self.state.term, self.state.vote))
            replace_file(self._current_term, content)

    def _mend_mirror(self) -> None:
        """A life before has ended between the slot and the text file, or somebody took that away.

        Nothing of this node goes by it.
        """
        try:
            self._mirror()
        except StorageError as error:
            logger.warning("DLedger's text file of term and vote not written anew: %s", error)

    def _write(self, stored: StoredState) -> None:
        self._slots.write(*encode_slot(*stored))

    def _decode(self, content: bytes) -> StoredState | None:
        try:
            return decode_slots(content)
        except CorruptLogError as error:
            raise CorruptLogError(
                f"{error.message}: move it away, and {_REMEDY}", file=str(self._slots.path)
            ) from error

    def _read_current_term(self) -> HardState:
        if self._current_term is None or not self._current_term.exists():
            return HardState(Term(0), None)
        try:
            text = self._current_term.read_bytes()
        except OSError as error:
            raise self._slots.error("read", error) from error
        try:
            current = decode_current_term(text, file=str(self._current_term))
        except CorruptLogError as error:
            if not self._is_alone:
                raise CorruptLogError(f"{error.message}: {_REMEDY}", **error.details) from error
            aside = self._slots.path.parent / FOLDER
            keep_aside(self._current_term, aside, reason=f"term and vote: {error.message}")
            return HardState(Term(0), None)
        if current.vote is not None and len(current.vote.encode()) > VOTE_SIZE_MAX:
            raise CorruptLogError(
                "vote for nobody who can be a member",
                file=str(self._current_term),
                size=len(current.vote.encode()),
                limit=VOTE_SIZE_MAX,
            )
        return HardState(current.term, current.vote)


def when_there_is_space(
    persist: Callable[[], None], sign_of_life: Callable[[], None], stop: StopFlag
) -> None:
    """Call ``persist``, again and again while the disk has no space for it.

    A node that cannot note its vote gives none; the others go on without it meanwhile.

    Raises:
        StorageError: there was no space for so long that somebody has to look, or the process was
            told to stop before there was.
    """
    for attempt in range(TRIES):
        try:
            persist()
            return
        except DiskFullError as error:
            if attempt == 0:
                logger.warning(
                    "term and vote wait for space on the disk, this node gives no vote: %s",
                    error,
                    extra={"event": Event.DISK_FULL},
                )
            if stop.reason:
                raise
        sign_of_life()
        time.sleep(RETRY_S)
    persist()


def _order(state: HardState) -> tuple[int, bool]:
    """Order of states: by term, and within a term a vote is newer than none."""
    return state.term, state.vote is not None
