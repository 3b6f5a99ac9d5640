"""Origin of a store directory: who wrote it, in which mode, and what of it a node goes on with.

Read-only, and bounded in time and bytes, for a directory may hold anything.

A directory of RocketMQ 4.9 is taken as it is, and so is most of one of RocketMQ 5. What RocketMQ 5
keeps elsewhere than in the log and in JSON tables would vanish without a word, so it is refused
before a byte is changed (docs/decisions/0126). A store that a node has run on is ours: what it uses
was asked at its first start, and is asked again only where RocketMQ 5 has gone on with it since.

The epochs of controller mode are compared with the log, taken as it is. Confirmed is what all
brokers in sync had: what stands behind that may have been acknowledged by a master that was alone,
or never, and only people know which broker led last. So it is told. What is refused is a log that
lacks something of what was confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.epoch_file import EPOCH_FILE, Epoch, decode_epochs
from ledgermq.formats.records.message import MAGICS, SIZE_AND_MAGIC, SIZE_MIN
from ledgermq.formats.store_markers import COMMITLOG_BLANK_MAGIC
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.store import origin_files
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.origin_files import TABLE_BYTES_MAX, Found, OriginFiles, bounded_bytes

EPOCH_FILE_SIZE_MAX = 1 << 20
RECORDS_MAX = 4_000_000
"""Most records that are passed, in the file that has the confirmed offset and behind it."""

PASSING_S_MAX = 30.0
"""Longest time that this takes."""

_CONFIRMED = Struct(">q")
_CONFIRMED_AT = 32
"""Offset of RocketMQ 5's confirmPhyOffset in ``checkpoint``."""

_LOOK = 4_096
"""Records between two looks at the clock."""


class _Behind(NamedTuple):
    """The log behind a position: where it ends, how many records end behind the position, and
    whether that is all of it.
    """

    end: int
    records: int
    is_all: bool


def unconfirmed(files: OriginFiles) -> Iterator[Found]:
    """What of a controller's log is not confirmed, or is confirmed and not there."""
    try:
        log = MappedFiles(files.root / "commitlog")
        if log.is_empty:
            return
        epochs = _epochs(files)
        content = bounded_bytes(files.root / "checkpoint", _CONFIRMED_AT + _CONFIRMED.size)
        if len(content) < _CONFIRMED_AT + _CONFIRMED.size:
            raise CorruptLogError("checkpoint does not say what is confirmed")
        (confirmed,) = _CONFIRMED.unpack_from(content, _CONFIRMED_AT)
        confirmed = max(confirmed, log.first)
        behind = _passed(log, min(confirmed, log.end), confirmed)
    except CorruptLogError as error:
        what = f"what is confirmed of a controller's log cannot be told: {error.message}"
        yield Found(StrangeUse.UNCONFIRMED, what, None)
        return
    number, start = epochs[-1]
    if behind.is_all and behind.end < max(confirmed, start):
        what = (
            f"the log ends at {behind.end:,}, and was confirmed up to {confirmed:,}, in epoch"
            f" {number}, which begins at {start:,}"
        )
        yield Found(StrangeUse.UNCONFIRMED, what, None)
    elif behind.records:
        least = "" if behind.is_all else "at least "
        what = (
            f"the log of epoch {number} goes on behind the confirmed offset {confirmed:,}, with"
            f" {least}{behind.end - confirmed:,} bytes, {behind.records:,} messages, which were"
            " acknowledged only if this broker was the last master"
        )
        yield Found(StrangeUse.UNCONFIRMED, what, behind.records, True)


def _epochs(files: OriginFiles) -> tuple[Epoch, ...]:
    """The epochs of the file, or else of the one before it, as RocketMQ reads them."""
    try:
        return decode_epochs(bounded_bytes(files.root / EPOCH_FILE, EPOCH_FILE_SIZE_MAX))
    except CorruptLogError:
        before = bounded_bytes(files.root / f"{EPOCH_FILE}.bak", EPOCH_FILE_SIZE_MAX)
        if not before:
            raise
        return decode_epochs(before)


def _passed(log: MappedFiles, near: int, confirmed: int) -> _Behind:
    """Pass the records from the begin of a file on, for ``confirmed`` may lie inside of one.

    Args:
        near: in which file, or at whose end.
    """
    position = max(log.first, log.start_of(max(near - 1, log.first)))
    deadline = time.monotonic() + PASSING_S_MAX
    records = 0
    for number in range(RECORDS_MAX):
        if position >= log.end or (number % _LOOK == 0 and time.monotonic() > deadline):
            return _Behind(position, records, position >= log.end)
        room = log.room(position)
        if room < SIZE_AND_MAGIC.size:
            return _Behind(position, records, True)
        size, magic = SIZE_AND_MAGIC.unpack(log.view(position, SIZE_AND_MAGIC.size))
        if magic == COMMITLOG_BLANK_MAGIC:
            if log.start_of(position) + log.file_size >= log.end:
                return _Behind(position, records, True)
            position += room
            continue
        if magic not in MAGICS or not SIZE_MIN <= size <= room:
            return _Behind(position, records, True)
        position += size
        records += position > confirmed
    return _Behind(position, records, False)


