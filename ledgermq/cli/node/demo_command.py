"""``ledgermq demo``: take over a directory that RocketMQ wrote, and go on with it."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ledgermq.cli.arguments import takes
from ledgermq.cli.node.local_node import LocalNode
from ledgermq.cli.output import called_as
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, StorageError

if TYPE_CHECKING:
    from ledgermq.formats.index_file import IndexLayout
    from ledgermq.store.store_view import QueueBounds

DEMO_STORE = Path(__file__).with_name("demo_store.tar.xz")
"""A Java broker of a group wrote it, with small files, so that all of them roll over."""

GROUP = "ledgermq-demo-readers"
MESSAGES, BATCH, BODY_SIZE = 20_000, 50, 1_024
TIMEOUT_S = 30.0
SAMPLES_SHOWN, BODY_SHOWN = 3, 40


class MoveRate(NamedTuple):
    """How many messages went by, their bytes, and the seconds that it took."""

    messages: int
    size: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.messages:,} messages, {self.size:,} bytes, in {self.seconds:.2f} s"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``demo``."""
    parser = subparsers.add_parser(
        "demo",
        help="take over a store that RocketMQ wrote, and go on with it",
        description="Works on a copy below /tmp, which is kept to be looked at.",
    )
    takes(
        parser,
        "--directory PATH",
        "a store of RocketMQ 4.9, or a tar archive with one as store/; without: a small one "
        "that comes along",
        type=Path,
    )
    takes(
        parser, "--hash-slots N", "that broker's maxHashSlotNum, where its index files do not tell"
    )
    takes(parser, "--index-items N", "its maxIndexNum, likewise")
    takes(parser, "--json", "print the summary as JSON")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    say = Steps(quiet=arguments.json)
    source: Path = arguments.directory or DEMO_STORE
    folder = Path(tempfile.mkdtemp(prefix="ledgermq-demo-", dir="/tmp"))
    say.step(f"copy what RocketMQ wrote, {source}, to {folder}")
    try:
        _copy(source, folder)
        layout = _layout(arguments, folder / "store" / "index")
    except LedgerError:
        shutil.rmtree(folder)
        raise
    written = _queues_of(folder / "store")
    with LocalNode.on_store(folder, layout) as node:
        say.step("start a node on it")
        status = node.start()
        role = status["raft"]
        processes = ", ".join(f"{one['role']} {one['pid']}" for one in status["processes"])
        say.tell(f"ready after {status['uptime_s']:.2f} s: {role['role']} in term {role['term']}")
        say.tell(f"processes: {processes}")
        say.step("read every message that Java stored, and compare it with its CRC")
        found = _read_all(node.address, written, say)
        say.tell(str(found))
        say.step(f"send {MESSAGES:,} new messages, and kill -9 the writer half-way")
        topic = f"demo-{int(time.time())}"
        sent = _send(node, topic, say)
        say.tell(f"{sent}, each acknowledged as {status['ack_mode']}")
        say.step("read them back: each exactly once, in the order of its queue")
        received = _receive(node.address, topic)
        say.tell(str(received))
        say.step("stop the node")
        exit_status = node.stop()
        clean = not (node.store / "abort").exists()
        say.tell(f"exit status {exit_status}, {'clean' if clean else 'NOT clean'}")
        if exit_status or not clean:
            raise LedgerError("the node did not stop cleanly", log=str(node.log))
    seconds = time.monotonic() - begin
    if arguments.json:
        summary = {"found": found, "sent": sent, "received": received}
        document = {name: moved._asdict() for name, moved in summary.items()}
        print(json.dumps({"folder": str(folder), "seconds": seconds, **document}))
    else:
        print(_how_to_go_on(folder, node, topic, seconds))
    return 0


