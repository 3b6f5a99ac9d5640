"""A node of four tiny processes under the real supervisor, run as a script by the tests.

    small_node.py CONFIG ORDERS

Each process attaches to the page and beats, as the real ones do. What else it does, it is told by
files in the folder ORDERS: ``writer.once`` is obeyed by one life of the writer, ``writer.always``
by every one. Content: ``exit N``, ``raise KIND``, ``kill``, ``silent`` (turns no more),
``stubborn`` (does not stop), ``deaf`` (takes no settings until it is told something else),
``unflushed`` (writes, and never flushes), ``isolated`` (raft hears of nobody any more), ``slow``
(is long in starting), ``behind`` (leaves something that is not dispatched). ``supervisor.turn``: so
many seconds pass between the turns of a supervisor that is ready and that nothing wakes.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ledgermq.daemon import supervisor
from ledgermq.daemon.children import ProcessTable
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import (
    CursorPage,
    Dispatched,
    Grant,
    LogCursor,
    PublishedRole,
    Role,
)
from ledgermq.ipc.loop import StopFlag
from ledgermq.ipc.page_slots import Proof
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, LedgerError, StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.process.child_process import exit_status_of
from ledgermq.process.settings.settings_loading import load_settings

TURN_S = 0.01
END = LogCursor(Position(4_096), Index(7), Term(3))
AHEAD = LogCursor(Position(8_192), Index(9), Term(3))

ERRORS: dict[str, Exception] = {
    "storage": StorageError("fdatasync failed", errno=5),
    "config": ConfigError("listen.produce is taken"),
    "eio": OSError(5, "Input/output error"),
    "bug": AssertionError("a cursor went back"),
}


def process(role: Role, orders: Path) -> Callable[[Settings, StopFlag], int]:
    """The entry point of ``role``."""

    def run(settings: Settings, stop: StopFlag) -> int:
        page = CursorPage.attach(settings.listen.runtime_dir / "cursors")
        page.enter_process(role)
        order = ""
        while not stop.reason or order == "stubborn":
            given = read_order(orders, role) or order
            if given != order:
                order = given
                (orders / f"{role.title}.knows").write_text(order)
            obey(order, page, role)
            publish(page, role, order)
            select.select([stop.fileno()], [], [], TURN_S)
            stop.drain()
            if stop.reload and stop.on_reload is not None and order != "deaf":
                stop.reload = False
                number = page.settings_number
                stop.on_reload()
                # Whole, and before anybody is told: tests read it at once.
                level = orders / f"{role.title}.new"
                level.write_text(logging.getLevelName(logging.getLogger().level))
                level.rename(orders / f"{role.title}.level")
                page.take_settings(role, number)
            if order != "silent":
                page.beat(role, time.monotonic_ns())
        with (orders / "stopped").open("a") as file:
            file.write(f"{role.title}\n")
        return 0

    return run


def read_order(orders: Path, role: Role) -> str:
    once = orders / f"{role.title}.once"
    always = orders / f"{role.title}.always"
    if once.exists():
        text = once.read_text()
        once.unlink()
        return text
    return always.read_text() if always.exists() else ""


def obey(order: str, page: CursorPage, role: Role) -> None:
    verb, _, argument = order.partition(" ")
    if verb == "exit":
        os._exit(int(argument))
    if verb == "raise":
        raise ERRORS[argument]
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if verb == "load":
        # At work as before a loop: a sign of life, and then none for a while.
        page.give_sign(role, time.monotonic_ns())
    if verb in ("slow", "load"):
        time.sleep(float(argument))


def publish(page: CursorPage, role: Role, order: str) -> None:
    if role is Role.RAFT:
        page.publish_grant(Grant(Term(3), True, PublishedRole.LEADER))
        page.publish_committed(AHEAD if order == "behind" else END)
        if order != "isolated":
            page.publish_proof(Proof(time.monotonic_ns(), False, False))
    elif role is Role.WRITER:
        page.publish_written(AHEAD if order == "unflushed" else END, 8)
        if order != "unflushed":
            page.publish_durable(END, time.monotonic_ns())
    elif role is Role.DISPATCHER:
        page.publish_dispatched(Dispatched(END.position, 8, 0, time.monotonic_ns(), 0))
    elif role is Role.BROKER:
        counts = page.counters(Role.BROKER)
        counts[BrokerCounter.TABLES_TERM], counts[BrokerCounter.TABLES_AT] = 3, 1
        counts.release()


def serve(config: Path, orders: Path) -> int:
    roles = (Role.RAFT, Role.WRITER, Role.DISPATCHER, Role.BROKER)
    turn = orders / "supervisor.turn"
    if turn.exists():
        supervisor.TURN_MAX_NS = int(turn.read_text()) * 1_000_000_000
    table = ProcessTable({role: process(role, orders) for role in roles})
    return supervisor.run(load_settings(config), config, table=table)


if __name__ == "__main__":
    try:
        sys.exit(serve(Path(sys.argv[1]), Path(sys.argv[2])))
    except LedgerError as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        sys.exit(exit_status_of(refusal))
