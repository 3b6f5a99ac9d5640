"""Standing of a node, as its clients are told: who leads, and whether it is this node."""

from __future__ import annotations

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.ipc.cursor_page import CursorPage, Grant, LogCursor, PublishedRole
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.ids import Position, Term
from ledgermq.model.limits import FRAME_RECORDS_MAX, FRAME_SIZE_MAX
from ledgermq.wire.session import CANDIDATE, FOLLOWER, LEADER, Standing, Welcome

UNKNOWN = Standing(FOLLOWER, 0, "")
"""Standing before raft has said anything."""


def standing_of(grant: Grant, *, serves: bool) -> Standing:
    """What clients are told.

    Args:
        serves: the process takes what only a leader may take; one that leads, but is not that far,
            passes for a candidate.
    """
    if grant.role is PublishedRole.FOLLOWER:
        role = FOLLOWER
    else:
        role = LEADER if serves and grant.role is PublishedRole.LEADER else CANDIDATE
    return Standing(role, grant.term, grant.leader)


class ReaderStanding:
    """When the broker of the leader may say so: consumers must not find less than at the last one.

    A new leader has every committed entry in its log, but its queues may be behind. The end of the
    queues counts when the first entry of the term, and so all before it, is committed and
    dispatched.
    """

    def __init__(self, page: CursorPage, log: LogKind) -> None:
        self._page = page
        *_, self._grant_cell = page.cursor_cells()
        self._log = log
        self._version = -1
        self._grant = page.read_grant()
        self._until: Position | None = None
        self._served: Term | None = None
        self._awaits_dispatch = self._leads()

    @property
    def awaits_dispatch(self) -> bool:
        """Whether this node leads, and may not say so before more is dispatched."""
        return self._awaits_dispatch

    @property
    def has_news(self) -> bool:
        """Whether ``look`` would find another standing than before: there may be no bell for it."""
        if self._grant_cell[0] != self._version:
            return True
        if not self._awaits_dispatch:
            return False
        if self._until is None:
            return self._is_known(self._page.read_committed())
        return self._page.read_dispatched().position >= self._until

    def look(self) -> Standing | None:
        """What the node is now; ``None`` when nothing can have changed since the last look."""
        version = self._grant_cell[0]
        is_behind = self._leads() and self._served != self._grant.term
        if version == self._version and not is_behind:
            return None
        self._version = version
        self._grant = self._page.read_grant()
        if self._leads() and self._served != self._grant.term:
            self._look_at_queues()
        self._awaits_dispatch = self._leads() and self._served != self._grant.term
        return standing_of(self._grant, serves=self._served == self._grant.term)

    def _leads(self) -> bool:
        return self._grant.granted and self._grant.role is PublishedRole.LEADER

    def _look_at_queues(self) -> None:
        term = self._grant.term
        committed = self._page.read_committed()
        if not self._is_known(committed):
            self._until = None
            return
        if self._until is None:
            self._until = committed.position
        if self._page.read_dispatched().position >= self._until:
            self._served, self._until = term, None

    def _is_known(self, committed: LogCursor) -> bool:
        """Whether raft has told how much of the log was there when this node began to lead."""
        if self._log.has_terms:
            return committed.term == self._grant.term
        # A cursor that nobody has published is 0, too: then only a log that is empty is all told.
        is_empty = self._page.has_written() and self._page.read_written().position == 0
        return committed.position > 0 or is_empty


def welcome_of(settings: Settings, generation: int, *, delay_levels: int = 0) -> Welcome:
    """All of it but who leads, and what is the session's own.

    Args:
        generation: of the process that the client has connected to.
    """
    node = settings.node
    host = f"[{node.broker_ip}]" if ":" in node.broker_ip else node.broker_ip
    return Welcome(
        cluster=node.broker_cluster_name,
        broker=node.broker_name,
        node=node.self_id,
        generation=generation,
        role=UNKNOWN.role,
        ack=settings.ack.mode.value,
        entry_header_size=ENTRY_HEADER_SIZE if settings.store.log.has_terms else 0,
        store_host_size=len(encode_host((node.broker_ip, node.listen_port))),
        body_size_max=settings.store.max_message_size,
        frame_size_max=FRAME_SIZE_MAX,
        frame_records_max=FRAME_RECORDS_MAX,
        window_bytes=settings.limits.client_window_bytes,
        delay_levels=delay_levels,
        store_host=f"{host}:{node.listen_port}",
    )
