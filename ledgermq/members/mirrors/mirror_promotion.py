"""Promotion of a mirror: its store becomes that of a group, in a term of the next group epoch.

``ROOT/ledgermq/promoted`` is a checked document that says where the copy ended: by it the old log
is asked later what it had beyond that. The mark of the mirror goes last: a promotion that was
killed is done again.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict
from pathlib import Path

from ledgermq.conversion.missing_messages import CopyEnd, entry_begin
from ledgermq.members.mirrors.mirror_mark import mirror_mark_path, refuse_unfinished_rejoin
from ledgermq.members.mirrors.mirror_report import MirrorReport, read_mirror_report
from ledgermq.members.mirrors.promotion_note import FILE, Promotion
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.group_epoch import DRAWS, EPOCH_MAX, epoch_of, promoted_term
from ledgermq.model.ids import NO_INDEX
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.file_names import starts_in
from ledgermq.store.files.properties_file import CurrentTerm, encode_current_term
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.recovery.stopped_log import recover_stopped

LAST_WORD = "mirror-told"
"""``ROOT/ledgermq/mirror-told``: the report of the mirror, which outlives the machine's start."""


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


def copy_end(promotion: Promotion) -> CopyEnd:
    """The last entry of the copy of which a group was made."""
    return CopyEnd(
        promotion.begin, promotion.end, promotion.index, promotion.entry_term, promotion.chain
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
    if not starts_in(paths.data):
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