class Product(StrEnum):
    """Whose store it is, as far as signs tell."""

    NONE = "no store"
    ROCKETMQ_4 = "RocketMQ 4"
    ROCKETMQ_5 = "RocketMQ 5"
    OURS = "LedgerMQ"


class Mode(StrEnum):
    """How the log is replicated."""

    PLAIN = "plain"
    DLEDGER = "DLedger"
    CONTROLLER = "controller"


class UseVerdict(StrEnum):
    """What becomes of a use.

    TAKEN: a node goes on with it. KEPT: it stays as it is for RocketMQ, and nothing is lost.
    UNHEEDED: a setting that stays in its table, and nothing here goes by it. REFUSED: messages,
    topics or offsets would be lost.
    """

    TAKEN = "taken"
    KEPT = "kept"
    UNHEEDED = "not obeyed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Use:
    """One thing that the directory uses.

    Attributes:
        name: what ``store.leave_behind`` calls it; a path where it cannot be left behind.
        what: the thing in words, with its numbers.
        count: how many messages, topics or whatever it is about; None where nobody can tell.
        remedy: what an operator does before the move; empty where there is nothing to do.
    """

    name: str
    verdict: UseVerdict
    what: str
    count: int | None = None
    remedy: str = ""

    @property
    def text(self) -> str:
        """The use in one line."""
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


@dataclass(frozen=True, slots=True)
class Origin:
    """What a directory is.

    Attributes:
        signs: paths below ``root`` that only RocketMQ 5 writes.
        uses: of RocketMQ 5's; those that are refused stand first.
    """

    root: Path
    product: Product
    mode: Mode
    signs: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()

    @property
    def refused(self) -> tuple[Use, ...]:
        """The uses that would be lost."""
        return tuple(use for use in self.uses if use.verdict is UseVerdict.REFUSED)


OTHER_QUEUES = (StrangeUse.TABLES,)
"""Uses whose queues are not those that the log tells: who builds queues from it destroys them."""

_WAIT = "start RocketMQ on the directory again"
_REMEDIES = {
    StrangeUse.TABLES: (
        "ledgermq migrate take-over makes JSON tables and queue files of them"
        " (pip install 'ledgermq[rocksdb]')"
    ),
    StrangeUse.TIMERS: f"{_WAIT}, let it deliver what waits, and stop it in order",
    StrangeUse.POP: (
        f"{_WAIT}, let the POP consumers read on until nothing is left, end them, wait until what"
        " was handed out is visible again and read, and stop the broker in order"
    ),
    StrangeUse.STATIC: "let consumers read them, and delete these topics",
    StrangeUse.ROCKSDB: (
        f"{_WAIT}, with timers, transactions and POP in RocksDB switched off in broker.conf, let it"
        " deliver what is there, and stop it in order"
    ),
    StrangeUse.UNCONFIRMED: ("take the directory of the broker that was the master last, whole"),
}


_LOOKS = (
    (StrangeUse.TABLES, origin_files.tables_elsewhere),
    (StrangeUse.BATCH, origin_files.batch_queues),
    (StrangeUse.COMPACTED, origin_files.compacted),
    (StrangeUse.STATIC, origin_files.static_topics),
    (StrangeUse.ROCKSDB, origin_files.rocksdb_stores),
    (StrangeUse.UNCONFIRMED, unconfirmed),
)
"""What finds each use by the directory's files and tables."""


def origin_of(
    root: Path, *, self_id: str | None = None, left_behind: Collection[str] = ()
) -> Origin:
    """Look what ``root`` is; nothing is changed.

    Args:
        self_id: whose DLedger log counts, where there are several.
        left_behind: names of uses that are not looked for.

    Raises:
        StorageError: something cannot be read.
    """
    with refused_as("store directory not looked at", directory=root):
        return _origin_of(root, self_id, left_behind)


