"""Groups of a cluster that a query reads: which there are, and where their nodes are."""

from __future__ import annotations

import time
from typing import NamedTuple

from ledgermq.client.clusters.group_watch import GroupWatch
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError
from ledgermq.pipeline.source_options import SourceOptions

GROUPS_AT_ONCE = 32
"""Most groups that are asked at the same time, where all are asked."""


class GroupPlace(NamedTuple):
    """A group, and the addresses of its nodes, with commas."""

    name: str
    nodes: str


class ClusterGroups:
    """What the driver of a query knows of them."""

    def __init__(self, options: SourceOptions) -> None:
        """Begin to watch them.

        Raises:
            ConfigError: an address cannot be one.
        """
        assert options.groups is not None, "groups are chosen"
        self._choice = options.groups
        self._timeout_s = options.timeout_ms / 1_000
        self._watch = GroupWatch(options.groups.seeds, client="spark")

    def places(self) -> dict[str, str]:
        """Addresses of the nodes of each group that is read, by its name.

        Raises:
            NotLeaderError: nobody has told which there are, for ``timeoutMs``.
        """
        until = time.monotonic() + self._timeout_s
        found = self._watch.wait_for_groups(until, whole=True)
        return {one.name: one.address for one in found if self._choice.has(one.name)}

    def all_places(self) -> dict[str, str]:
        """The same, where all groups that were named are to be there.

        Raises:
            ConfigError: one is not.
            NotLeaderError: nobody has told which there are, for ``timeoutMs``.
        """
        places = self.places()
        missing = sorted((self._choice.names or set()) - set(places))
        if missing:
            known = [one.name for one in self._watch.groups()]
            raise ConfigError(
                "no such group is known", option="brokerGroups", groups=missing, known=known
            )
        return places

    def with_keys(self, nodes: str) -> str:
        """Addresses that were kept without options, with the keys that the first group has."""
        return with_keys_of(self._choice.seeds[0], nodes)

    def close(self) -> None:
        """Watch them no more."""
        self._watch.close()


def with_keys_of(seed: str, nodes: str) -> str:
    """Addresses that were kept without options, with those that the first address of a seed has."""
    _, divider, keys = seed.split(",", maxsplit=1)[0].partition("?")
    return ",".join(f"{node}{divider}{keys}" for node in nodes.split(","))


def without_options(nodes: str) -> str:
    """Addresses without the names of files of keys, which are no matter of a checkpoint's."""
    return ",".join(node.partition("?")[0] for node in nodes.split(","))


def dead_group(name: str, reason: LedgerError | None) -> NotLeaderError:
    """What to tell of a group that has not answered for as long as it may."""
    return NotLeaderError(
        "group does not answer",
        broker_group=name,
        reason=str(reason) if reason is not None else "no answer",
        option="failOnDeadGroup=false goes on with the others",
    )
