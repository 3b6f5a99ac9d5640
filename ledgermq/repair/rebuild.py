"""Rebuild of ConsumeQueues, Index and checkpoints of a stopped store from its log.

They are built beside the old ones, in ``ROOT/ledgermq/rebuild/``, by what the dispatcher builds
them with, and take their place when they are complete and durable. While they do, there is no
``consumequeue/``: a node that is started in between builds everything from the log's beginning, so
no crash leaves old and new ones side by side. The old ones are kept aside, but for those of no
topic here, as light queues of RocketMQ: the log alone does not bring them back, and they keep their
place (after a crash in between they are among the old ones). Queues that the log has
no message of any more end where the table of queue ends says (``store/queues/queue_ends.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import refused_as
from ledgermq.model.ids import Position
from ledgermq.store.files.disk_sync import make_directories, sync_directory
from ledgermq.store.files.file_names import queues_of_no_topic
from ledgermq.store.files.folders import delete_folder
from ledgermq.store.files.kept_aside import FOLDER, keep_aside, link_folder, move
from ledgermq.store.files.small_file import read_file, replace_file
from ledgermq.store.files.store_checkpoint import with_positions_of
from ledgermq.store.index.tag_items import has_tag_items, keep_tags
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.known_ends import known_queue_ends
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    ends_path,
    write_queue_ends,
)
from ledgermq.store.queues.queue_files import QueueFiles
from ledgermq.store.store_directory import StoreDirectory

TOLD_STEP = 64 * 1024 * 1024
"""Bytes dispatched between two calls of ``told``."""

_REASON = "built again from the log"


class Rebuilt(NamedTuple):
    """What was built, and where the old files are now.

    Attributes:
        first, end: positions of the log from which, and up to which.
        skipped: messages that cannot be parsed; RocketMQ has no units for them, either.
        aside: old files and folders.
    """

    first: Position
    end: Position
    messages: int
    units: int
    keys: int
    skipped: int
    aside: tuple[Path, ...]


def rebuild(
    directory: StoreDirectory,
    section: StoreSection,
    *,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Rebuilt:
    """Build everything that follows from the log, up to its committed end, and put it in place.

    The caller has the store's locks. Killed at any moment, it is run again and begins anew; so is
    a node that is started instead.

    Args:
        section: sizes of the files; its folder is that of the directory.
        told: bytes of the log that were dispatched, and how many there are.

    Raises:
        CorruptLogError: the log is damaged; what there was is as it was.
        StorageError: the operating system refused, as a full disk does; run it again.
    """
    root = directory.root
    staging = root / "ledgermq" / "rebuild"
    delete_folder(staging)
    reader = LogReader(directory)
    ends = keep_queue_ends(directory, reader)
    with_tags = keep_known_tags(directory, section)
    try:
        built = _build(
            reader,
            replace(section, path_root_dir=staging),
            ends,
            told,
            with_tags=with_tags,
            batches_of=root,
        )
    except BaseException:
        delete_folder(staging)
        raise
    finally:
        reader.close()
    aside = put_in_place(root, staging)
    delete_folder(staging)
    return built._replace(aside=aside)


def keep_queue_ends(directory: StoreDirectory, reader: LogReader) -> QueueEnds | None:
    """What is known of the ends of the store's queues, before its queues are taken away; durable.

    None if the log says all.

    Raises:
        StorageError: the operating system refused.
    """
    ends = known_queue_ends(
        directory.root,
        queue_file_size=directory.queue_file_size,
        log_start=reader.parts[0].files.first,
    )
    if ends is not None and ends.ends:
        path = ends_path(directory.root)
        make_directories(path.parent)
        write_queue_ends(path, ends)
    return ends


def keep_known_tags(directory: StoreDirectory, section: StoreSection) -> bool:
    """Whether the index has items of tags, which is noted before the index is taken away.

    Raises:
        StorageError: a file cannot be read or written.
    """
    found = section.message_index_enable and has_tag_items(directory.root, directory.log_family)
    if found:
        keep_tags(directory.root)
    return found


def put_queue_ends(queues: QueueFiles, ends: QueueEnds | None, *, end: int, log_start: int) -> int:
    """Let queues of which the log has no message end where ``ends`` says; how many.

    Not while messages are missing that ``ends`` counts: the next start has them.

    Args:
        end: position up to which the queues are built.
        log_start: first byte of the log's first file.

    Raises:
        StorageError: the operating system refused.
    """
    if ends is None or end < ends.position:
        return 0
    return queues.put_ends(ends.ends, log_start=log_start)


def _build(
    reader: LogReader,
    section: StoreSection,
    ends: QueueEnds | None,
    told: Callable[[int, int], None],
    *,
    with_tags: bool,
    batches_of: Path,
) -> Rebuilt:
    first, end = reader.first, reader.committed_end()
    # An empty log has no committed entry, and a first position of 0.
    end = Position(max(first, end))
    (section.path_root_dir / "consumequeue").mkdir(parents=True)
    if section.message_index_enable:
        (section.path_root_dir / "index").mkdir()
    files = load_derived_files(section, published=None, batches_of=batches_of)
    builder = DispatchBuilder.open(
        section, log_start=first, log_end=end, published=None, files=files, with_tags=with_tags
    )
    messages = units = keys = skipped = 0
    try:
        while builder.position < end:
            before = builder.position
            span = reader.span(before)
            file_end = min(end, before + len(span.view))
            near = Position(min(file_end, before + TOLD_STEP))
            built = builder.build(span.view, before, near, header_size=span.header_size)
            if built.position == before:
                # An entry larger than a step.
                near = Position(file_end)
                built = builder.build(span.view, before, near, header_size=span.header_size)
            if built.position == before:
                # What is behind the last entry of a file that has no blank.
                break
            messages += built.messages
            units += built.units
            keys += built.keys
            skipped += built.skipped
            told(builder.position - first, end - first)
        log_start = reader.parts[0].files.first
        put_queue_ends(builder.queues, ends, end=builder.position, log_start=log_start)
        builder.flush()
    finally:
        builder.close()
    return Rebuilt(first, builder.position, messages, units, keys, skipped, ())


def _keep_foreign(queues: Path, fresh: Path) -> None:
    """Give queues of no topic their place in the folder ``fresh``, too."""
    with refused_as("queues of no topic not kept", file=queues):
        for folder in queues_of_no_topic(queues):
            # What was built of it has the messages alone that name it as their topic.
            delete_folder(fresh / folder.name)
            link_folder(folder, fresh / folder.name)
        sync_directory(fresh)


def put_in_place(root: Path, staging: Path) -> tuple[Path, ...]:
    """Give what ``staging`` has the names it is for; where the old files and folders are now.

    The consume queues are taken away first and put in place last. Durable on return.

    Args:
        staging: durable folder with queues, index and both checkpoints.

    Raises:
        StorageError: the operating system refused.
    """
    kept = root / "ledgermq" / FOLDER
    _keep_foreign(root / "consumequeue", staging / "consumequeue")
    aside = [
        keep_aside(root / name, kept, reason=_REASON)
        for name in ("consumequeue", "index", BATCH_FOLDER)
        if (root / name).exists() and (name != BATCH_FOLDER or (staging / name).exists())
    ]
    with refused_as("new files not put in place", file=root):
        (root / "ledgermq" / "dispatch-checkpoint").unlink(missing_ok=True)
        if (staging / "index").exists():
            move(staging / "index", root / "index")
        if (staging / BATCH_FOLDER).exists():
            move(staging / BATCH_FOLDER, root / BATCH_FOLDER)
        move(staging / "consumequeue", root / "consumequeue")
    # Last: before it there is none, and the queues say themselves how far they go.
    for name in ("checkpoint", "ledgermq/dispatch-checkpoint"):
        content = read_file(staging / name)
        assert content is not None, name
        if name == "checkpoint":
            content = with_positions_of(root / name, content)
        replace_file(root / name, content)
    return tuple(aside)
