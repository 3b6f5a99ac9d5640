"""What the services of a leader's broker stand on, over a log in memory that outlives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledgermq.broker.deliveries.moves import Moves
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.ipc.counters import no_counts
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.process.clock import MACHINE_CLOCK, Clock
from ledgermq.wire.session import LEADER, Standing
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog, root_of


class StateNode:
    """Tables, the state's log, and moves; a test adds the services that it is about.

    Attributes:
        stand_in: the log, in the place of a store.
    """

    def __init__(
        self, directory: Path, log: MemoryLog, *, clock: Clock = MACHINE_CLOCK, **sections: Any
    ) -> None:
        """Nobody leads yet; ``sections`` are those of the settings."""
        if "store" not in sections:
            sections["store"] = StoreSection(path_root_dir=root_of(directory))
        self.settings = Settings(**sections)
        self.log, self.now_ms = log, 0
        self.stand_in: Any = log
        self.tables = BrokerTables(directory / "config", self.settings)
        self.mailbox, self.counts = Mailbox(), no_counts()
        self.state = StateLog(
            self.settings,
            self.stand_in,
            self.tables,
            self.stand_in,
            mailbox=self.mailbox,
            clock=clock,
            counts=self.counts,
        )
        self.known = KnownTopics(self.stand_in, self.tables)
        self.moves = Moves(self.stand_in, self.tables, self.state, self.counts)

    def lead(self, term: int) -> None:
        """Lead from now on."""
        apply_all(self.state)
        self.state.lead(Standing(LEADER, term, "n0"))
