"""``ledgermq piece delete``: messages that are to be in no piece any more, and the proof of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from ledgermq.cli.node_verbs import confirm
from ledgermq.cli.output import tell
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.spark.cold_tables import repository_at
from ledgermq.formats.arrays import I64
from ledgermq.formats.records.inner_batch import is_batch, numbers_in
from ledgermq.formats.records.message import decode_message, queue_of
from ledgermq.model.errors import ConfigError, MessageUnknownError
from ledgermq.model.limits import LASTING_TOPICS
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.piece_file import PieceRecord
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest
from ledgermq.pipeline.pieces.piece_places import note_name, place_at
from ledgermq.pipeline.pieces.piece_retention import Expired, drop, droppable


def delete_messages(arguments: argparse.Namespace) -> int:
    """Drop one message of a queue, or all with a key, and note what was dropped.

    Returns:
        0; 1 where some are in pieces that stay as they are for now.
    """
    topic: str = arguments.topic
    if topic in LASTING_TOPICS:
        raise ConfigError("tables and proofs are made of that topic: it stays", topic=topic)
    if (arguments.key is None) is (arguments.queue is None or arguments.offset is None):
        raise ConfigError("say QUEUE and OFFSET, or --key")
    place = place_at(arguments.place)
    before = repository_at(arguments.place, None).prunable_end()
    queues = ColdQueues(place, is_sealed=True)
    positions = np.array(sorted(_positions(queues, arguments)), np.int64)
    found = _stretches(queues.manifest, topic, positions, before)
    wanted = sum(len(one.thinned[topic]) for one in found)
    left = len(positions) - wanted
    document: dict[str, object] = {"deleted": wanted, "left": left}
    kind = "records" if arguments.with_batch else "messages"
    stays = (
        f"; {left} in pieces that stay as they are until more of the log is sealed: run it again"
        if left
        else ""
    )
    if arguments.dry_run or not wanted:
        tell(arguments, document, f"{wanted} {kind} would be deleted{stays}")
        return 1 if left else 0
    confirm(arguments, f"delete {wanted} {kind} of {topic} from {len(found)} pieces")
    with ProgressLine("MiB of pieces looked through") as line:
        done = drop(
            place,
            lambda manifest: _stretches(manifest, topic, positions, before),
            reason=arguments.reason,
            told=line.show_bytes,
        )
    names = [note_name(one.start, one.end, one.edition) for one in done.notes]
    notes = [{"note": name, **one.document()} for name, one in zip(names, done.notes, strict=True)]
    tell(
        arguments,
        {**document, "deleted": done.records[topic], "notes": notes},
        f"{place.as_text()}: {done.records[topic]} {kind} are in no piece any more; noted in"
        f" {', '.join(names) or 'nothing, for nothing is left of the pieces'}{stays}",
    )
    return 1 if left else 0


def _positions(queues: ColdQueues, arguments: argparse.Namespace) -> Iterator[int]:
    """Where the records begin in the log that are to go.

    Raises:
        MessageUnknownError: no piece has the message.
    """
    topic: str = arguments.topic
    if arguments.key is not None:
        found = {one.position: one for one in queues.with_key(topic, arguments.key)}
        for position, one in found.items():
            _check_alone(one, arguments)
            yield position
        return
    queue, offset = arguments.queue, arguments.offset
    record: PieceRecord | None = next(queues.read(topic, queue, offset), None)
    if record is None or decode_message(memoryview(record.record)).queue_offset != offset:
        raise MessageUnknownError(
            "message of this queue is in no piece", topic=topic, queue=queue, offset=offset
        )
    whole = queues.at(record.position)
    assert whole is not None, record.position
    _check_alone(whole, arguments)
    yield record.position


def _check_alone(found: PieceRecord, arguments: argparse.Namespace) -> None:
    """Refuse to delete a record with more messages than the one that was named, unless all of them
    are to go.

    Raises:
        ConfigError: it has several; says which.
    """
    record = memoryview(found.record)
    base, messages = numbers_in(record)
    if is_batch(record) and messages > 1 and not arguments.with_batch:
        raise ConfigError(
            "the message is in one record with others, and pieces lose whole records alone:"
            " --with-batch deletes all of them",
            topic=arguments.topic,
            queue=queue_of(record)[1],
            first=base,
            messages=messages,
        )


def _stretches(
    manifest: PieceManifest, topic: str, positions: I64, before: int | None
) -> list[Expired]:
    """What is to be dropped of which piece, of those that may be changed."""
    found = []
    for number, row in enumerate(manifest.rows):
        first, end = np.searchsorted(positions, (row.start, row.end)).tolist()
        if first < end and droppable(manifest, number, before=before):
            found.append(Expired(row, {}, {topic: positions[first:end]}, are_named=True))
    return found
