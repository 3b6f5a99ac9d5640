"""Table of process modules, and their import before the first fork.

Every process module has ``run(settings, stop) -> exit status``.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self, cast

from ledgermq.ipc.cursor_page import PORTS, Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.process.child_process import Entry

MODULES = {
    Role.RAFT: "ledgermq.raft_node.raft_process",
    Role.WRITER: "ledgermq.writer.writer",
    Role.DISPATCHER: "ledgermq.dispatcher.dispatcher",
    Role.BROKER: "ledgermq.gateway.broker_with_port",
    Role.OBSERVER: "ledgermq.observer.observer_process",
}

PORT_MODULE = "ledgermq.gateway.port_process"
"""One module for all port processes: its ``run`` is told first which of them to be."""

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _ProcessModule(Protocol):
    run: Entry


class _PortModule(Protocol):
    run: Callable[[Role, Settings, StopFlag], int]


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """What the supervisor runs."""

    entries: Mapping[Role, Entry]

    @classmethod
    def load(cls, roles: Collection[Role] = (*MODULES, *PORTS)) -> Self:
        """Import the processes of ``roles``; no ZeroMQ context and no thread may come of it.

        Raises:
            ModuleNotFoundError: a distribution that brings one of them is not installed, as
                ``ledgermq-web``, which a node without ``listen.http`` does not need.
        """
        for name in _THREAD_VARIABLES:
            # Read once, when numpy is imported: threads of its library would not survive a fork.
            os.environ[name] = "1"
        entries: dict[Role, Entry] = {}
        # Modules are no garbage: to look for some again and again is an eighth of the imports.
        gc.disable()
        try:
            for role in roles:
                if role in PORTS:
                    ports = cast("_PortModule", importlib.import_module(PORT_MODULE))
                    entries[role] = partial(ports.run, role)
                else:
                    module = importlib.import_module(MODULES[role])
                    entries[role] = cast("_ProcessModule", module).run
        finally:
            gc.enable()
        return cls(entries)
