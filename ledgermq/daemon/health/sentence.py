"""Status sentence for ``systemctl status``: role, term and lag, and why the node does not serve."""

from __future__ import annotations

from ledgermq.daemon.health.verdict import HealthState
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.process.node_status import Health


def sentence(page: CursorPage, *, health: Health, trouble: str, lacks_settings: str = "") -> str:
    """The node in one sentence, the same for as long as nothing changes.

    Lags are told where there are any: bytes that are written and not committed yet, and such that
    are committed and not in the queues yet.

    Args:
        page: of this node.
        health: the verdict on it.
        trouble: why the watchdog is not fed; empty when it is.
        lacks_settings: processes that did not take settings in time that were read again.
    """
    if health["state"] in (HealthState.STARTING, HealthState.STOPPING):
        return health["why_not_ready"]
    grant = page.read_grant()
    # From the last to the first, so that none is seen ahead of one that it follows.
    dispatched = page.read_dispatched().position
    committed = page.read_committed().position
    written = page.read_written().position
    parts = [f"{grant.role.name.lower()} in term {grant.term}, committed up to {committed}"]
    if written > committed:
        parts.append(f"{written - committed} bytes to be committed")
    if committed > dispatched:
        parts.append(f"{committed - dispatched} bytes to be dispatched")
    if not health["ready"]:
        parts.append(f"not ready: {health['why_not_ready']}")
    if lacks_settings:
        parts.append(f"reloaded settings not taken by {lacks_settings}")
    if trouble:
        parts.append(f"not well: {trouble}")
    return "; ".join(parts)
