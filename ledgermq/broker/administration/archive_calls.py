"""Calls about archives, for which retention waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.errors import ConfigError
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.tables.archives import ArchiveMark, check_name
from ledgermq.rules.tables.table_changes import ArchiveSet, Change
from ledgermq.verbs.upkeep import CommitArchive, ListArchives, RemoveArchive

ARCHIVES_MAX = 100


class ArchiveCalls:
    """Changes go through the log, and are those of all nodes when they are answered."""

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, log: StateLog, clock: Clock
    ) -> None:
        self._store = store
        self._tables = tables
        self._log = log
        self._clock = clock
        self.verbs: Verbs = (
            answered(ListArchives, self._list),
            answered(CommitArchive, self._commit),
            answered(RemoveArchive, self._remove),
        )

    def _list(self, _call: Call, _asked: ListArchives) -> Result:
        """All archives, and up to where this node's queues have the log."""
        self._log.check_newest()
        return {
            "archives": [
                {"archive": name, **mark.to_fields()} for name, mark in self._tables.archives
            ],
            "node": self._tables.node.self_id,
            "queued": self._store.position,
        }

    def _commit(self, call: Call, asked: CommitArchive) -> Result | None:
        """Have an archive further, or for the first time."""
        name, position = check_name(asked.archive), asked.position
        archives = self._tables.archives

        def plan() -> Sequence[Change]:
            known = archives.get(name)
            if known is None and len(archives) >= ARCHIVES_MAX:
                raise ConfigError("too many archives", archives=len(archives), limit=ARCHIVES_MAX)
            if position > self._store.position:
                raise ConfigError(
                    "archive is said to have what the log has not",
                    archive=name,
                    position=position,
                    end=self._store.position,
                )
            if known is not None and position < known.position:
                raise ConfigError(
                    "archive was further already: is it another one? ledgermq archive remove",
                    archive=name,
                    position=position,
                    archived=known.position,
                )
            return [ArchiveSet(name, ArchiveMark(position, epoch_ms(self._clock)).to_fields())]

        def shown() -> Result:
            mark = archives.get(name)
            return {"archive": name, **({} if mark is None else mark.to_fields())}

        self._submit(call, name, plan, shown)
        return None

    def _remove(self, call: Call, asked: RemoveArchive) -> Result | None:
        name = check_name(asked.archive)

        def plan() -> Sequence[Change]:
            if self._tables.archives.get(name) is None:
                raise ConfigError("nothing waits for such an archive", archive=name)
            return [ArchiveSet(name, None)]

        self._submit(call, name, plan, lambda: {"archive": name})
        return None

    def _submit(
        self,
        call: Call,
        name: str,
        plan: Callable[[], Sequence[Change]],
        answer: Callable[[], Result],
    ) -> None:
        self._log.check_leads()
        plan()  # refuses at once what cannot be made
        request = StateRequest(call.caller, plan, frozenset({f"archive {name}"}), answer)
        self._log.submit(request, call.now_ms)
