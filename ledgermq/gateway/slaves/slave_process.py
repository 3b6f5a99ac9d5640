"""Process of slaves: RocketMQ's own slaves follow the node's log at ``listen.ha``.

It writes nothing, and nothing waits for it: it looks at the cursor page now and then, reads the
log's files, and sends what is committed and durable. Who follows asks the port of the clients for
topics, groups and offsets.

A slave says where its log ends, and gets what follows; then it says what it has, at least every
five seconds. One that says what it cannot have, is silent, or does not read, loses its connection
and nothing else: what is kept for one is a piece of the log and eight bytes.
Where all places are taken, who has said nothing yet gives way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import ExitStack, suppress

from ledgermq.formats.records.host_address import plain_address
from ledgermq.gateway.slaves.committed_log import CommittedLog, SentPart
from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.hosts.address_share import share_of
from ledgermq.ipc.counters import Counts, SlavesCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, StopFlag, sleep_max_ms
from ledgermq.model.config.settings import Settings, SlavesSection
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.model.exit_status import EXIT_STOPPED
from ledgermq.process.one_loop import end_all, entered_page, live, own_counts
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings import reload
from ledgermq.process.systemd.port_addresses import ANYWHERE
from ledgermq.remoting.fields import INT64_MAX
from ledgermq.remoting.ha_frames import REPORTS_SIZE_MAX, ReportReader, encode_pushed
from ledgermq.sessions.refusal_lines import RefusalLines
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.sessions.socket_watch import Strangers
from ledgermq.store.files.store_paths import StorePaths

logger = logging.getLogger(__name__)

PIECE_SIZE = 256 * 1024
"""Most bytes of one frame; they are read at once, and kept until they are sent."""

SILENT_S = 20.0
"""A slave that reports nothing for so long is gone, as with RocketMQ's masters; so is one that
takes longer to read one frame."""

SIGN_S = 5.0
"""Without news of the log a slave gets a sign of life so often; it goes away after 20 s."""

AHEAD_S = 5.0
"""Who has more than the log is waited for so long: a node that starts does not know its end yet."""

LOOK_MIN_S, LOOK_MAX_S = 0.002, LOOK_AGAIN_MS / 1_000
"""Pauses between looks at the cursors: from the first one on, while there is no news, each is twice
the one before."""

HEAR_PAUSE_S = 0.01
"""Pause between two reads of reports: who floods the port waits in its own buffer."""

FINISH_S = 2.0
"""A node that stops waits so long for slaves to have all of its log."""


class SlavePort:
    """Owned by the process's loop."""

    def __init__(
        self, listener: socket.socket, log: CommittedLog, counts: Counts, settings: SlavesSection
    ) -> None:
        """Nobody is let in yet.

        Args:
            listener: non-blocking; the port closes it.
        """
        self._listener = listener
        self._log = log
        self._counts = counts
        self._settings = settings
        self._faults = RequestFaults(counts, SlavesCounter.REQUESTS_FAILED)
        self._lines = RefusalLines()
        self._slaves: dict[asyncio.Task[None], _Slave] = {}
        self._strangers = Strangers()
        self._accepting: asyncio.Task[None] | None = None
        self._free_at = 0.0

    def open(self) -> None:
        """Let slaves in."""
        self._accepting = asyncio.create_task(self._accept())

    def take_settings(self, settings: SlavesSection) -> None:
        """The settings were read again; who is there stays."""
        self._settings = settings

    def look(self) -> None:
        """Tell how far the slaves are; call it a few times a second."""
        following = [one for one in self._slaves.values() if one.is_fed]
        self._counts[SlavesCounter.CONNECTIONS] = len(following)
        behind = (self._log.end - one.reported for one in following)
        self._counts[SlavesCounter.BEHIND_BYTES] = max(behind, default=0)

    async def finish(self) -> None:
        """Wait until all slaves have the whole log, for ``FINISH_S`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while any(one.is_behind for one in self._slaves.values()):
                    await asyncio.sleep(LOOK_MIN_S)

    async def close(self) -> None:
        """Let nobody in any more, and end all connections."""
        tasks = [*self._slaves]
        if self._accepting is not None:
            tasks.append(self._accepting)
        await end_all(tasks)
        self._listener.close()

    async def pace(self, size: int) -> None:
        """Wait until ``size`` bytes more may be sent to any slave."""
        now = time.monotonic()
        wait_s = max(0.0, self._free_at - now)
        self._free_at = now + wait_s + size / self._settings.bytes_per_s
        # Also where there is nothing to wait for: others have their turn between two pieces.
        await asyncio.sleep(wait_s)

    def note_sent(self, size: int) -> None:
        """Count bytes of the log that were given to a connection."""
        self._counts[SlavesCounter.BYTES] += size

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # No descriptor is left, or the slave has gone already.
                logger.debug("connection not taken: %s", error)
                await asyncio.sleep(HEAR_PAUSE_S)
                continue
            host = plain_address(str(address[0]))
            is_full = len(self._slaves) >= self._settings.connections_max
            if is_full and not self._give_way(host):
                self._refuse(
                    host,
                    ProtocolError(
                        "there are slaves enough",
                        limit=self._settings.connections_max,
                        setting="slaves.connections_max",
                    ),
                )
                client.close()
            else:
                slave = _Slave(client, host, self._log, self)
                task = asyncio.create_task(self._serve(slave, host))
                self._slaves[task] = slave
                # It may have to give way before it has begun.
                task.add_done_callback(self._forget)
                self._strangers.add(share_of(host), slave, task.cancel)
                # One of two was.
                self._counts[SlavesCounter.REFUSED] += is_full
            if is_full:
                # Who knocks all the time waits at the door, and those who are in have their turn.
                await asyncio.sleep(HEAR_PAUSE_S)

    def _give_way(self, host: str) -> bool:
        """End who says nothing, of ``host`` first: RocketMQ's slaves take five seconds for their
        first report, and who connects again and again is to push out himself.
        """
        share = share_of(host)
        return self._strangers.give_way(share) or self._strangers.give_way()

    def note_asked(self, slave: _Slave) -> None:
        """A slave has said what it has: it does not give way any more."""
        self._strangers.discard(slave)

    def _forget(self, task: asyncio.Task[None]) -> None:
        slave = self._slaves.pop(task)
        self._strangers.discard(slave)
        slave.close()

    async def _serve(self, slave: _Slave, host: str) -> None:
        try:
            await slave.serve()
        except (OSError, EOFError) as error:
            if slave.is_fed:
                logger.info("slave has gone: peer=%s reported=%d: %s", host, slave.reported, error)
        except LedgerError as error:
            self._refuse(host, error)
        except Exception as error:
            self._faults.refusal(error, "slave")

    def _refuse(self, host: str, error: LedgerError) -> None:
        self._counts[SlavesCounter.REFUSED] += 1
        if self._lines.is_news(host, error.message, time.monotonic()):
            logger.warning("slave is refused: peer=%s reason=%s", host, error)


class _Slave:
    """One connection.

    Attributes:
        is_fed: its first report was taken, and it gets the log.
    """

    def __init__(
        self, client: socket.socket, host: str, log: CommittedLog, port: SlavePort
    ) -> None:
        self.is_fed = False
        self._client = client
        self._host = host
        self._log = log
        self._port = port
        self._reports = ReportReader()
        self._part: SentPart | None = None

    @property
    def reported(self) -> int:
        """Position behind all that it says to have; -1 before its first report."""
        return self._reports.reported

    @property
    def is_behind(self) -> bool:
        """Whether it is fed, and lacks something of the log."""
        return self.is_fed and self.reported < self._log.end

    def close(self) -> None:
        """End the connection."""
        self._client.close()
        if self._part is not None:
            self._part.close()

    async def serve(self) -> None:
        """Feed it until it goes.

        Raises:
            OSError, EOFError: it has gone, is silent, or does not read.
            LedgerError: it says what no slave of this log says, or the log cannot be read.
        """
        self._client.setblocking(False)
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._take_report(None)
        self._port.note_asked(self)
        part = self._part = SentPart(self._log, await self._first_position())
        self.is_fed = True
        logger.info("slave follows: peer=%s from=%d", self._host, part.position)
        tasks = {asyncio.create_task(self._feed(part)), asyncio.create_task(self._hear(part))}
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_all(tasks)
        for task in ended:
            task.result()

    async def _first_position(self) -> int:
        """Where it goes on. One that has nothing gets all that there is, unlike with RocketMQ's
        masters, which begin with their newest file: it is to be able to take over.

        Raises:
            ProtocolError: it has more than there is.
        """
        asked = self.reported
        with suppress(TimeoutError):
            async with asyncio.timeout(AHEAD_S):
                while not (self._log.is_known and asked <= self._log.end):
                    await asyncio.sleep(LOOK_MAX_S)
        if not self._log.is_known:
            raise TimeoutError("this node does not know yet where its log ends")
        if asked > self._log.end:
            raise ProtocolError(
                "the slave's log ends behind this node's: it is the slave of another one, or this"
                " node's store was put back to an older copy",
                position=asked,
                ends=self._log.end,
            )
        return asked or self._log.begin

    async def _feed(self, part: SentPart) -> None:
        pause_s, signed_at = LOOK_MIN_S, 0.0
        while True:
            begin = part.position
            piece = part.next_piece(PIECE_SIZE)
            now = time.monotonic()
            if piece:
                await self._port.pace(len(piece))
                await self._send(encode_pushed(begin, piece))
                self._port.note_sent(len(piece))
                pause_s, signed_at = LOOK_MIN_S, now
            elif now - signed_at >= SIGN_S:
                await self._send(encode_pushed(begin, b""))
                signed_at = now
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)

    async def _send(self, frame: bytes) -> None:
        async with asyncio.timeout(SILENT_S):
            await asyncio.get_running_loop().sock_sendall(self._client, frame)

    async def _hear(self, part: SentPart) -> None:
        while True:
            await self._take_report(part)
            await asyncio.sleep(HEAR_PAUSE_S)

    async def _take_report(self, part: SentPart | None) -> None:
        """Wait for the next report.

        Args:
            part: what it was sent; None: any position may be reported, for the first time.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SILENT_S):
            while True:
                data = await loop.sock_recv(self._client, REPORTS_SIZE_MAX)
                if not data:
                    raise EOFError("it has ended the connection")
                # It was sent something meanwhile.
                sent = INT64_MAX if part is None else part.position
                if self._reports.feed(data, sent=sent):
                    return


