"""Scrapes: values found in a thread of their own, once for all who ask within a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.observer.health_source import HealthSource
from ledgermq.observer.metrics.lag_survey import Counted, GroupWaits, LagSurvey, TopicFigures
from ledgermq.observer.metrics.node_series import NodeSeries
from ledgermq.observer.metrics.samples import Exposition, Samples
from ledgermq.process.node_status import Health
from ledgermq.rules.tables.archives import ArchiveMark

Found = TypeVar("Found")

logger = logging.getLogger(__name__)

FRESH_NS = 500_000_000
"""Values count for so long, whoever asks."""

CATCH_UP_S = 2.0
"""For commands of the log since the last look, one slice of ``APPLY_S`` after the other.

There are some hundred a second where many groups commit; an observer that begins has those of the
last minutes before it.
"""


class Scrapes:
    """The values of one node, as those see them who ask."""

    def __init__(
        self,
        page: CursorPage,
        settings: Settings,
        source: HealthSource,
        counters: Counts,
        thread: Executor,
    ) -> None:
        """Nothing is read yet.

        Args:
            source: of the node's health.
            counters: the observer's.
            thread: one, in which the values are found.
        """
        self._page = page
        self._settings = settings
        self._source = source
        self._counters = counters
        self._thread = thread
        self._node = NodeSeries(page, settings)
        self._exposition = Exposition()
        self._survey: LagSurvey | None = None
        self._trouble = ""
        self._asked: asyncio.Future[Samples] | None = None
        self._known: tuple[int, Samples] | None = None

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The values as the scraper takes them, and their content type."""
        samples = await self._samples()
        loop = asyncio.get_running_loop()
        encoded = await loop.run_in_executor(self._thread, self._exposition.encode, samples, accept)
        self._counters[ObserverCounter.SCRAPES] += 1
        return encoded

    async def counted(self) -> Counted:
        """Sums of all topics and groups, after one more look at them.

        Raises:
            LedgerError: they are not known just now.
        """
        await self._catch_up()
        return await self._in_thread(self._look_and_count)

    async def topic_figures(self, names: Sequence[str]) -> dict[str, TopicFigures]:
        """Figures of those topics that were looked at, at most half a second old where the node
        has few; none while they are not known.
        """
        return await self._looked(lambda survey: survey.topic_figures(names))

    async def group_waits(self, names: Sequence[str]) -> dict[str, GroupWaits]:
        """The same of what groups have not consumed."""
        return await self._looked(lambda survey: survey.group_waits(frozenset(names)))

    async def secret_of(self, user: str) -> str:
        """The secret of a user of the node's; empty: it has none, or there is no such user.

        Raises:
            LedgerError: it is not known just now.
        """
        return await self._in_thread(partial(self._secret, user))

    async def archive_marks(self) -> list[tuple[str, ArchiveMark]]:
        """Marks of all archives that retention waits for, mirrors among them, by name.

        Raises:
            LedgerError: they are not known just now.
        """
        return await self._in_thread(self._marks)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""
        self._settings = settings

    async def _looked(self, find: Callable[[LagSurvey], dict[str, Found]]) -> dict[str, Found]:
        await self._samples()
        survey = self._survey
        if survey is None or survey.is_behind:
            return {}
        try:
            return await self._in_thread(partial(find, survey))
        except LedgerError:
            # The next scrape meets it as well, and tells.
            return {}

    async def _catch_up(self) -> None:
        """Apply what is new, or a part of it; others have the thread between two slices."""
        until = time.monotonic() + CATCH_UP_S
        with suppress(LedgerError):
            # Whoever looks next meets it again, and tells.
            while await self._in_thread(self._is_behind) and time.monotonic() < until:
                pass

    def _is_behind(self) -> bool:
        survey = self._surveyed()
        survey.catch_up()
        return survey.is_behind

    async def _in_thread(self, find: Callable[[], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, find)

    async def _samples(self) -> Samples:
        if self._known is not None and time.monotonic_ns() - self._known[0] < FRESH_NS:
            return self._known[1]
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._find())
            self._asked.add_done_callback(self._found)
        return await asyncio.shield(self._asked)

    async def _find(self) -> Samples:
        try:
            health = await self._source.health()
        except LedgerError:
            health = None
        await self._catch_up()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._collect, health)

    def _found(self, asked: asyncio.Future[Samples]) -> None:
        self._asked = None
        if asked.cancelled():
            return
        if asked.exception() is not None:
            self._counters[ObserverCounter.SCRAPES_FAILED] += 1
        else:
            self._known = (time.monotonic_ns(), asked.result())

    def _collect(self, health: Health | None) -> Samples:
        began = time.monotonic()
        samples = Samples()
        self._node.put(samples, health)
        try:
            self._look_at_lags(samples, leads=health is not None and health["leads"])
            self._trouble = ""
        except LedgerError as error:
            # The node is starting, or a file is damaged, of which its own processes tell: the other
            # values are told all the same.
            if str(error) != self._trouble:
                logger.warning("topics and lags left out of a scrape: %s", error)
            self._trouble = str(error)
            self._survey = None
        samples.put("ledgermq_scrape_duration_seconds", time.monotonic() - began)
        return samples

    def _look_and_count(self) -> Counted:
        survey = self._surveyed()
        try:
            survey.look(self._settings.http.series_max)
        except LedgerError:
            # What was read may be in parts: the next look begins anew.
            self._survey = None
            raise
        return survey.counted()

    def _secret(self, user: str) -> str:
        return self._surveyed().secret_of(user)

    def _marks(self) -> list[tuple[str, ArchiveMark]]:
        return self._surveyed().archive_marks()

    def _surveyed(self) -> LagSurvey:
        if self._survey is None:
            self._survey = LagSurvey(self._page, self._settings)
        return self._survey

    def _look_at_lags(self, samples: Samples, *, leads: bool) -> None:
        count = self._settings.http.series_max
        survey = self._surveyed()
        survey.look(count)
        survey.put(samples, count, self._node.rocketmq, leads=leads)
