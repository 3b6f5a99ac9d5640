"""What a slave gets of a log: committed and durable bytes, from the oldest file on."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.daemon.children import STOP_ORDER, start_order
from ledgermq.gateway.slaves.committed_log import CommittedLog, SentPart
from ledgermq.gateway.slaves.slave_process import SlavePort
from ledgermq.ipc.counters import SlavesCounter
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.model.config.settings import Settings, SlavesSection
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.remoting.ha_frames import REPORT, FrameReader
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log_family import LogFamily, LogFolder

FILE_SIZE = 1_024
FILES = 4
BEGIN = 2 * FILE_SIZE
CONTENT = os.urandom(FILES * FILE_SIZE)
WAIT_S = 20.0


class Log:
    """Files of a log that begins behind 0, and the cursors of its node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "commitlog"
        self.folder.mkdir()
        for number in range(FILES):
            start = number * FILE_SIZE
            self.path(BEGIN + start).write_bytes(CONTENT[start : start + FILE_SIZE])
        self.page = CursorPage.create(folder / "page")
        self.log = CommittedLog(LogFamily(LogFolder(self.folder, 0)), self.page)

    def path(self, start: int) -> Path:
        return self.folder / file_name(start)

    def publish(self, *, committed: int, durable: int) -> None:
        committed, durable = BEGIN + committed, BEGIN + durable
        self.page.publish_durable(LogCursor(Position(durable), Index(durable), Term(0)), 1)
        self.page.publish_committed(LogCursor(Position(committed), Index(committed), Term(0)))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.page.close()


def pieces(part: SentPart, size_max: int = 300) -> bytes:
    found = b"".join(iter(lambda: part.next_piece(size_max), b""))
    part.close()
    return found


def test_what_is_not_durable_or_not_committed_is_not_sent(log: Log) -> None:
    log.publish(committed=900, durable=700)
    part = SentPart(log.log, BEGIN)
    first = pieces(part)
    log.publish(committed=900, durable=1_500)
    then = pieces(part)

    assert first == CONTENT[:700]
    assert then == CONTENT[700:900]


def test_a_piece_ends_with_its_file(log: Log) -> None:
    log.publish(committed=4_096, durable=4_096)
    part = SentPart(log.log, BEGIN + 1_000)
    sizes = [len(part.next_piece(10_000)) for _ in range(4)]
    part.close()

    assert sizes == [24, FILE_SIZE, FILE_SIZE, FILE_SIZE]


@pytest.mark.parametrize("position", [1, BEGIN - 1])
def test_what_the_log_has_no_more_is_refused_with_where_it_begins(log: Log, position: int) -> None:
    log.publish(committed=4_096, durable=4_096)
    with pytest.raises(ProtocolError, match="begin again") as refused:
        SentPart(log.log, position).next_piece(100)

    assert refused.value.details["begins"] == BEGIN


def test_retention_that_is_faster_ends_a_slave_at_the_end_of_its_file(log: Log) -> None:
    log.publish(committed=4_096, durable=4_096)
    part = SentPart(log.log, BEGIN)
    first = part.next_piece(100)
    for number in (0, 1):
        log.path(BEGIN + number * FILE_SIZE).unlink()
    rest = part.next_piece(10_000)
    with pytest.raises(ProtocolError):
        part.next_piece(10_000)
    part.close()

    assert first + rest == CONTENT[:FILE_SIZE]


def test_a_file_that_was_cut_is_damage(log: Log) -> None:
    log.publish(committed=4_096, durable=4_096)
    part = SentPart(log.log, BEGIN)
    part.next_piece(100)
    os.truncate(log.path(BEGIN), 150)
    with pytest.raises(CorruptLogError):
        part.next_piece(100)
    part.close()


def run(log: Log, scene: Coroutine[None, None, None], port: SlavePort) -> None:
    """Have ``scene`` happen at an open port."""

    async def whole() -> None:
        port.open()
        try:
            async with asyncio.timeout(WAIT_S):
                await scene
        finally:
            await port.close()

    asyncio.run(whole())


def made_port(log: Log) -> tuple[SlavePort, int]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    counts = log.page.counters(Role.SLAVES)
    return SlavePort(listener, log.log, counts, SlavesSection()), listener.getsockname()[1]


