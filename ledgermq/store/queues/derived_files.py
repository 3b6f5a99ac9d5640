"""Opening of ConsumeQueues and Index at a start, and from where the log is dispatched again.

Everything here is derived: what is missing, damaged or in doubt is built again from the log, and
nothing of it keeps a node from starting.

found                                            dispatch begins
a page of this life of the node                  where its last dispatcher stood
our checkpoint, and files that fit it            at the checkpoint, or the log's beginning behind it
no checkpoint of ours, as with RocketMQ          behind the last message that has a queue unit
the same, and RocketMQ was not stopped           where RocketMQ is known to have synced them
units or keys missing, a queue or file no one,   at the log's beginning; what is there is passed,
or no index kept until now                       or put again
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledgermq.formats.index_file import ITEMS_DEFAULT, SLOTS_DEFAULT, IndexLayout
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.files.kept_aside import FOLDER
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.index.index_files import IndexFiles
from ledgermq.store.index.tag_items import are_tags_kept, has_tag_items, keep_tags
from ledgermq.store.log_family import LogFamily
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.dispatch_checkpoint import INDEX_NOT_KEPT, DispatchCheckpoint
from ledgermq.store.queues.queue_files import (
    FILE_SIZE,
    QueueFiles,
    found_batch_file_size,
    found_file_size,
)
from ledgermq.store.queues.unsure_queues import UnsureQueues

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """What was found before anything is known of the log; open, nothing is cut yet.

    Attributes:
        saved: our checkpoint; None when there is none that is whole.
        published: where a dispatcher of this node's life stood, None when there was none.
        lost_power: whether the machine was, or may have been, started anew since the checkpoint.
        lacks_keys: whether keys were being put again when the last dispatcher ended.
        unsure: from where on nobody vouches for them; None where a checkpoint of ours, or the
            page, says where they stood.
        is_dledger: whether the log is DLedger's.
    """

    queues: QueueFiles
    index: IndexFiles | None
    saved: DispatchCheckpoint | None
    published: Position | None
    lost_power: bool
    lacks_keys: bool
    unsure: UnsureQueues | None = None
    is_dledger: bool = False

    def close(self) -> None:
        """Close the files, without a flush."""
        self.queues.close()
        if self.index is not None:
            self.index.close()


def own_path(root: Path) -> Path:
    """Our checkpoint of a store."""
    return root / "ledgermq" / "dispatch-checkpoint"


def mark_incomplete(root: Path) -> None:
    """From now on a start has to put keys again, as from a log that was never dispatched.

    Raises:
        StorageError: the operating system refused.
    """
    replace_file(_incomplete_path(root), b"")


def clear_incomplete(root: Path) -> None:
    """The index has all keys, or the checkpoint says from where on it lacks some."""
    _incomplete_path(root).unlink(missing_ok=True)


def is_incomplete(root: Path) -> bool:
    """Whether the index may lack keys of what is dispatched."""
    return _incomplete_path(root).exists()


def _incomplete_path(root: Path) -> Path:
    return root / "ledgermq" / "index-incomplete"


def load_derived_files(
    store: StoreSection,
    *,
    published: Position | None,
    unsure: UnsureQueues | None = None,
    batches_of: Path | None = None,
    sign_of_life: Callable[[], None] = lambda: None,
) -> DerivedFiles:
    """Find where queues and index end; may run while the log is still being recovered.

    Args:
        published: cursor ``dispatched`` of the node's page, None when it was never published.
        unsure: what ``unsure_queues`` says; counts where neither page nor checkpoint do.
        batches_of: store whose topics have queues of batches, with files of that size; None: this
            one.
        sign_of_life: called again and again meanwhile.

    Raises:
        ConfigError: all files have another size than the settings say.
        StorageError: the operating system refused.
    """
    root = store.path_root_dir
    batches_of = batches_of or root
    aside = root / "ledgermq" / FOLDER
    saved = dispatch_checkpoint.read(own_path(root))
    same_boot = saved is not None and saved.boot_id == dispatch_checkpoint.boot_id()
    if published is not None or saved is not None:
        unsure = None
    lost_power = published is None and (unsure is not None if saved is None else not same_boot)
    whole_below = 0 if unsure is None else unsure.position
    # What a process wrote that was killed is in the page cache, without a hole.
    is_whole = published is not None or same_boot
    queues = QueueFiles(
        root / "consumequeue",
        batch_topics=batch_topics(batches_of),
        batch_file_size=found_batch_file_size(batches_of),
        file_size=store.mapped_file_size_consume_queue
        or found_file_size(root / "consumequeue")
        or FILE_SIZE,
        aside=aside,
        whole_below=None if is_whole else (whole_below if saved is None else saved.position),
        sign_of_life=sign_of_life,
    )
    index = None
    if store.message_index_enable:
        index = IndexFiles(root / "index", _layout(store), aside=aside, sign_of_life=sign_of_life)
    lacks_keys = is_incomplete(root)
    is_dledger = store.log is LogKind.DLEDGER
    return DerivedFiles(queues, index, saved, published, lost_power, lacks_keys, unsure, is_dledger)


def keeps_tags(root: Path, files: DerivedFiles, log: LogFamily | None) -> bool:
    """Whether messages get index items of their tags; noted where it is found now.

    What nobody but us has written is not looked at again: all up to our checkpoint. Behind it a
    dispatcher that was killed may have written, or RocketMQ.

    Args:
        log: what the index points to; without it only what was noted counts.

    Raises:
        StorageError: a file cannot be read or written.
    """
    index, saved = files.index, files.saved
    if index is None or are_tags_kept(root):
        return index is not None
    if log is None or index.end_position < 0 or files.published is not None:
        return False
    behind = -1 if saved is None else saved.index_end
    if index.end_position <= behind:
        return False
    found = has_tag_items(
        root, log, index.layout, behind=behind, sign_of_life=files.queues.give_sign
    )
    if found:
        keep_tags(root)
    return found


def settle(
    files: DerivedFiles,
    *,
    log_start: Position,
    log_end: Position,
    again_from: Position | None = None,
) -> tuple[Position, int]:
    """Take away what the log does not have (any more), and find where dispatch goes on.

    Args:
        log_start, log_end: the log's first position, and the one behind its last entry.
        again_from: position from which on messages are dispatched in any case.

    Returns:
        where dispatch goes on, and from how many queues units were taken away.
    """
    queues, index, saved = files.queues, files.index, files.saved
    lost_power = files.lost_power
    if index is not None and index.file_names and _was_not_kept(files):
        # The log may have been cut meanwhile: what is there may be of other messages.
        index.drop_from(index.file_names[0])
    # Asked before anything is cut: the checkpoint may be of a log that was longer.
    keys_lost = index is not None and _has_lost_keys(files, index)
    if files.published is not None:
        position = files.published
    elif saved is not None:
        # Before the log's beginning, when that has moved on since: then all of the log is
        # dispatched again. The last unit there is says nothing of the other queues' units.
        position = Position(saved.position)
    elif files.unsure is not None:
        position = files.unsure.position
    else:
        # RocketMQ's DLedger broker says too few messages in its units of batches.
        has_wrong = files.is_dledger and queues.has_batches
        position = log_start if has_wrong else Position(queues.log_end)
    if again_from is not None:
        position = min(position, again_from)
    position = Position(min(max(position, log_start), log_end))
    if index is not None:
        index.truncate_beyond(position, repair=lost_power)
        if files.unsure is not None:
            # The index may lack more than the queues do.
            begin = files.unsure.file_start(index.end_position)
            position = Position(max(log_start, min(position, begin)))
    # RocketMQ's units stay where they are: they are put again in their places, and their files say
    # what size a file has.
    is_ours = lost_power and files.unsure is None
    truncated = queues.truncate_beyond(position if is_ours else log_end)
    truncated += queues.truncate_foreign(log_end)
    if lost_power:
        queues.discard_tails()
    queues.rewind(position)
    units_lost = _has_lost_units(files, position)
    if units_lost or keys_lost:
        logger.warning(
            "dispatched again from the log's beginning: units_missing=%s keys_missing=%s "
            "queues_kept_aside=%d position=%d instead of %d",
            units_lost,
            keys_lost,
            len(queues.lost),
            log_start,
            position,
        )
        position = log_start
    if units_lost:
        queues.rewind(position)
    return position, truncated


def _has_lost_units(files: DerivedFiles, position: Position) -> bool:
    """Whether units of messages before ``position`` are missing in the rewound queues."""
    queues, saved = files.queues, files.saved
    if queues.lost:
        return True
    if files.published is not None or saved is None or position != saved.position:
        return False
    if saved.units < 0:
        # Written by a version that did not count them: the last one must be there.
        return saved.last_unit_end > queues.log_end
    return saved.units != queues.units


def _has_lost_keys(files: DerivedFiles, index: IndexFiles) -> bool:
    if index.lost or files.lacks_keys:
        return True
    if files.published is not None:
        return False
    if files.saved is None:
        # RocketMQ deletes its newest index file after a crash.
        return index.end_position < 0 <= files.queues.log_end
    return _was_not_kept(files) or index.end_position < files.saved.index_end


def _was_not_kept(files: DerivedFiles) -> bool:
    """Whether ``message_index_enable`` was off when the checkpoint was written."""
    saved = files.saved
    return files.published is None and saved is not None and saved.index_end == INDEX_NOT_KEPT


def _layout(store: StoreSection) -> IndexLayout:
    return IndexLayout(
        slots=store.max_hash_slot_num or SLOTS_DEFAULT, items=store.max_index_num or ITEMS_DEFAULT
    )