class Steps:
    """Numbered lines on stdout; nothing when the summary is all that is wanted."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._count = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._count += 1
        if not self._quiet:
            print(f"\n{self._count}. {text}", flush=True)

    def tell(self, text: str) -> None:
        """Say what came of it."""
        if not self._quiet:
            print(f"   {text}", flush=True)


def _copy(source: Path, folder: Path) -> None:
    """Put the store at ``source`` into ``folder``; holes in its files stay holes."""
    if source.is_dir():
        copy = ["cp", "-a", "--reflink=auto", "--sparse=always", "--", str(source)]
        copied = subprocess.run(  # noqa: S603 - cp, without a shell
            [*copy, str(folder / "store")], check=False, stdin=subprocess.DEVNULL
        )
        if copied.returncode:
            raise StorageError("cannot copy the store", source=str(source), target=str(folder))
        return
    try:
        with tarfile.open(source) as archive:
            # Python 3.11.2, which is Debian 12's, has no filters yet.
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(folder, members=_inside(archive))  # noqa: S202 - checked by _inside
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(f"cannot unpack the store: {error}", path=str(source)) from error
    if not (folder / "store").is_dir():
        raise ConfigError("the archive has no folder store/", path=str(source))


def _inside(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """All members of an archive.

    Raises:
        ConfigError: one would not be a file or a folder inside of the target; nothing is unpacked.
    """
    members = archive.getmembers()
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
            raise ConfigError(
                "archive has a member that is no file or folder below its own",
                archive=str(archive.name),
                member=member.name,
            )
    return members


def _layout(arguments: argparse.Namespace, index: Path) -> IndexLayout | None:
    """What the index files are like, unless somebody says it."""
    # It needs numpy, and --help does not.
    from ledgermq.cli.store.store_sizes import index_layout

    return index_layout(arguments, index)


def _queues_of(store: Path) -> dict[str, dict[int, QueueBounds]]:
    """The queues of each topic, before a node goes on with what Java left to be delivered."""
    # It needs numpy, and --help does not.
    from ledgermq.store.store_view import StoreView

    topics: dict[str, dict[int, QueueBounds]] = {}
    with closing(StoreView(store)) as view:
        for bounds in view.queues():
            if bounds.end > bounds.first:
                topics.setdefault(bounds.topic, {})[bounds.queue_id] = bounds
    return topics


def _read_all(
    address: str, written: Mapping[str, Mapping[int, QueueBounds]], say: Steps
) -> MoveRate:
    begin = time.monotonic()
    with connect_broker(address, name="ledgermq demo", timeout_s=TIMEOUT_S) as broker:
        system = {row.topic for row in broker.topics() if row.system}
    messages = size = 0
    told: list[str] = []
    samples: list[str] = []
    for topic, queues in written.items():
        count = 0
        for message in _stored(address, topic, queues):
            # The client compares each body that is looked at with its CRC.
            size += len(message.body_view)
            if not count and topic not in system and len(samples) < SAMPLES_SHOWN:
                samples += _sample(message)
            count += 1
        expected = sum(bounds.end - bounds.first for bounds in queues.values())
        if count != expected:
            raise CorruptLogError(
                "topic has another number of messages than it says",
                topic=topic,
                expected=expected,
                found=count,
            )
        messages += count
        if topic not in system:
            told.append(f"{topic} {count}")
    say.tell(", ".join(told))
    for sample in samples:
        say.tell(sample)
    return MoveRate(messages, size, time.monotonic() - begin)


def _stored(
    address: str, topic: str, queues: Mapping[int, QueueBounds]
) -> Iterator[ReceivedMessage]:
    """All messages that the topic's queues had, in the order of each queue."""
    ends = {queue_id: bounds.end for queue_id, bounds in queues.items()}
    with Consumer(address, topic=topic, start="first") as consumer:
        while any(offset < ends.get(queue, 0) for queue, offset in consumer.offsets().items()):
            batch = consumer.poll(TIMEOUT_S)
            if not batch:
                raise CorruptLogError("queues end before their end", topic=topic, ends=ends)
            yield from (one for one in batch if one.queue_offset < ends.get(one.queue_id, 0))


def _send(node: LocalNode, topic: str, say: Steps) -> MoveRate:
    begin = time.monotonic()
    filler = b"." * BODY_SIZE
    with (
        Producer(node.address, name="ledgermq demo") as producer,
        ProgressLine("messages sent") as progress,
    ):
        futures = []
        for first in range(0, MESSAGES, BATCH):
            numbers = range(first, first + BATCH)
            bodies = [(b"message %d " % number + filler)[:BODY_SIZE] for number in numbers]
            futures.append(producer.send_batch(topic, bodies, tag="demo"))
            progress.show(first + BATCH, MESSAGES)
            if first == MESSAGES // 2:
                say.tell(f"killed the writer, process {node.kill('writer')}")
        stored = sum(len(future.result()) for future in futures)
    return MoveRate(stored, stored * BODY_SIZE, time.monotonic() - begin)


def _receive(address: str, topic: str) -> MoveRate:
    begin = time.monotonic()
    last_of_queue: dict[int, int] = {}
    seen = bytearray(MESSAGES)
    size = 0
    with Consumer(address, topic=topic, group=GROUP) as consumer:
        while not all(seen):
            batch = consumer.poll(TIMEOUT_S)
            if not batch:
                raise CorruptLogError("acknowledged message is not there", number=seen.index(0))
            for message in batch:
                body = message.body
                number = int(body.split(b" ", 2)[1])
                if seen[number] or number < last_of_queue.get(message.queue_id, 0):
                    raise CorruptLogError("message came twice, or out of order", number=number)
                seen[number] = 1
                last_of_queue[message.queue_id] = number
                size += len(body)
        consumer.commit()
        # All have been read: a message that was stored twice would stand behind them.
        behind = sum(consumer.ends().values()) - MESSAGES
    if behind:
        raise CorruptLogError("messages are stored more than once", messages=behind)
    return MoveRate(sum(seen), size, time.monotonic() - begin)


def _sample(message: ReceivedMessage) -> list[str]:
    """One line for a message whose body is text, none for another one."""
    text = bytes(message.body_view[:BODY_SHOWN]).decode(errors="replace")
    if not text.isprintable() or "\ufffd" in text:
        return []
    host, port = message.store_host
    stored = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(message.store_timestamp / 1_000))
    place = f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
    return [f"{place}: {text!r}, stored {stored} UTC by {host}:{port}"]


def _how_to_go_on(folder: Path, node: LocalNode, topic: str, seconds: float) -> str:
    program = called_as()
    commands = (
        ("start the node again", f"serve --config {node.config}"),
        ("then, from another terminal, look at it", f"status --config {node.config}"),
        ("send a message", f"send {topic} hello --address {node.address}"),
        (
            "receive some of those above",
            f"receive {topic} --from first --count 3 --address {node.address}",
        ),
        ("see the topics", f"topic list --address {node.address}"),
        ("read the files without a node", f"store dump {node.store} --topic {topic}"),
    )
    lines = [f"\nDone in {seconds:.1f} s. The store is still one that RocketMQ opens. Go on:\n"]
    for what, command in commands:
        lines += [f"   # {what}", f"   {program} {command}"]
    lines += ["   # remove all of it", f"   rm -r {folder}"]
    return "\n".join(lines)
