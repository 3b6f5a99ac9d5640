"""Finding about a group: whether all is well, in one sentence, and who is silent since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from operator import itemgetter
from typing import NamedTuple

from ledgermq.raft.quorum import majority

_COUNTS = ("none", "one", "two", "three")


class GroupSigns(NamedTuple):
    """What is known of the members.

    Attributes:
        voters: all who vote, this node among them.
        leader: who leads; empty while nobody is known to.
        lagging: voters that the leader hears of and that do not hold what it has; None where this
            node is not the leader, and does not know.
        silent: members without a sign of life, and since when, epoch ms.
        since_ms: from when on signs of life were looked for.
    """

    voters: Set[str]
    leader: str
    lagging: Set[str] | None
    silent: Mapping[str, int]
    since_ms: int


class GroupFinding(NamedTuple):
    """What there is to say; ``tone`` is ``ok``, ``warn`` or ``bad``."""

    tone: str
    text: str
    more: str = ""


def finding_of(signs: GroupSigns) -> GroupFinding:
    """Who is silent comes first, then how many are in step and how many of those may fail."""
    silent = {node: at for node, at in signs.silent.items() if node in signs.voters}
    lagging = (signs.lagging or set()) - silent.keys()
    count, total = len(signs.voters) - len(silent) - len(lagging), len(signs.voters)
    needed = majority(total)
    spare = count - needed
    in_step = "in step" if signs.lagging is not None else "heard of"
    words = silence_words(silent, signs.since_ms)
    if not signs.leader:
        more = "It takes no message; what is stored here can be read."
        if total - len(silent) < needed:
            return GroupFinding("bad", words, f"There is no majority of {total}. {more}")
        return GroupFinding("bad", words or "Nobody leads just now", more)
    may = f"{_COUNTS[spare] if 0 <= spare < len(_COUNTS) else spare} may fail"
    told = f"{count} of {total} {in_step}, {may}"
    if silent:
        return GroupFinding("warn" if spare >= 0 else "bad", words, f"{told}.")
    if lagging:
        return GroupFinding("warn", f"{_names(lagging)} catching up", f"{told}.")
    if total == 1:
        return GroupFinding("ok", "This node serves", "It is alone: there is no other member.")
    return GroupFinding("ok", told)


def headline(found: GroupFinding, reasons: Sequence[str]) -> GroupFinding:
    """``found``, or where all is well with the group the first reason why this node does not serve
    all the same.
    """
    if found.tone != "ok" or not reasons:
        return found
    return GroupFinding("bad", reasons[0], f"{found.text}.")


def silence_words(silent: Mapping[str, int], since_ms: int) -> str:
    """Who is silent, and since when to the second; empty where nobody is."""
    by_words: dict[str, set[str]] = {}
    for node, at in sorted(silent.items(), key=itemgetter(1)):
        words = f"silent since {'before ' if at <= since_ms else ''}{_clock(at)}"
        by_words.setdefault(words, set()).add(node)
    return "; ".join(f"{_names(nodes)} {words}" for words, nodes in by_words.items())


def _names(nodes: Set[str]) -> str:
    return ", ".join(sorted(nodes))


def _clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M:%S} UTC"


def lagging_of(peers: Sequence[Mapping[str, object]], voters: Set[str]) -> set[str]:
    """Voters to which the leader does not simply send what is new."""
    return {
        str(peer["node"])
        for peer in peers
        if peer["node"] in voters and peer["mode"] != "replicate"
    }
