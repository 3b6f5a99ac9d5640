"""Arithmetic of majorities."""

from __future__ import annotations

from collections.abc import Mapping, Set

from ledgermq.model.ids import NO_INDEX, Index, NodeId


def majority(voters: int) -> int:
    """Fewest members that any two majorities of ``voters`` have one member in common."""
    assert voters > 0
    return voters // 2 + 1


def has_majority(voters: Set[NodeId], agreeing: Set[NodeId]) -> bool:
    """Whether ``agreeing`` holds a majority of ``voters``; others do not count."""
    return len(voters & agreeing) >= majority(len(voters))


def committed_index(voters: Set[NodeId], match: Mapping[NodeId, Index]) -> Index:
    """Largest index that a majority of ``voters`` has (Raft paper, figure 2, rules for leaders)."""
    matched = [match.get(voter, NO_INDEX) for voter in voters]
    matched.sort(reverse=True)
    return matched[majority(len(voters)) - 1]
