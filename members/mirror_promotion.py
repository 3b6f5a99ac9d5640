"""Promotion of a mirror: its store becomes that of a group, in a term of the next group epoch.

``ROOT/ledgermq/promoted`` is a checked document that says where the copy ended: by it the old log
is asked later what it had beyond that. The mark of the mirror goes last: a promotion that was
killed is done again.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ledgermq.conversion.missing_messages import CopyEnd, entry_begin
from ledgermq.members.mirror_mark import mirror_mark_path, refuse_unfinished_rejoin
from ledgermq.members.mirror_report import MirrorReport, read_mirror_report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.group_epoch import DRAWS, EPOCH_MAX, epoch_of, promoted_term
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.properties_file import (
    CurrentTerm,
    decode_current_term,
    encode_current_term,
)
from ledgermq.store.files.small_file import read_file, replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.recovery.stopped_log import recover_stopped

FILE = "promoted"
LAST_WORD = "mirror-told"
"""``ROOT/ledgermq/mirror-told``: the report of the mirror, which outlives the machine's start."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """Where a copy ended of which a group was made.

    Attributes:
        cluster, group: names of the group.
        begin: where the last entry of the copy begins.
        end: position behind it.
        index, entry_term, chain: of the last entry; its CRC over all entries before it, too.
        term: what the promoted group begins behind.
        at_ms: when it was promoted, epoch milliseconds.
    """

    cluster: str
    group: str
    begin: Position
    end: Position
    index: Index
    entry_term: Term
    chain: int
    term: Term
    at_ms: int

    @property
    def copy(self) -> CopyEnd:
        """The last entry of the copy."""
        return CopyEnd(self.begin, self.end, self.index, self.entry_term, self.chain)


def promote_mirror(settings: Settings) -> tuple[Promotion, MirrorReport | None]:
    """Make the store of a mirror one of a group; who calls holds the store's locks.

    Returns:
        where the copy ends, and what the mirror has told last; None where that is not known.

    Raises:
        ConfigError: the store is no mirror's, or has nothing.
        CorruptLogError: the log is damaged.
        StorageError: the operating system refused.
    """
    mark = mirror_mark_path(settings)
    document = read_document(mark)
    if document is None:
        raise ConfigError("the store is no mirror's", directory=str(settings.store.path_root_dir))
    refuse_unfinished_rejoin(mark, document)
    promotion = _at_end_of_log(settings)
    paths = StorePaths.of(settings)
    assert paths.current_term is not None
    write_document(paths.own / FILE, asdict(promotion))
    # A raft process that starts takes the greater one of this and its own file. From here on the
    # store is no mirror of its source any more: that would be refused for its lesser epoch.
    replace_file(paths.current_term, encode_current_term(CurrentTerm(promotion.term, None)))
    report = last_word(paths.own)
    mark.unlink()
    sync_directory(paths.own)
    return promotion, report


def read_promotion(path: Path) -> Promotion:
    """The promotion that a file says: the store's own, or a copy of it.

    Raises:
        ConfigError: there is none.
        CorruptLogError: it is not whole.
        StorageError: it cannot be read.
    """
    document = read_document(path)
    if document is None:
        raise ConfigError("no promotion is noted there", file=str(path))
    texts = [document.get(name) for name in ("cluster", "group")]
    numbers = [
        document.get(name)
        for name in ("begin", "end", "index", "entry_term", "chain", "term", "at_ms")
    ]
    cluster, group = (str(text) for text in texts)
    if not all(isinstance(number, int) for number in numbers):
        raise CorruptLogError("note of a promotion lacks a number", file=str(path))
    begin, end, index, entry_term, chain, term, at_ms = (int(str(number)) for number in numbers)
    return Promotion(
        cluster, group, Position(begin), Position(end), Index(index), Term(entry_term), chain,
        Term(term), at_ms,
    )  # fmt: skip


def check_begins_alone(settings: Settings) -> None:
    """Refuse other members where a promoted store has not led yet.

    They have nothing: a majority of them would elect one of themselves, whose log is everybody's
    then. What they get once this node leads is its log.

    Raises:
        ConfigError: ``node.peers`` names another one, and no term has begun since the promotion.
        CorruptLogError: what is noted of the promotion, or of the term, is not whole.
        StorageError: it cannot be read.
    """
    own = settings.node.self_id
    if all(peer.partition("-")[0] == own for peer in settings.node.peers):
        return
    paths = StorePaths.of(settings)
    note = paths.own / FILE
    if paths.current_term is None or not note.exists():
        return
    content = read_file(paths.current_term)
    promotion = read_promotion(note)
    begun = None if content is None else decode_current_term(content, file=str(paths.current_term))
    if begun is None or begun.term <= promotion.term:
        raise ConfigError(
            "a promoted store begins alone: name this node only until it leads, and add the others"
            " with ledgermq raft add",
            peers=settings.node.peers,
            setting="node.peers",
        )


def last_word(own: Path) -> MirrorReport | None:
    """What the mirror has told last; None where nobody knows it any more.

    Args:
        own: ``ROOT/ledgermq``.
    """
    try:
        return read_mirror_report(own / LAST_WORD)
    except (OSError, json.JSONDecodeError):
        return None


def _at_end_of_log(settings: Settings) -> Promotion:
    """The log, recovered as at a start; a mirror's has nothing that was not committed."""
    paths, node = StorePaths.of(settings), settings.node
    assert paths.index is not None
    folder = paths.data.parent
    if not paths.data.is_dir() or not any(paths.data.iterdir()):
        raise ConfigError("the mirror has nothing: no group is made of it", directory=str(folder))
    _, end = recover_stopped(paths.root, folder, progress=lambda _done, _total: None)
    if end.index_ == NO_INDEX:
        raise ConfigError("the mirror has nothing: no group is made of it", directory=str(folder))
    if epoch_of(end.term) >= EPOCH_MAX:
        raise ConfigError("no epoch is left", epoch=epoch_of(end.term), limit=EPOCH_MAX)
    begin = entry_begin(folder, end.index_)
    return Promotion(
        node.broker_cluster_name, node.group, begin, end.position, end.index_, end.term, end.chain,
        promoted_term(end.term, secrets.randbelow(DRAWS)), time.time_ns() // 1_000_000,
    )  # fmt: skip
