"""Plan of a batch over several groups: that of each group, made at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from ledgermq.model.errors import LedgerError
from ledgermq.pipeline.clusters.cluster_groups import (
    GROUPS_AT_ONCE,
    ClusterGroups,
    GroupPlace,
    dead_group,
)
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.row_source import RowSource, open_to_plan
from ledgermq.pipeline.source_options import SourceOptions

logger = logging.getLogger(__name__)

Parts = list[tuple[MessageRange, ...]]


def planned_by_group(
    options: SourceOptions, plan: Callable[[RowSource, SourceOptions], Parts]
) -> list[tuple[GroupPlace, Parts]]:
    """What ``plan`` makes of each group, in the order of their names.

    Raises:
        LedgerError: the options do not fit what there is, or it cannot be read; a group does not
            answer, and that is to fail.
    """
    assert options.groups is not None, "groups are chosen"
    queues: set[Queue] = set()

    def planned(place: GroupPlace) -> Parts | LedgerError:
        of_group = options.of_group(*place)
        source = open_to_plan(of_group)
        try:
            queues.update(source.queues())
            return plan(source, of_group)
        except LedgerError as error:
            error.details["broker_group"] = place.name
            return error
        finally:
            source.close()

    with closing(ClusterGroups(options)) as groups:
        places = [GroupPlace(*one) for one in sorted(groups.all_places().items())]
    with ThreadPoolExecutor(GROUPS_AT_ONCE, thread_name_prefix="spark-groups") as threads:
        found = list(zip(places, threads.map(planned, places), strict=True))
    parts: list[tuple[GroupPlace, Parts]] = []
    for place, one in found:
        if not isinstance(one, LedgerError):
            parts.append((place, one))
        elif not one.retriable:
            raise one
        elif options.groups.fails_on_dead:
            raise dead_group(place.name, one) from one
        else:
            logger.warning(
                "group does not answer, and is left out: broker_group=%s: %s", place.name, one
            )
    if len(parts) == len(found):
        options.choice.check_found(queues)
    return parts
