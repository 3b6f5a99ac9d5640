"""Commits of a batch over several groups: one in each, of what a plan has decided."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ledgermq.client.staging import SinkClient, commit_arguments
from ledgermq.model.errors import LedgerError
from ledgermq.pipeline.clusters.cluster_groups import GROUPS_AT_ONCE, with_keys_of
from ledgermq.pipeline.sink.commit_plan import GroupStage, Plan, PlanFolder, joined
from ledgermq.pipeline.sink.sink_options import SinkOptions

logger = logging.getLogger(__name__)

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
