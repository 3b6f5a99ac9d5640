"""Level checks: which feature level each member knows, and whether this node knows its log's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledgermq.doctor.finding import Diagnosis, fail, ok, warn
from ledgermq.doctor.subject import Subject
from ledgermq.members.level_report import read_levels
from ledgermq.model.features import MemberLevel, described, holding_back, version_of
from ledgermq.process.runtime_paths import RuntimePaths


def level_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Two findings: what the members know, and what the log needs."""
    if subject.status is None:
        yield ok("levels.members", "not known: the node does not run")
        return
    if subject.settings.node.witness:
        yield ok("levels.members", "not known to a witness: ask doctor of a member with messages")
        return
    counters = subject.status["counters"].get("broker", {})
    members = read_levels(RuntimePaths(subject.settings.listen.runtime_dir).levels)
    if "feature_level" not in counters or not members:
        yield ok("levels.members", "not known: the node runs a version from before them")
        return
    yield _members(members, counters["feature_level"])
    yield _log(counters)


def _members(members: list[MemberLevel], in_force: int) -> Diagnosis:
    check, measured = "levels.members", f"{described(members)}; level {in_force} is in force"
    newest = max(one["level"] or 0 for one in members)
    limit = f"all know level {newest}"
    reasons = holding_back(members, newest)
    if reasons:
        return warn(
            check,
            measured,
            limit=limit,
            change=f"{'; '.join(reasons)}: see docs/operating/new-version.md",
        )
    if newest > in_force:
        measured += ": the next step is `ledgermq cluster features --enable`"
    return ok(check, measured, limit=limit)


def _log(counters: Mapping[str, int]) -> Diagnosis:
    check, limit = "levels.log", "every command in it is understood"
    needed = counters["level_needed"]
    if not needed:
        return ok(check, "what it has is known to this version", limit=limit)
    return fail(
        check,
        f"its next command needs level {needed}: the tables stand still, and this node does"
        " not lead",
        limit=limit,
        change=f"install version {version_of(needed)}, and restart the node",
    )
