"""Verbs called as ``CallService`` does, by whoever may do all."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.broker.calls import AnswerCall, Verbs


def answers(verbs: Verbs) -> Mapping[str, AnswerCall]:
    """What answers each of these, by name."""
    return {verb.name: verb.answer for verb in verbs}
