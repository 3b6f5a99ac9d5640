"""WELCOME of a node's client sockets: what a client that says HELLO is told of the node."""

from __future__ import annotations

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.model.config.settings import Settings
from ledgermq.model.limits import FRAME_RECORDS_MAX, FRAME_SIZE_MAX
from ledgermq.sessions.leadership.standing import UNKNOWN
from ledgermq.wire.session import Welcome


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
