"""Offsets of a stream over several groups: those of each group, as Spark keeps them.

    {"@groups": {"orders-a": {"nodes": "tcp://10.0.0.1:10922", "offsets": {"orders": {"0": 23}}},
                 "orders-b": {"nodes": …, "offsets": {…}, "finished": true}}}

No topic has the name ``@groups``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.queue_ranges import Offsets, queue_table

GROUPS = "@groups"


class StreamedOffsets(NamedTuple):
    """Where a query is in one group.

    Attributes:
        nodes: addresses of its nodes without options, with commas: who has left a cluster is told
            by nobody, and may hold what was not read. Empty where it does not matter.
        is_finished: it had left the cluster, and nothing new came when it was asked after that.
    """

    nodes: str
    offsets: Offsets
    is_finished: bool = False


def groups_document(groups: Mapping[str, StreamedOffsets]) -> dict[str, object]:
    """``groups`` as JSON has them."""
    return {GROUPS: {name: _group_document(one) for name, one in sorted(groups.items())}}


def _group_document(group: StreamedOffsets) -> dict[str, object]:
    offsets: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(group.offsets.items()):
        offsets.setdefault(topic, {})[str(queue_id)] = offset
    document: dict[str, object] = {"nodes": group.nodes, "offsets": offsets}
    return {**document, "finished": True} if group.is_finished else document


def groups_in(
    document: Mapping[str, object], *, option: str = "checkpoint"
) -> dict[str, StreamedOffsets]:
    """The groups of a document.

    Raises:
        ConfigError: it is something else, as of a query without ``brokerGroups``.
    """
    groups = document.get(GROUPS)
    if not isinstance(groups, dict) or len(document) != 1:
        raise ConfigError(
            "offsets are not those of several groups: a query over groups begins with a checkpoint"
            " of its own",
            option=option,
            found=str(document)[:200],
        )
    return {name: _group_in(name, one, option) for name, one in groups.items()}


def _group_in(name: str, document: object, option: str) -> StreamedOffsets:
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(nodes, str):
        raise ConfigError(
            "offsets of a group have another form",
            option=option,
            broker_group=name,
            found=str(document)[:200],
        )
    offsets = queue_table(document.get("offsets"), option=option)
    return StreamedOffsets(nodes, offsets, document.get("finished") is True)
