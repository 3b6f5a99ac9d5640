"""State of a group that was stopped in peace: files alike, whole, and dispatchable.

Promises I8 (byte-identical), I9 (every record parses and is where its index item says) and I10 (the
ConsumeQueue is a function of the log).
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.repair.log_verify import verify_log
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.store_directory import open_directory
from tests.simulator.checks.checker import Checker, require
from tests.simulator.node import Node

QUEUE_FILE_SIZE = 2_000
STEP_BYTES_MAX = 10_000

Files = dict[str, bytes]


def compare(nodes: list[Node], checker: Checker, scratch: Path, random: Random) -> None:
    """Compare the stores of ``nodes``, which are stopped and have the same entries.

    Raises:
        BrokenPromiseError: they differ, or one is not whole.
    """
    first, *others = nodes
    data, index = _files(first.store.data), _files(_index_of(first))
    for other in others:
        require(_files(other.store.data) == data, "logs are byte-identical", first.name, other.name)
        require(
            _files(_index_of(other)) == index, "indexes are byte-identical", first.name, other.name
        )
    records = _records(first)
    require(records == len(checker.committed), "all is in the log", records, len(checker.committed))
    end = checker.committed[-1].entry.end
    queues = [
        _dispatched(first, scratch / str(number), end, random.randrange(500, STEP_BYTES_MAX))
        for number in range(2)
    ]
    require(queues[0] == queues[1], "queues do not depend on how they were built")
    for node in nodes:
        if node.readers is not None:
            _compare_queues(node, queues[0])
    units = sum(len(content.rstrip(b"\0")) > 0 for content in queues[0].values())
    require(units > 0, "queues are not empty")


def is_detected(node: Node) -> bool:
    """Whether a reading of the whole log of ``node``, which is stopped, finds its damage."""
    try:
        _records(node)
    except CorruptLogError:
        return True
    return False


def is_repaired(node: Node, sound: Node, *, entries: int) -> bool:
    """Whether ``node``, whose log has so many entries, has the bytes again that ``sound`` has."""
    if is_detected(node) or _records(node) != entries:
        return False
    theirs = _files(sound.store.data)
    ours = _files(node.store.data)
    return all(theirs.get(name, b"").startswith(ours[name].rstrip(b"\0")) for name in ours)


def _compare_queues(node: Node, built: Files) -> None:
    """Its dispatcher, whatever it went through, has built the same, but for the last units."""
    own = _queues_in(node.store.consume_queues)
    for name, content in own.items():
        is_same = built.get(name, b"").startswith(content.rstrip(b"\0"))
        require(is_same, "a dispatcher's queues are those of the log", node.name, name)


def _records(node: Node) -> int:
    reader = LogReader(open_directory(node.store.root, self_id=node.name))
    try:
        return verify_log(reader).records
    finally:
        reader.close()


def _index_of(node: Node) -> Path:
    assert node.store.index is not None
    return node.store.index


def _files(folder: Path) -> Files:
    """Content by name; of files that were made and not written there may be one more or less."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name: content for name, content in found.items() if any(content)}


def _dispatched(node: Node, root: Path, end: int, step: int) -> Files:
    """The ConsumeQueues of the log up to ``end``, built in steps of ``step`` bytes."""
    root.mkdir(parents=True)
    store = StoreSection(
        path_root_dir=root,
        mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
        message_index_enable=False,
        message_delay_level=node.settings.store.message_delay_level,
    )
    builder = DispatchBuilder.open(
        store, log_start=Position(0), log_end=Position(end), published=None
    )
    file_size = node.settings.store.mapped_file_size_commit_log
    assert file_size is not None
    content = _files(node.store.data)
    while builder.position < end:
        start = builder.position - builder.position % file_size
        span = memoryview(content[f"{start:020d}"])
        limit = min(end, start + file_size)
        near = min(limit, builder.position + step)
        built = builder.build(span, Position(start), Position(near), header_size=HEADER_SIZE)
        step *= 2 if built.messages == 0 else 1
    require(builder.queues.gaps == 0, "queues have no gap", builder.queues.gaps)
    builder.close()
    return _queues_in(root / "consumequeue")


def _queues_in(queues: Path) -> Files:
    return {
        str(path.relative_to(queues)): path.read_bytes()
        for path in queues.rglob("*")
        if path.is_file()
    }
