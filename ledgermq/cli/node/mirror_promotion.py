"""``ledgermq mirror promote``, ``missing``, ``rejoin``: copies become groups, old groups mirrors.

All are for stores that nobody has open. Exit status: 0 done; 1 refused, or the command line; 2 the
store is in use, damaged, or cannot be read.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from ledgermq.cli.node_verbs import confirm
from ledgermq.cli.output import tell, time_text
from ledgermq.conversion.missing_messages import Missing, MissingQueue, common_end, missing_behind
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.members.mirrors.mirror_promotion import (
    Rejoin,
    carry_out_rejoin,
    copy_end,
    plan_rejoin,
    promote_mirror,
)
from ledgermq.members.mirrors.mirror_report import MirrorReport, latest_word, read_mirror_report
from ledgermq.members.mirrors.promotion_note import Promotion, read_promotion
from ledgermq.model.config.amounts import size_text
from ledgermq.model.group_epoch import epoch_of
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory


def promote(arguments: argparse.Namespace) -> int:
    """Make a group of the mirror on this machine."""
    settings = load_settings(arguments.config)
    root = settings.store.path_root_dir
    confirm(arguments, f"make a group of the mirror in {root}: the old one must not run any more")
    with stopped_store(root):
        promotion, noted = promote_mirror(settings)
    report = latest_word(
        noted, read_mirror_report(RuntimePaths(settings.listen.runtime_dir).mirror)
    )
    document = {**asdict(promotion), "epoch": epoch_of(promotion.term), "last_word": report}
    return tell(arguments, document, "\n".join(_promoted(promotion, report)))


def _promoted(promotion: Promotion, report: MirrorReport | None) -> Iterator[str]:
    yield (
        f"promoted: epoch {epoch_of(promotion.term)}. The copy ends with entry {promotion.index:,},"
        f" at {promotion.end:,}"
    )
    if report is None:
        yield "what the source had beyond that is not known: the mirror has told nothing"
    else:
        yield from _last_word(promotion, report)
    yield (
        "Take [mirror] out of the settings, name this node alone in node.peers, and start it;"
        " others are added once it leads: ledgermq raft add. What the old group had beyond the copy"
        " its own log tells: ledgermq mirror missing"
    )


def _last_word(promotion: Promotion, report: MirrorReport) -> Iterator[str]:
    at = time_text(report["at_ms"], unit="seconds")
    entries = max(0, report["source_index"] - promotion.index)
    size = max(0, report["source_position"] - promotion.end)
    heard = f"a member of the source had answered {report['silent_s'] or 0.0:.1f} s before"
    if entries:
        yield f"missing: at least {entries:,} messages, {size_text(size)}; known at {at}, {heard}"
    else:
        yield f"nothing is known to be missing; noted at {at}, {heard}"
    if report["lag_s"] is not None:
        yield f"what was stored later than {report['lag_s']:.1f} s before that may be missing"
    yield "what the source acknowledged after its last word is missing beside"


def list_missing(arguments: argparse.Namespace) -> int:
    """List what the old group had stored and a promoted mirror lacks."""
    promotion = read_promotion(arguments.promoted)
    with stopped_store(arguments.directory):
        reader = LogReader(open_directory(arguments.directory, self_id=arguments.self_id))
        try:
            missing = missing_behind(reader, common_end(reader, copy_end(promotion)))
        finally:
            reader.close()
    lines = list(_listed(missing))
    if missing.begin < promotion.end:
        lines.append(
            "this member was behind the copy, which has all that it says is committed; what is"
            " listed the copy may have, too"
        )
    return tell(arguments, _document(missing), "\n".join(lines))


def rejoin(arguments: argparse.Namespace) -> int:
    """Make a mirror of the new group out of the old one's store."""
    promotion = read_promotion(arguments.promoted)
    settings = load_settings(arguments.config)
    root = settings.store.path_root_dir
    with stopped_store(root):
        plan = plan_rejoin(settings, promotion)
        size = size_text(plan.missing.end - plan.missing.begin)
        count = sum(one.messages for one in _of_users(plan.missing))
        confirm(
            arguments,
            f"make a mirror of the store in {root}, and cut {count:,} messages, {size} of its log,"
            " which the new group never had",
        )
        carry_out_rejoin(settings, plan)
    document = {"kept": plan.kept.end, "set_aside": str(plan.aside), **_document(plan.missing)}
    return tell(arguments, document, "\n".join(_rejoined(plan)))


def _rejoined(plan: Rejoin) -> Iterator[str]:
    yield f"a mirror's now: its log ends with entry {plan.kept.index_:,}, at {plan.kept.end:,}"
    yield from _listed(plan.missing)
    yield f"what was cut is kept in {plan.aside}, and deleted by nobody but you"
    yield (
        "Name members of the new group in mirror.sources, take node.peers out of the settings, and"
        " start the node"
    )


def _of_users(missing: Missing) -> list[MissingQueue]:
    """Without what the group tells itself."""
    return [one for one in missing.queues if one.queue.topic != SYSTEM_TOPIC]


def _document(missing: Missing) -> dict[str, object]:
    queues = [
        {
            "topic": one.queue.topic,
            "queue": one.queue.queue_id,
            "first": one.first,
            "last": one.last,
            "messages": one.messages,
            "uncertain": one.uncertain,
        }
        for one in _of_users(missing)
    ]
    return {"begin": missing.begin, "end": missing.end, "queues": queues}


def _listed(missing: Missing) -> Iterator[str]:
    size = missing.end - missing.begin
    listed = _of_users(missing)
    if not listed:
        yield f"no message is missing; {size_text(size)} behind the copy are the group's own"
        return
    for one in listed:
        more = f", of which {one.uncertain:,} may never have been acknowledged"
        yield (
            f"{one.queue.topic} queue {one.queue.queue_id}: {one.first:,} to {one.last:,},"
            f" {one.messages:,} messages{more if one.uncertain else ''}"
        )
    total = sum(one.messages for one in listed)
    yield f"missing: {total:,} messages, {size_text(size)} of the log from {missing.begin:,} on"
