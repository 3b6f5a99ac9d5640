"""Commits of a batch over several groups: one in each, of what one file has decided.

A batch over several groups is committed by a command in each of them. Which rows it has is decided
before the first one, by a file that is there as a whole or not at all:

    FOLDER/SINK-BATCH.json    {"version": 1, "groups": {"orders-a": {"nodes": …, "stages": […]}}}

Whoever runs the batch again finds it, and commits what it names in the groups that have not yet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, NoReturn

from ledgermq.client.staging import SinkClient, StagedRows, commit_arguments
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import offsets_in, ranges_of
from ledgermq.pipeline.clusters.cluster_groups import GROUPS_AT_ONCE, with_keys_of
from ledgermq.pipeline.sink.sink_options import SinkOptions
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import read_file, replace_file

VERSION = 1
KEPT_BATCHES = 100
"""Plans of batches before these are removed, as Spark's own notes are."""

PLANNED_PACKS_MAX = 1_000_000
logger = logging.getLogger(__name__)


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


Stages = Sequence[Mapping[str, GroupStage]]
"""What each task has staged in each group."""


def commit_in_groups(
    options: SinkOptions, sink: str, batch: int, stages: Stages, *, is_once: bool = False
) -> None:
    """Have a batch become messages in all of its groups, once.

    Where an earlier attempt has planned the batch, it is what that one has staged: what it has not
    committed is committed now, and ``stages`` are dropped.

    Raises:
        LedgerError: of the first group that has not committed its part, or of which it is not
            known; ``broker_group`` in its details is its name. All others have, and the rest
            follows when the batch is committed again.
    """
    folder = None if options.plans is None else PlanFolder(options.plans)
    own = joined(stages)
    plan = None if folder is None else folder.read(sink, batch)
    if plan is not None:
        logger.warning("batch was planned before: sink=%s batch=%d", sink, batch)
        drop_in_groups(options, sink, batch, stages)
    elif folder is not None and own:
        for group in own.values():
            # What no commit could say must not be decided.
            commit_arguments(group.staged)
        folder.write(sink, batch, own)
    _each(options, own if plan is None else plan, _Commit(options, sink, batch, is_once))


def drop_in_groups(options: SinkOptions, sink: str, batch: int, stages: Stages) -> None:
    """Drop what was staged, but for what a plan names: that is going to be committed."""
    planned: set[str] = set()
    try:
        plan = PlanFolder(options.plans).read(sink, batch) if options.plans is not None else None
        if plan is not None:
            planned = {one.stage.name for group in plan.values() for one in group.staged}
        rest = {
            name: GroupStage(
                group.nodes,
                tuple(one for one in group.staged if one.stage.name not in planned),
            )
            for name, group in joined(stages).items()
        }
        _each(options, rest, _Drop(sink, batch))
    except LedgerError as error:
        # They are dropped after their time; what else has failed is more important.
        logger.warning("staged rows not dropped yet: sink=%s batch=%d: %s", sink, batch, error)


class _Commit:
    """The commit of one group's part."""

    def __init__(self, options: SinkOptions, sink: str, batch: int, is_once: bool) -> None:
        self._sink, self._batch, self._is_once = sink, batch, is_once
        self._awaits = options.awaits_messages

    def __call__(self, client: SinkClient, group: GroupStage) -> None:
        client.commit(self._sink, self._batch, group.staged, is_once=self._is_once)
        if self._awaits:
            client.wait(self._sink, self._batch)


class _Drop:
    """The end of one group's part that is not committed."""

    def __init__(self, sink: str, batch: int) -> None:
        self._sink, self._batch = sink, batch

    def __call__(self, client: SinkClient, group: GroupStage) -> None:
        client.abort(self._sink, self._batch, group.staged)


def _each(options: SinkOptions, plan: Plan, act: _Commit | _Drop) -> None:
    """Do something in each group, in all at once, whatever has come of the others.

    Raises:
        LedgerError: of the first one, by their names, that could not.
    """

    def acted(one: tuple[str, GroupStage]) -> LedgerError | None:
        name, group = one
        assert options.groups is not None, "groups are chosen"
        nodes = with_keys_of(options.groups.seeds[0], group.nodes)
        try:
            timeout_s = options.timeout_ms / 1_000
            with SinkClient(nodes, name="spark", timeout_s=timeout_s) as client:
                act(client, group)
        except LedgerError as error:
            error.details["broker_group"] = name
            return error
        return None

    with ThreadPoolExecutor(GROUPS_AT_ONCE, thread_name_prefix="spark-groups") as threads:
        failures = [one for one in threads.map(acted, sorted(plan.items())) if one is not None]
    if failures:
        raise failures[0]
