"""Move manifest: digests of a store before it moves to another broker, to miss nothing after.

Written of a stopped store; compared with the same store later, stopped or running, whichever broker
wrote to it meanwhile. Queues may have grown, and lost old messages to retention; what both have
must be the same, unit by unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from ledgermq.formats.arrays import Units
from ledgermq.formats.config_json import (
    OFFSET_TABLE,
    decode_document,
    whole_number,
    with_field_names,
)
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.system_topics import is_system_topic
from ledgermq.store.files.checked_document import read_manifest_file, write_document
from ledgermq.store.files.offsets_file import OffsetsFile
from ledgermq.store.files.small_file import read_file
from ledgermq.store.store_view import QueueBounds, StoreView

BLOCK_UNITS = 65_536
"""Units of a queue that have one digest: retention takes whole blocks at a time."""

_VERSION = 1
_DIGEST_SIZE = 16
_DIFFERENCES_NAMED = 10
_SEPARATOR = "\t"
"""Separator of a topic and a queue's number; no topic has it in its name."""


class Block(NamedTuple):
    """A run of a queue's units.

    Attributes:
        units: digest of positions, sizes and tags: the same as long as the log is not converted.
        messages: digest of sizes and tags alone, which a downgrade keeps, too.
    """

    begin: int
    end: int
    units: str
    messages: str


@dataclass(frozen=True)
class MoveManifest:
    """One store at one moment.

    Attributes:
        root: the store's directory; ``log`` is its kind, ``end`` where it ended.
        queues: blocks of each queue that ever had a message, by topic and number.
        offsets: ``topic@group`` -> queue -> offset, as RocketMQ keeps them.
        topics, groups: names of all that were configured; without those that each broker makes for
            itself, and which the members of a group of RocketMQ's do not all have.
    """

    root: str
    log: LogKind
    end: int
    queues: Mapping[tuple[str, int], tuple[Block, ...]]
    offsets: Mapping[str, Mapping[str, int]]
    topics: frozenset[str]
    groups: frozenset[str]

    @property
    def messages(self) -> int:
        """Number of messages in all queues together."""
        return sum(block.end - block.begin for blocks in self.queues.values() for block in blocks)


class StoreDifference(NamedTuple):
    """Something that was in the store and is not there now, or is something else."""

    what: str
    was: object
    found: object


class Comparison(NamedTuple):
    """What came of looking.

    Attributes:
        compared: messages that were there before and are there now, all the same.
        removed: messages that are too old now.
        added: messages that have come since.
        went_back: groups and queues whose offset is lower than it was; that may be meant.
    """

    compared: int
    removed: int
    added: int
    went_back: tuple[StoreDifference, ...]


def make_move_manifest(
    root: Path, *, self_id: str | None = None, progress: Callable[[int, int], None]
) -> MoveManifest:
    """What the store in ``root`` holds; nothing is changed, and of the log only its end is read.

    Args:
        self_id: which DLedger log to take where there are several.
        progress: called with queues that are read, and all.

    Raises:
        ConfigError: no store directory.
        CorruptLogError, StorageError: see ``StoreView``; a table that is not JSON.
    """
    with closing(StoreView(root, self_id=self_id)) as view:
        found = view.queues()
        queues = {}
        for number, bounds in enumerate(found):
            queues[bounds.topic, bounds.queue_id] = tuple(_blocks(view, bounds))
            progress(number + 1, len(found))
        return MoveManifest(
            str(root),
            view.directory.log,
            int(view.log.end),
            {key: blocks for key, blocks in queues.items() if blocks},
            _offsets(root),
            frozenset(name for name in _table(root, *_TOPICS) if not is_system_topic(name)),
            frozenset(_table(root, *_GROUPS)),
        )


