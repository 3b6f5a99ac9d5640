"""``ledgermq piece``: what its verbs do, and what they print; tables as of a moment."""

from __future__ import annotations

import argparse
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ledgermq.buckets.bucket_address import is_address
from ledgermq.cli.message_text import preview
from ledgermq.cli.messages.receipt_command import (
    get_receipt,
    kept_checkpoint,
    keys_of,
    print_checkpoint,
)
from ledgermq.cli.output import print_table, tell, time_text
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.spark.cold_tables import queues_then, tables_at
from ledgermq.cli.store.backup_stream_command import counted
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.received_json import received_as_json
from ledgermq.conversion.backup_manifest import BackupManifest
from ledgermq.conversion.stream.sealed_piece import PIECE_KEY_SIZE
from ledgermq.conversion.stream.table_pieces import put_tables
from ledgermq.daemon.backup_source import committed_position, describe_running, describe_stopped
from ledgermq.daemon.backup_streaming import about_of
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.errors import ConfigError
from ledgermq.model.instants import parse_time
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.units import MIB
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_sealing import Sealed, rebuild_manifest, seal_log
from ledgermq.pipeline.pieces.piece_file import PieceRecord
from ledgermq.pipeline.pieces.piece_notes import check_notes
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.pipeline.pieces.piece_receipts import prove_pieces
from ledgermq.pipeline.pieces.piece_repository import PieceRepository
from ledgermq.pipeline.pieces.topic_keys import KEYS_VARIABLE, key_file, key_name
from ledgermq.sessions.keys.client_keys import write_new_key
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import StoreDirectory, open_directory


def seal_store(arguments: argparse.Namespace) -> int:
    """Seal what a store has committed."""
    root: Path = arguments.directory
    if not is_address(arguments.to) and Path(arguments.to).resolve().is_relative_to(root.resolve()):
        raise ConfigError("pieces may not lie in the store itself", place=arguments.to)
    place = place_at(arguments.to)

    def sealed(runtime: Path | None) -> Sealed:
        directory = open_directory(root, self_id=arguments.self_id)
        repository = PieceRepository(place, None)
        # Tables first: what is sealed then can be restored from them on.
        if runtime is not None:
            _put_tables(
                repository,
                directory,
                committed_position(directory, runtime),
                lambda: describe_running(directory, runtime),
            )
        # Before the log is opened: it has that much then.
        committed = None if runtime is None else committed_position(directory, runtime)
        with closing(LogReader(directory)) as reader, ProgressLine("MiB sealed") as line:
            end = reader.committed_end() if committed is None else committed
            if committed is None:
                section = store_section(arguments, root, directory.log)
                _put_tables(
                    repository,
                    directory,
                    end,
                    lambda: replace(describe_stopped(directory, section), end=int(end)),
                )
            return seal_log(place, reader, end, told=line.show_bytes)

    if arguments.runtime_dir is not None:
        found = sealed(arguments.runtime_dir)
    else:
        with stopped_store(root, as_owner=False):
            found = sealed(None)
    share = f", {found.stored / found.log_bytes:.0%} of the log" if found.log_bytes else ""
    missing = f"; {found.gap:,} bytes were deleted before" if found.gap else ""
    text = (
        f"{place.as_text()}: up to position {found.end:,}, {found.pieces} pieces,"
        f" {found.log_bytes / MIB:,.1f} MiB in {found.stored / MIB:,.1f} MiB{share}{missing}"
    )
    return tell(arguments, found._asdict(), text)


def _put_tables(
    repository: PieceRepository,
    directory: StoreDirectory,
    committed: int,
    describe: Callable[[], BackupManifest],
) -> None:
    """Put the broker's tables into the place, where some are due."""
    if repository.is_like(about_of(directory)) and repository.wants_tables(
        committed, file_size=directory.log_file_size or 1
    ):
        put_tables(repository, directory, lambda: repository.as_told(describe()))


def make_topic_key(arguments: argparse.Namespace) -> int:
    """Write a new key for a topic, and tell its name."""
    path = key_file(arguments.topic)
    if path is None:
        raise ConfigError("no folder of keys is named", setting=KEYS_VARIABLE)
    key = secrets.token_bytes(PIECE_KEY_SIZE)
    write_new_key(path, f"{key.hex()}\n")
    text = f"{path}: {key_name(key)}: what is sealed from now on is locked with it; keep a copy"
    return tell(arguments, {"file": str(path), "key": key_name(key)}, text)


def list_pieces(arguments: argparse.Namespace) -> int:
    """Tell which pieces there are, or which queues."""
    queues = ColdQueues(place_at(arguments.place), is_sealed=True)
    if arguments.queues:
        rows = [{**name._asdict(), **one._asdict()} for name, one in queues.queues().items()]
        texts = [[str(value) for value in row.values()] for row in rows]
        return tell(arguments, rows, lambda: print_table(["topic", "queue", "first", "end"], texts))
    pieces = [
        {
            "name": row.name,
            "start": row.start,
            "end": row.end,
            "bytes": row.size,
            "records": row.facts.records - row.dropped,
            "dropped": row.dropped,
            "firstIndex": row.facts.first_index,
            "lastIndex": row.facts.last_index,
            "newest": row.facts.max_ms,
        }
        for row in queues.manifest.rows
    ]

    def print_pieces() -> None:
        print_table(
            ["start", "end", "MiB", "records", "dropped", "last index", "newest"],
            [
                [
                    f"{row.start:,}",
                    f"{row.end:,}",
                    f"{row.size / MIB:,.1f}",
                    f"{row.facts.records - row.dropped:,}",
                    f"{row.dropped:,}",
                    f"{row.facts.last_index:,}",
                    time_text(row.facts.max_ms) if row.facts.records else "-",
                ]
                for row in queues.manifest.rows
            ],
        )

    return tell(arguments, pieces, print_pieces)


