"""Plans of commits: the staged rows of a batch in each of several groups, decided by one file.

A batch over several groups is committed by a command in each of them. Which rows it has is decided
before the first one, by a file that is there as a whole or not at all:

    FOLDER/SINK-BATCH.json    {"version": 1, "groups": {"orders-a": {"nodes": …, "stages": […]}}}

Whoever runs the batch again finds it, and commits what it names in the groups that have not yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from ledgermq.client.staging import StagedRows
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import offsets_in, ranges_of
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import read_file, replace_file

VERSION = 1
KEPT_BATCHES = 100
"""Plans of batches before these are removed, as Spark's own notes are."""

PLANNED_PACKS_MAX = 1_000_000


class GroupStage(NamedTuple):
    """What is staged in one group, by one task or by all.

    Attributes:
        nodes: addresses of its nodes without options, with commas.
        staged: in the order in which it becomes messages.
    """

    nodes: str
    staged: tuple[StagedRows, ...]


Plan = Mapping[str, GroupStage]
"""Stages by the names of the groups; those that get no rows of the batch are not among them."""


class PlanFolder:
    """Plans of all batches, of which a sink has one at a time."""

    def __init__(self, folder: Path) -> None:
        """It is made with the first plan."""
        self._folder = folder

    def read(self, sink: str, batch: int) -> Plan | None:
        """The plan of a batch; None: nothing of it is committed.

        Raises:
            StorageError: the file cannot be read.
            ConfigError: it is none of ours.
        """
        path = self._path(sink, batch)
        content = read_file(path)
        if content is None:
            return None
        try:
            document = json.loads(content)
            if document["version"] != VERSION:
                _refuse(path, f"version {document['version']}")
            return {
                str(name): GroupStage(
                    str(group["nodes"]),
                    tuple(_staged(path, sink, batch, one) for one in group["stages"]),
                )
                for name, group in document["groups"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            _refuse(path, repr(error))

    def write(self, sink: str, batch: int, plan: Plan) -> None:
        """Decide what a batch is; durable on return.

        Raises:
            StorageError: it is not decided.
        """
        groups = {
            name: {
                "nodes": group.nodes,
                "stages": [
                    [one.stage.name, one.rows, ranges_of(one.offsets)] for one in group.staged
                ],
            }
            for name, group in sorted(plan.items())
        }
        make_directories(self._folder)
        document = {"version": VERSION, "groups": groups}
        replace_file(self._path(sink, batch), json.dumps(document).encode())
        self._path(sink, batch - KEPT_BATCHES).unlink(missing_ok=True)

    def _path(self, sink: str, batch: int) -> Path:
        return self._folder / f"{sink}-{batch}.json"


def joined(stages: Sequence[Mapping[str, GroupStage]]) -> Plan:
    """What all tasks have staged, in their order."""
    plan: dict[str, GroupStage] = {}
    for of_task in stages:
        for name, group in of_task.items():
            before = plan[name].staged if name in plan else ()
            plan[name] = GroupStage(group.nodes, (*before, *group.staged))
    return plan


def _staged(path: Path, sink: str, batch: int, value: Sequence[object]) -> StagedRows:
    name, rows, ranges = value

    def refuse(found: object) -> LedgerError:
        return _not_ours(path, f"offsets {found!r}")

    if not isinstance(name, str) or not isinstance(rows, int):
        _refuse(path, "a stage has no name or no number of rows")
    offsets = tuple(offsets_in(ranges, limit=PLANNED_PACKS_MAX, refuse=refuse))
    return StagedRows(Stage(sink, batch, name), offsets, rows)


def _refuse(path: Path, what: str) -> NoReturn:
    raise _not_ours(path, what)


def _not_ours(path: Path, what: str) -> ConfigError:
    return ConfigError("file is no plan of a batch's commits", file=str(path), found=what[:200])