def compare_move(
    manifest: MoveManifest,
    root: Path,
    *,
    self_id: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> tuple[Comparison, list[StoreDifference]]:
    """Look whether all that ``manifest`` has is in the store ``root``: figures, and what is not.

    Args:
        progress: called with queues that are compared, and all.

    Raises:
        ConfigError, CorruptLogError, StorageError: as for ``make_move_manifest``.
    """
    with closing(StoreView(root, self_id=self_id)) as view:
        same_log = view.directory.log is manifest.log
        bounds = {(one.topic, one.queue_id): one for one in view.queues()}
        differences: list[StoreDifference] = []
        compared = removed = added = 0
        for number, (key, blocks) in enumerate(manifest.queues.items()):
            progress(number, len(manifest.queues))
            now = bounds.pop(key, QueueBounds(*key, 0, 0))
            added += max(0, now.end - blocks[-1].end)
            for block in blocks:
                if block.end <= now.first or (block.begin < now.first < block.end):
                    # What is left of a block has no digest of its own.
                    removed += min(now.first, block.end) - block.begin
                    continue
                wrong = _difference(view, now, block, same_log=same_log)
                if wrong is None:
                    compared += block.end - block.begin
                else:
                    differences.append(wrong)
        added += sum(one.end - one.first for one in bounds.values())
    differences += _missing("topic", manifest.topics, _table(root, *_TOPICS))
    differences += _missing("group", manifest.groups, _table(root, *_GROUPS))
    back, lost = _compare_offsets(manifest.offsets, _offsets(root))
    return Comparison(compared, removed, added, tuple(back)), differences + lost


def write_move_manifest(path: Path, manifest: MoveManifest) -> None:
    """Put ``manifest`` at ``path``; it is durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(
        path,
        {
            "version": _VERSION,
            "root": manifest.root,
            "log": manifest.log.value,
            "end": manifest.end,
            "queues": {
                f"{topic}{_SEPARATOR}{number}": [list(block) for block in blocks]
                for (topic, number), blocks in manifest.queues.items()
            },
            "offsets": {key: dict(row) for key, row in manifest.offsets.items()},
            "topics": sorted(manifest.topics),
            "groups": sorted(manifest.groups),
        },
    )


def read_move_manifest(path: Path) -> MoveManifest:
    """The manifest at ``path``.

    Raises:
        ConfigError: there is none, or of a version that is not known here.
        CorruptLogError: it was changed, or cut off, on its way.
        StorageError: it cannot be read.
    """
    document = read_manifest_file(path, version=_VERSION, lists="queues", of="a move")
    queues = cast("dict[str, list[list[int | str]]]", document["queues"])
    return MoveManifest(
        str(document["root"]),
        LogKind(str(document["log"])),
        int(cast("int", document["end"])),
        {
            _queue_key(text): tuple(
                Block(int(begin), int(end), str(units), str(messages))
                for begin, end, units, messages in rows
            )
            for text, rows in queues.items()
        },
        cast("dict[str, dict[str, int]]", document["offsets"]),
        frozenset(cast("list[str]", document["topics"])),
        frozenset(cast("list[str]", document["groups"])),
    )


def refuse_differences(differences: list[StoreDifference], *, manifest: Path) -> None:
    """Say that something is missing.

    Raises:
        CorruptLogError: there are differences; names the first ones.
    """
    if differences:
        raise CorruptLogError(
            "the store does not have what the manifest says",
            manifest=str(manifest),
            differences=len(differences),
            first=[f"{one.what}: {one.was}, now {one.found}" for one in differences][
                :_DIFFERENCES_NAMED
            ],
        )


_TOPICS = ("topics.json", "topicConfigTable")
_GROUPS = ("subscriptionGroup.json", "subscriptionGroupTable")


def _queue_key(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition(_SEPARATOR)
    return topic, int(number)


def _blocks(view: StoreView, queue: QueueBounds) -> Iterator[Block]:
    begin = queue.first
    while begin < queue.end:
        end = min(queue.end, begin - begin % BLOCK_UNITS + BLOCK_UNITS)
        units = view.units(queue.topic, queue.queue_id, begin, end - begin)
        yield Block(begin, end, *_digests(units))
        begin = end


def _digests(units: Units) -> tuple[str, str]:
    return _digest(units["position"], units["size"], units["tags"]), _digest(
        units["size"], units["tags"]
    )


def _digest(*columns: np.ndarray[tuple[int], np.dtype[np.generic]]) -> str:
    sum_ = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for column in columns:
        sum_.update(np.ascontiguousarray(column).tobytes())
    return sum_.hexdigest()


def _difference(
    view: StoreView, now: QueueBounds, block: Block, *, same_log: bool
) -> StoreDifference | None:
    what = f"queue {now.topic}/{now.queue_id}"
    if now.end < block.end:
        return StoreDifference(what, f"ended at {block.end}", f"it ends at {now.end}")
    units = view.units(now.topic, now.queue_id, block.begin, block.end - block.begin)
    by_units, by_messages = _digests(units)
    if (by_units == block.units) if same_log else (by_messages == block.messages):
        return None
    offsets = f"messages {block.begin} to {block.end - 1}"
    return StoreDifference(what, f"{offsets} {block.units[:8]}", f"others {by_units[:8]}")


def _missing(what: str, were: frozenset[str], now: Mapping[str, object]) -> list[StoreDifference]:
    return [
        StoreDifference(f"{what} {name}", "there", "missing") for name in sorted(were - now.keys())
    ]


def _compare_offsets(
    were: Mapping[str, Mapping[str, int]], now: Mapping[str, Mapping[str, int]]
) -> tuple[list[StoreDifference], list[StoreDifference]]:
    """Offsets that are lower than they were, and those that are missing."""
    back, lost = [], []
    for key, row in were.items():
        for queue, offset in row.items():
            found = now.get(key, {}).get(queue)
            if found is None:
                lost.append(StoreDifference(f"offset {key}/{queue}", offset, "missing"))
            elif found < offset:
                back.append(StoreDifference(f"offset {key}/{queue}", offset, found))
    return back, lost


def _offsets(root: Path) -> dict[str, dict[str, int]]:
    path = OffsetsFile(root / "config").path
    table = _table(root, path.name, OFFSET_TABLE)
    try:
        return {
            key: {str(whole_number(queue)): whole_number(at) or 0 for queue, at in row.items()}
            for key, row in table.items()
            if isinstance(row, dict)
        }
    except ValueError as error:
        raise CorruptLogError(
            "not the offsets of queues", file=str(path), reason=str(error)
        ) from error


def _table(root: Path, name: str, key: str) -> dict[str, object]:
    """A table of ``config/``; empty where there is no file, as RocketMQ has it."""
    path = root / "config" / name
    content = read_file(path)
    if not content:
        return {}
    document = with_field_names(decode_document(content, file=str(path)), frozenset({key}))
    found = document.get(key)
    return found if isinstance(found, dict) else {}
