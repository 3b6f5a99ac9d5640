"""WELCOME of the writer to a producer."""

from __future__ import annotations

from ledgermq.ipc.cursor_page import Role
from ledgermq.model.limits import FRAME_RECORDS_MAX, FRAME_SIZE_MAX
from ledgermq.process.environment import Environment
from ledgermq.process.standing import UNKNOWN
from ledgermq.wire.session import Welcome
from ledgermq.writing.log_opening import OpenLog


def welcome_of(around: Environment, log: OpenLog, *, delay_levels: int) -> Welcome:
    """All of it but who leads, and the version of the session."""
    settings = around.settings
    return Welcome(
        cluster=settings.node.broker_cluster_name,
        broker=settings.node.broker_name,
        node=settings.node.self_id,
        generation=around.page.read_process(Role.WRITER).generation,
        role=UNKNOWN.role,
        ack=settings.ack.mode.value,
        entry_header_size=log.writer.header_size,
        store_host_size=len(log.store_host),
        body_size_max=settings.store.max_message_size,
        frame_size_max=FRAME_SIZE_MAX,
        frame_records_max=FRAME_RECORDS_MAX,
        window_bytes=settings.limits.client_window_bytes,
        delay_levels=delay_levels,
        store_host=_host_text(settings.node.broker_ip, settings.node.listen_port),
    )


def _host_text(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
