"""Inquiries about mirrors: whether this node is one, and which ones the log is kept for."""

from __future__ import annotations

from collections.abc import Sequence

from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import Json
from ledgermq.observer.metrics.mirror_figures import HeldMirror, OwnMirror
from ledgermq.observer.metrics.mirror_looks import MirrorLooks


class MirrorInquiries:
    """Any node answers; they are names and numbers, as metrics tell them, for all who may look."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    @property
    def is_mirror(self) -> bool:
        """Whether this node is one."""
        return self._looks.is_mirror

    async def list(self) -> Json:
        """Both: ``own`` and ``mirrors``.

        Raises:
            LedgerError: files of the node cannot be read just now.
        """
        return {
            "is_mirror": self.is_mirror,
            "own": await self.own(),
            "mirrors": await self.held(),
        }

    async def own(self) -> OwnMirror | None:
        """As ``ledgermq mirror status``; None of a node that is no mirror, or told nothing yet.

        Raises:
            LedgerError: the report cannot be read.
        """
        return await self._looks.own()

    async def held(self) -> Sequence[HeldMirror]:
        """As ``ledgermq mirror list``, with how many messages each lacks, and for how long.

        Raises:
            LedgerError: files of the node cannot be read just now.
        """
        return await self._looks.held()

    @property
    def _looks(self) -> MirrorLooks:
        looks = self._inquirer.sources.mirrors
        assert looks is not None, "asked of an observer"
        return looks
