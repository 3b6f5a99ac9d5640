"""Process of slaves: RocketMQ's own slaves follow the node's log at ``listen.ha``.

It writes nothing, and nothing waits for it: it looks at the cursor page now and then, reads the
log's files, and sends what is committed and durable. Who follows asks the port of the clients for
topics, groups and offsets.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from ledgermq.gateway.slaves.committed_log import CommittedLog
from ledgermq.gateway.slaves.slave_port import SlavePort
from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.ipc.counters import Counts, SlavesCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, StopFlag, sleep_max_ms
from ledgermq.model.config.settings import Settings
from ledgermq.model.exit_status import EXIT_STOPPED
from ledgermq.process.one_loop import entered_page, live, own_counts
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings import reload
from ledgermq.process.systemd.port_addresses import ANYWHERE
from ledgermq.store.files.store_paths import StorePaths


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