def test_a_slave_that_has_nothing_gets_the_oldest_file_and_goes_on(log: Log) -> None:
    log.publish(committed=1_100, durable=1_100)
    port, number = made_port(log)

    async def scene() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(REPORT.pack(0))
        frames, found = FrameReader(BEGIN), b""
        while len(found) < 1_100:
            found += b"".join(map(bytes, frames.feed(await reader.read(4_096))))
        log.publish(committed=4_096, durable=4_096)
        while len(found) < 4_096:
            found += b"".join(map(bytes, frames.feed(await reader.read(4_096))))
        port.look()
        assert log.page.read_counters(Role.SLAVES)[SlavesCounter.BEHIND_BYTES] == BEGIN + 4_096
        writer.write(REPORT.pack(BEGIN + 4_096))
        await port.finish()
        port.look()
        writer.close()
        assert found == CONTENT

    run(log, scene(), port)
    counts = log.page.read_counters(Role.SLAVES)
    assert counts[SlavesCounter.BEHIND_BYTES] == 0
    assert counts[SlavesCounter.BYTES] == 4_096


def test_a_slave_waits_for_a_node_that_does_not_know_its_end_yet(log: Log) -> None:
    port, number = made_port(log)

    async def scene() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(REPORT.pack(BEGIN + 600))
        await asyncio.sleep(0)
        log.publish(committed=700, durable=700)
        frames, found = FrameReader(BEGIN + 600), b""
        while len(found) < 100:
            found += b"".join(map(bytes, frames.feed(await reader.read(4_096))))
        writer.close()
        assert found == CONTENT[600:700]

    run(log, scene(), port)


def test_the_process_is_there_where_slaves_are_wanted_alone() -> None:
    settings = Settings()
    wanted = replace(settings, listen=replace(settings.listen, ha="127.0.0.1:10912"))

    assert Role.SLAVES not in start_order(settings)
    assert Role.SLAVES in start_order(wanted)
    assert STOP_ORDER.index(Role.SLAVES) > STOP_ORDER.index(Role.DISPATCHER)


def test_who_connects_and_says_nothing_makes_room_for_slaves_and_they_do_not(log: Log) -> None:
    log.publish(committed=700, durable=700)
    port, number = made_port(log)
    places = SlavesSection().connections_max

    async def follow() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(REPORT.pack(BEGIN))
        frames, found = FrameReader(BEGIN), b""
        while len(found) < 700:
            data = await reader.read(4_096)
            assert data, "the slave was sent away"
            found += b"".join(map(bytes, frames.feed(data)))
        return reader, writer

    async def scene() -> None:
        silent = [await asyncio.open_connection("127.0.0.1", number) for _ in range(2 * places)]
        slaves = [await follow() for _ in range(places)]
        # Those who were there first have gone, and are closed.
        assert [await reader.read() for reader, _ in silent] == [b""] * len(silent)
        # Of who follows nobody goes for the next one.
        late, writer = await asyncio.open_connection("127.0.0.1", number)
        assert await late.read() == b""
        port.look()
        assert log.page.read_counters(Role.SLAVES)[SlavesCounter.CONNECTIONS] == places
        for _, one in [*silent, *slaves, (late, writer)]:
            one.close()

    run(log, scene(), port)


def test_who_connects_again_and_again_pushes_out_himself_and_no_slave_that_is_about_to_report(
    log: Log,
) -> None:
    """RocketMQ's slaves say what they have five seconds after they have connected."""
    log.publish(committed=700, durable=700)
    port, number = made_port(log)
    places = SlavesSection().connections_max

    async def knock() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", number, local_addr=("127.0.0.2", 0))
        return writer

    async def scene() -> None:
        knocks = [await knock() for _ in range(places)]
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        knocks += [await knock() for _ in range(4 * places)]
        writer.write(REPORT.pack(BEGIN))
        frames, found = FrameReader(BEGIN), b""
        while len(found) < 700:
            data = await reader.read(4_096)
            assert data, "the slave was sent away"
            found += b"".join(map(bytes, frames.feed(data)))
        for one in (*knocks, writer):
            one.close()
        assert found == CONTENT[:700]

    run(log, scene(), port)