def verify_pieces(arguments: argparse.Namespace) -> int:
    """Read all pieces of a manifest, and compare every record."""
    queues = ColdQueues(place_at(arguments.place), cache_bytes=0, is_sealed=True)
    records, deleted = 0, 0
    closed: Counter[str] = Counter()
    place = place_at(arguments.place)
    with ProgressLine("MiB read") as line:
        told = counted(line, sum(row.size for row in queues.manifest.rows))
        for row in queues.manifest.rows:
            piece = queues.piece(row)
            records += piece.verify()
            deleted += check_notes(place, row, piece)
            closed += piece.closed_rows()
            told(row.size)
    keys = keys_of(arguments)
    since = kept_checkpoint(arguments, keys)
    proven = prove_pieces(queues, keys, since=since) if keys else None
    pieces = len(queues.manifest.rows)
    noted = f"; {deleted:,} were deleted, as notes say" if deleted else ""
    text = f"{pieces:,} pieces with {records:,} records are what was sealed{noted}"
    document: dict[str, object] = {"pieces": pieces, "records": records, "deleted": deleted}
    if closed:
        document["locked"] = dict(closed)
    for topic, count in sorted(closed.items()):
        text += (
            f"\n{count:,} of them, of {topic}, are locked with a key that is not here: their bytes"
            " are what was sealed"
        )
    if proven is not None:
        document["receipts"] = proven._asdict()
        text += (
            f"\n{proven.messages:,} messages are those that were signed, up to"
            f" {time_text(proven.at_ms)}, in {proven.checkpoints:,} checkpoints"
        )
        if proven.lacking:
            text += (
                f"; {proven.lacking:,} of {proven.stretches + proven.lacking:,} stretches lack"
                " messages and cannot be compared"
            )
    return tell(arguments, document, text)


def make_manifest(arguments: argparse.Namespace) -> int:
    """Make the manifest anew."""
    place = place_at(arguments.place)
    manifest = rebuild_manifest(place)
    pieces = len(manifest.rows)
    text = f"{place.as_text()}: {pieces:,} pieces, up to position {manifest.end:,}"
    return tell(arguments, {"pieces": pieces, "end": manifest.end}, text)


def read_messages(arguments: argparse.Namespace) -> int:
    """Print messages of a queue, or with a key."""
    queues = ColdQueues(place_at(arguments.place), is_sealed=True)
    if arguments.count < 1:
        raise ConfigError("--count has to be 1 or more", given=arguments.count)
    for record in islice(_wanted(queues, arguments), arguments.count):
        message = ReceivedMessage.of_record(memoryview(record.record))
        if arguments.json:
            print(json.dumps(received_as_json(message)))
            continue
        print(
            f"{message.topic} {message.queue_id} {message.queue_offset}"
            f"  {time_text(message.store_timestamp)}  {preview(message)}"
        )
    return 0


def _wanted(queues: ColdQueues, arguments: argparse.Namespace) -> Iterator[PieceRecord]:
    topic: str = arguments.topic
    queue: int | None = arguments.queue
    offset: int | None = arguments.offset
    ways = [offset is not None, arguments.since is not None, arguments.key is not None]
    if sum(ways) != 1 or (queue is None) is not (arguments.key is not None):
        raise ConfigError("say QUEUE and OFFSET, or QUEUE and --since, or --key")
    if queue is None:
        return queues.with_key(topic, arguments.key)
    if offset is None:
        offset = queues.first_since(topic, queue, parse_time(arguments.since, "--since"))
    return iter(()) if offset is None else queues.read(topic, queue, offset)


def show_offsets(arguments: argparse.Namespace) -> int:
    """Tell what a group had consumed at a moment."""
    if arguments.place is None:
        raise ConfigError("--as-of is told out of pieces: say --from PLACE")
    with queues_then(arguments) as (queues, moment):
        found = tables_at(queues, moment)
    rows = [
        {"topic": owner.topic, "queue": queue, "committed": offset}
        for owner, offsets in found.state.offsets.of_group(arguments.group)
        if arguments.topic in (None, owner.topic)
        for queue, offset in sorted(offsets.items())
    ]
    document = {"group": arguments.group, "asOf": arguments.as_of, "queues": rows}
    texts = [[str(value) for value in row.values()] for row in rows]
    none = f"{arguments.group} had consumed nothing yet"
    return tell(
        arguments,
        document,
        (lambda: print_table(["topic", "queue", "committed"], texts)) if rows else none,
    )


def get_receipt_there(arguments: argparse.Namespace) -> int:
    """Print the receipt of a message that is in pieces."""
    return get_receipt(PieceQueues(arguments.place), arguments)


def print_checkpoint_there(arguments: argparse.Namespace) -> int:
    """Print the newest checkpoint that is in pieces."""
    return print_checkpoint(PieceQueues(arguments.place), arguments)


class PieceQueues:
    """Messages of queues out of pieces, for who makes receipts of them."""

    def __init__(self, place: str) -> None:
        """Read the manifest.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``ColdQueues``.
        """
        self._queues = ColdQueues(place_at(place), is_sealed=True)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        found = self._queues.queues().get(QueueName(topic, queue_id))
        return (0, 0) if found is None else (found.first, found.end)

    def read(self, topic: str, queue_id: int, offset: int) -> Iterator[ReceivedMessage]:
        for record in self._queues.read(topic, queue_id, offset):
            yield ReceivedMessage.of_record(memoryview(record.record))
