"""Happenings: what has changed on the node while the observer looked on, without any journal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ledgermq.ipc.cursor_page import CursorPage, Grant, PublishedRole, Role
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.process.node_status import roles_in_use

HAPPENINGS_MAX = 1_000
KEPT_MS = 24 * 3_600 * 1_000


class Happening(NamedTuple):
    """One change.

    Attributes:
        at_ms: when it was seen, epoch ms: within a second of when it was.
        level: ``info`` or ``WARN``.
        who: the node, the member or the process that it is about.
    """

    at_ms: int
    level: str
    event: str
    who: str
    text: str


class _Seen(NamedTuple):
    """What one look at the cursor page has found."""

    grant: Grant
    absent: frozenset[str]
    space: SpaceState
    is_sick: bool
    settings: int
    started: dict[Role, int]


class Happenings:
    """The last ones of a day, at most ``HAPPENINGS_MAX``; nobody is asked for them.

    Attributes:
        since_ms: when the first look was, epoch ms.
        silent: members that give no sign of life, and since when; before ``since_ms`` where it is
            that.
    """

    def __init__(self, page: CursorPage, node: str) -> None:
        """Look for the first time: what is so already has not happened since."""
        self._page = page
        self._node = node
        self._kept: deque[Happening] = deque(maxlen=HAPPENINGS_MAX)
        self.since_ms = time.time_ns() // 1_000_000
        self._seen = self._look()
        self.silent = dict.fromkeys(self._seen.absent, self.since_ms)

    def look(self) -> None:
        """Note what has changed; with each wake-up."""
        before, now = self._seen, self._look()
        if now == before:
            return
        self._seen = now
        at_ms = time.time_ns() // 1_000_000
        for gone in now.absent - before.absent:
            self.silent[gone] = at_ms
        for back in before.absent - now.absent:
            self.silent.pop(back, None)
        self._kept.extend(Happening(at_ms, *told) for told in self._changes(before, now))

    def newest(self) -> list[Happening]:
        """Those of the last day, the newest first."""
        begin_ms = time.time_ns() // 1_000_000 - KEPT_MS
        return [one for one in reversed(self._kept) if one.at_ms >= begin_ms]

    def _look(self) -> _Seen:
        page = self._page
        return _Seen(
            page.read_grant(),
            frozenset(page.read_absent()),
            page.read_space().state,
            page.read_proof().disk_is_sick,
            page.settings_number,
            {role: page.read_process(role).started_ns for role in roles_in_use(page)},
        )

    def _changes(self, before: _Seen, now: _Seen) -> Iterator[tuple[str, str, str, str]]:
        yield from self._changes_of_role(before.grant, now.grant)
        for member in sorted(now.absent - before.absent):
            yield "WARN", "member_silent", member, "gives no sign of life"
        for member in sorted(before.absent - now.absent):
            yield "info", "member_heard", member, "is heard of again"
        for role, started_ns in now.started.items():
            if before.started.get(role) not in (None, 0, started_ns):
                yield "WARN", "process_restarted", role.title, "was started again"
        if now.space is not before.space:
            is_well = now.space is SpaceState.ROOMY
            text = "has room again" if is_well else "is full: producers are refused"
            yield "info" if is_well else "WARN", "disk_space", self._node, f"the disk {text}"
        if now.is_sick != before.is_sick:
            text = "is sick: syncs hang" if now.is_sick else "is well again"
            yield "WARN" if now.is_sick else "info", "disk_health", self._node, f"the disk {text}"
        if now.settings != before.settings:
            yield "info", "settings_read", self._node, "its settings were read again"

    def _changes_of_role(self, before: Grant, now: Grant) -> Iterator[tuple[str, str, str, str]]:
        if (now.term, now.role, now.leader) == (before.term, before.role, before.leader):
            return
        if now.role is PublishedRole.LEADER:
            if before.role is not PublishedRole.LEADER or now.term != before.term:
                yield "info", "role_changed", self._node, f"leads in term {now.term}"
        elif now.leader:
            yield "info", "role_changed", self._node, f"follows {now.leader} in term {now.term}"
        elif now.role is PublishedRole.CANDIDATE:
            yield "WARN", "election", self._node, f"asks to be elected in term {now.term}"
        else:
            yield "WARN", "no_leader", self._node, f"knows of no leader in term {now.term}"