def run(settings: Settings, stop: StopFlag) -> int:
    """Send the log to slaves until told to stop; the exit status.

    Raises:
        ConfigError: ``listen.ha`` cannot be listened at.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    with ExitStack() as resources:
        paths = RuntimePaths(settings.listen.runtime_dir)
        page = resources.enter_context(entered_page(paths.cursors, Role.SLAVES))
        of_now = SlavesCounter.CONNECTIONS, SlavesCounter.BEHIND_BYTES
        counts = resources.enter_context(own_counts(page, Role.SLAVES, of_now))
        asyncio.run(_run(settings, page, counts, stop))
    return EXIT_STOPPED


async def _run(settings: Settings, page: CursorPage, counts: Counts, stop: StopFlag) -> None:
    assert settings.listen.ha is not None
    host, _, number = settings.listen.ha.rpartition(":")
    address = (ANYWHERE if host == "*" else host.strip("[]"), int(number))
    (listener,) = open_listeners([address], setting="listen.ha")
    log = CommittedLog(StorePaths.of(settings).log, page)
    port = SlavePort(listener, log, counts, settings.slaves)
    port.open()
    stop.on_reload = lambda: port.take_settings(reload.take_published(settings).slaves)
    try:
        sleep_max_s = min(LOOK_AGAIN_MS, sleep_max_ms(settings)) / 1_000
        await live(page, Role.SLAVES, stop, sleep_max_s, port.look)
        # The writer has ended by now: there is an end that all can have.
        await port.finish()
    finally:
        await port.close()