def refuse_strange(
    root: Path,
    *,
    self_id: str | None = None,
    left_behind: Collection[str] = (),
    uses: Collection[StrangeUse] | None = None,
    is_start: bool = True,
) -> None:
    """Refuse a directory of which something would be lost; nothing is changed.

    Args:
        left_behind: names of uses that the operator leaves behind.
        uses: those that matter to the caller; None for all.
        is_start: a node is about to take the store, and takes the operator's word for the loss.

    Raises:
        ConfigError: there are such; names the directory, each use with its count, and what to do.
        StorageError: something cannot be read.
    """
    found = origin_of(root, self_id=self_id, left_behind=left_behind).refused
    refused = [use for use in found if uses is None or use.name in uses]
    if not refused:
        return
    names = ", ".join(f'"{use.name}"' for use in refused)
    loss = f" Who accepts the loss says store.leave_behind = [{names}]" if is_start else ""
    raise ConfigError(
        "the directory is one of RocketMQ 5, and a node would lose what it does not know: "
        + "; ".join(use.text for use in refused)
        + f". Nothing was changed.{loss}",
        directory=str(root),
        uses={use.name: use.count for use in refused},
    )


def refuse_hidden_queues(root: Path) -> None:
    """Refuse a directory whose messages stand in queues that are not files of units.

    For who reads a store's queues without a node; a few looks at names, whatever the store's size.

    Raises:
        ConfigError: there are such; names the directory and what to do.
        StorageError: the directory cannot be read.
    """
    with refused_as("store directory not looked at", why="", directory=root):
        files = OriginFiles(root)
        if files.is_ours:
            return
        hidden = [_use(found) for found in origin_files.hidden_queues(files)]
    if hidden:
        raise ConfigError(
            "the directory is one of RocketMQ 5, whose queues cannot be read here: "
            + "; ".join(use.text for use in hidden),
            directory=str(root),
        )


def _origin_of(root: Path, self_id: str | None, left_behind: Collection[str]) -> Origin:
    files = OriginFiles(root)
    mode = _mode(files)
    if files.is_ours:
        return Origin(root, Product.OURS, mode)
    signs = tuple(files.signs())
    if not signs:
        has_log = "commitlog" in files.names or mode is Mode.DLEDGER
        return Origin(root, Product.ROCKETMQ_4 if has_log else Product.NONE, mode)
    uses = [_use(found) for found in _strange(files, mode, self_id, frozenset(left_behind))]
    uses.sort(key=lambda use: use.verdict is not UseVerdict.REFUSED)
    left = [
        Use(name, UseVerdict.KEPT, f"{name} stay behind, as the settings say")
        for name in left_behind
    ]
    kept = [Use(sign, UseVerdict.KEPT, f"{sign} stays as it is, for RocketMQ") for sign in signs]
    kept += [
        Use(name, UseVerdict.TAKEN if is_obeyed else UseVerdict.UNHEEDED, what, count)
        for name, count, what, is_obeyed in _settings(files)
    ]
    taken = Use("log", UseVerdict.TAKEN, "log, queues, index and JSON tables")
    return Origin(root, Product.ROCKETMQ_5, mode, signs, (*uses, *left, *kept, taken))


def _settings(files: OriginFiles) -> list[tuple[str, int, str, bool]]:
    try:
        return list(origin_files.settings_of(files))
    except origin_files.TooLargeError:
        # Who looks for what would be lost has said so.
        return []


def _mode(files: OriginFiles) -> Mode:
    if {EPOCH_FILE, "brokerIdentity"} & files.names:
        return Mode.CONTROLLER
    if any(name.startswith("dledger-") for name in files.names):
        return Mode.DLEDGER
    return Mode.PLAIN


def _strange(
    files: OriginFiles, mode: Mode, self_id: str | None, left: frozenset[str]
) -> Iterator[origin_files.Found]:
    """What of the directory would be lost, but for the uses that are ``left``."""
    too_large: dict[Path, int] = {}
    for use, look in _LOOKS:
        if use in left or (use is StrangeUse.UNCONFIRMED and mode is not Mode.CONTROLLER):
            continue
        try:
            yield from look(files)
        except origin_files.TooLargeError as error:
            too_large[error.path] = error.size
    if StrangeUse.TABLES not in left:
        for path, size in too_large.items():
            what = f"{path} is not looked at: it has {size:,} bytes, more than {TABLE_BYTES_MAX:,}"
            yield origin_files.Found(StrangeUse.TABLES, what, None)
    # Imported late: it needs numpy, which the supervisor may not have before it says with how
    # many threads.
    from ledgermq.store import origin_queues

    yield from origin_queues.waiting(files, self_id, left)


def _use(found: origin_files.Found) -> Use:
    if found.is_taken:
        return Use(str(found.use), UseVerdict.TAKEN, found.what, found.number)
    remedy = _REMEDIES[found.use]
    return Use(str(found.use), UseVerdict.REFUSED, found.what, found.number, remedy)
