"""Cluster commands: what a group's log may say of its cluster, and their form in it.

One is a change of the broker's tables (``rules/state/state_commands.py``):

    {"cluster": "joined", "name": NAME, "root": KEY, "as": NAME, "nodes": [ADDRESS, …]}
    {"cluster": "left"}
    {"cluster": "certified", "chain": [CERTIFICATE, …]}
    {"cluster": "handed-over", "chain": [CERTIFICATE, …]}
    {"cluster": "row", "kind": KIND, "name": NAME, "number": N, "value": {…}}    null: there is none
    {"cluster": "forgotten", "number": N}
    {"cluster": "aged", "confirmed": MS, "over": FLAG}
    {"cluster_document": DOCUMENT}

Keys, certificates and documents are bytes, as base64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledgermq.formats.ed25519 import PUBLIC_SIZE
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.names.clusters import (
    CERTIFICATE_SIZE_MAX,
    CHAIN_LENGTH_MAX,
    NAME_LENGTH_MAX,
    NODE_ADDRESS_SIZE_MAX,
    NODES_MAX,
)
from ledgermq.rules.cluster.cluster_document import DOCUMENT_SIZE_MAX, read_value
from ledgermq.rules.cluster.json_objects import (
    Object,
    decoded,
    encoded,
    integer_of,
    text_of,
    texts_of,
)
from ledgermq.rules.cluster.numbered_rows import KIND_SIZE_MAX, ROW_NAME_SIZE_MAX, RowKey

CLUSTER_KEY = "cluster"
DOCUMENT_KEY = "cluster_document"
"""Keys by which the two kinds of changes are known in a command of the log."""


class ClusterJoined(NamedTuple):
    """The group belongs to this cluster from now on, if it belongs to no other one.

    Attributes:
        nodes: addresses of members of the home, to begin with.
    """

    cluster: str
    root: bytes
    group: str
    nodes: Sequence[str]


class ClusterLeft(NamedTuple):
    """The group belongs to no cluster from now on; the home may go only as the last one."""


class HomeCertified(NamedTuple):
    """There is, or was, such a chain of certificates."""

    chain: Sequence[bytes]


class HomeHandedOver(NamedTuple):
    """The home gives its place away by this chain, if its rows end where the next one's begin."""

    chain: Sequence[bytes]


class RowChanged(NamedTuple):
    """The home's row is so from now on; without ``value`` there is none.

    Attributes:
        number: that of the change: one more than that of the change before. Any other is of a
            change that is there already, or was meant for other rows.
    """

    key: RowKey
    number: int
    value: Object | None


class TombstonesForgotten(NamedTuple):
    """All groups have the home's changes up to this number."""

    number: int


class RightsAged(NamedTuple):
    """How old the rights of the cluster's users are in a group that is not the home.

    Attributes:
        confirmed_ms: when they were all that the home had, epoch ms; 0: nobody knows.
        is_over: they are too old, and count no more until there is another of these.
    """

    confirmed_ms: int
    is_over: bool


class DocumentTaken(NamedTuple):
    """A home has signed this."""

    signed: bytes


ClusterCommand = (
    ClusterJoined
    | ClusterLeft
    | HomeCertified
    | HomeHandedOver
    | RowChanged
    | TombstonesForgotten
    | RightsAged
    | DocumentTaken
)


def to_fields(command: ClusterCommand) -> Object:
    """The command as it stands in the log."""
    if isinstance(command, DocumentTaken):
        return {DOCUMENT_KEY: encoded(command.signed)}
    if isinstance(command, RowChanged):
        what, fields = "row", {**command.key._asdict(), "number": command.number}
        return {CLUSTER_KEY: what, **fields, "value": command.value}
    if isinstance(command, ClusterJoined):
        names = {"name": command.cluster, "as": command.group, "nodes": [*command.nodes]}
        return {CLUSTER_KEY: "joined", "root": encoded(command.root), **names}
    if isinstance(command, TombstonesForgotten | RightsAged):
        return _counted_fields(command)
    if isinstance(command, HomeCertified | HomeHandedOver):
        what = "certified" if isinstance(command, HomeCertified) else "handed-over"
        return {CLUSTER_KEY: what, "chain": [encoded(one) for one in command.chain]}
    return {CLUSTER_KEY: "left"}


def _counted_fields(command: TombstonesForgotten | RightsAged) -> Object:
    if isinstance(command, TombstonesForgotten):
        return {CLUSTER_KEY: "forgotten", "number": command.number}
    return {CLUSTER_KEY: "aged", "confirmed": command.confirmed_ms, "over": command.is_over}


def read_command(fields: Object) -> ClusterCommand | None:
    """The command that a change of the log is; None: it is another kind of change.

    Raises:
        CorruptLogError: it has another shape.
    """
    if DOCUMENT_KEY not in fields and CLUSTER_KEY not in fields:
        return None
    try:
        if DOCUMENT_KEY in fields:
            return DocumentTaken(decoded(fields[DOCUMENT_KEY], size_max=DOCUMENT_SIZE_MAX))
        read = _READ.get(text_of(fields, CLUSTER_KEY, size_max=16))
        found = read(fields) if read is not None else None
    except ConfigError as error:
        raise CorruptLogError(error.message, **error.details) from None
    if found is None:
        raise CorruptLogError(
            "no such change of a cluster", found=str(fields[CLUSTER_KEY])[:64], known=[*_READ]
        )
    return found


def read_chain(fields: Object) -> list[bytes]:
    """The certificates in ``chain``, none of which is checked here.

    Raises:
        ConfigError: they are none, or too many.
    """
    links = texts_of(fields, "chain", count_max=CHAIN_LENGTH_MAX, size_max=2 * CERTIFICATE_SIZE_MAX)
    return [decoded(one, size_max=CERTIFICATE_SIZE_MAX) for one in links]


def read_nodes(fields: Object) -> list[str]:
    """The addresses in ``nodes``.

    Raises:
        ConfigError: they are no texts, or too many.
    """
    return texts_of(fields, "nodes", count_max=NODES_MAX, size_max=NODE_ADDRESS_SIZE_MAX)


def _read_joined(fields: Object) -> ClusterJoined:
    return ClusterJoined(
        text_of(fields, "name", size_max=NAME_LENGTH_MAX),
        decoded(fields.get("root"), size_max=PUBLIC_SIZE),
        text_of(fields, "as", size_max=NAME_LENGTH_MAX),
        read_nodes(fields),
    )


def _read_row(fields: Object) -> RowChanged:
    key = RowKey(
        text_of(fields, "kind", size_max=KIND_SIZE_MAX),
        text_of(fields, "name", size_max=ROW_NAME_SIZE_MAX),
    )
    number = integer_of(fields, "number", low=1)
    return RowChanged(key, number, read_value(fields.get("value")))


_READ: dict[str, Callable[[Object], ClusterCommand]] = {
    "joined": _read_joined,
    "left": lambda _fields: ClusterLeft(),
    "certified": lambda fields: HomeCertified(read_chain(fields)),
    "handed-over": lambda fields: HomeHandedOver(read_chain(fields)),
    "row": _read_row,
    "forgotten": lambda fields: TombstonesForgotten(integer_of(fields, "number")),
    "aged": lambda fields: RightsAged(
        integer_of(fields, "confirmed"), fields.get("over") is not False
    ),
}
