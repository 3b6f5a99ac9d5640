"""Options of commands that build queue and index files without a node's settings.

A size that is not given is that of the files there; where there are none, RocketMQ's default.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.formats.index_file import ITEM_SIZE, SLOT_SIZE, IndexLayout
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.index.index_reader import IndexReader
from ledgermq.store.queues.queue_files import found_file_size


def store_section(arguments: argparse.Namespace, root: Path, log: LogKind) -> StoreSection:
    """Settings of the store in ``root`` as far as a ``DispatchBuilder`` needs them.

    Raises:
        ConfigError: a size cannot be that of the files there, or cannot be told from them; or a
            delay level is none.
        CorruptLogError: files that do not belong where they are, or differ in size.
        StorageError: the operating system refused.
    """
    delay_levels_ms(arguments.delay_levels)
    layout = None if arguments.no_index else index_layout(arguments, root / "index")
    return StoreSection(
        path_root_dir=root,
        log=log,
        mapped_file_size_consume_queue=_queue_file_size(arguments, root / "consumequeue"),
        max_hash_slot_num=None if layout is None else layout.slots,
        max_index_num=None if layout is None else layout.items,
        message_index_enable=not arguments.no_index,
        message_delay_level=arguments.delay_levels,
    )


def index_layout(arguments: argparse.Namespace, directory: Path) -> IndexLayout | None:
    """Slots and items of the index files in ``directory``; None for RocketMQ's default.

    Raises:
        ConfigError: what was given fits no file there, or they do not tell.
        CorruptLogError: a stray file, or files of different sizes.
        StorageError: they cannot be read.
    """
    slots: int | None = arguments.hash_slots
    items: int | None = arguments.index_items
    if slots is None and items is None:
        return IndexReader(directory).layout
    for option, value in (("--hash-slots", slots), ("--index-items", items)):
        if value is not None and value <= 0:
            raise ConfigError("must be positive", option=option, value=value)
    sizes = [(directory / name).stat().st_size for name in own_names(directory, is_index_name)]
    if not sizes or not max(sizes):
        return IndexLayout(
            **({} if slots is None else {"slots": slots}),
            **({} if items is None else {"items": items}),
        )
    return _layout_of(max(sizes), slots, items)


def _layout_of(size: int, slots: int | None, items: int | None) -> IndexLayout:
    """The geometry of files of ``size`` bytes of which one number, or both, are known."""
    space = size - IndexLayout(slots=0, items=0).file_size
    if slots is None:
        assert items is not None
        slots = (space - ITEM_SIZE * items) // SLOT_SIZE
    if items is None:
        items = (space - SLOT_SIZE * slots) // ITEM_SIZE
    layout = IndexLayout(slots=slots, items=items)
    if slots <= 0 or items <= 0 or layout.file_size != size:
        raise ConfigError(
            "index files cannot have that many slots and items",
            size=size,
            hash_slots=slots,
            index_items=items,
        )
    return layout


def _queue_file_size(arguments: argparse.Namespace, root: Path) -> int | None:
    given: int | None = arguments.queue_file_size
    found = found_file_size(root)
    if given is None or found is None:
        return given or found
    if given != found:
        raise ConfigError(
            "queue files have another size", option="--queue-file-size", value=given, found=found
        )
    return given
