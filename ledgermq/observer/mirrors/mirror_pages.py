"""Pages for mirrors: entries, files and the mark of one, in measure (docs/decisions/0086)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ledgermq.client.core.questions import ask
from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.model.errors import BusyError, ConfigError, LedgerError, ProtocolError
from ledgermq.model.ids import NO_INDEX, Index, Term
from ledgermq.observer.api.document import problem, problem_of
from ledgermq.observer.callers import HttpCaller, caller_of
from ledgermq.observer.inquiries.inquirer import Inquirer, Sources
from ledgermq.observer.mirrors.log_source import LogSource
from ledgermq.observer.pages import Page
from ledgermq.raft.messages import EntryId
from ledgermq.rules.tables.archives import MIRROR_PREFIX
from ledgermq.verbs.answers import rows, text
from ledgermq.wire.mirror_frames import (
    ANSWER_SIZE_MAX,
    CONTENT_TYPE,
    NUMBER_MAX,
    PREFIX,
    QUESTION_SIZE_MAX,
    join_parts,
    split_parts,
)
from ledgermq.wire.session import ADMIN

UNDER_WAY_MAX = 4
"""Answers that are made or sent at once, one to each mirror; each is some MiB of memory."""

Make = Callable[[], list[bytes]]


class MirrorPages:
    """Owned by the observer's loop.

    Attributes:
        bytes_per_s: of answers, to all mirrors together.
    """

    def __init__(
        self,
        source: LogSource,
        sources: Sources,
        counters: Counts,
        thread: Executor,
        *,
        bytes_per_s: int,
    ) -> None:
        """Nobody is answered yet.

        Args:
            sources: ways to the broker, which keeps the marks.
            thread: reads the log.
        """
        self._source = source
        self._sources = sources
        self._counters = counters
        self._thread = thread
        self._under_way: set[str] = set()
        self._free_at = 0.0
        self.bytes_per_s = bytes_per_s
        self._answers: Mapping[tuple[str, str], Page] = {
            ("GET", f"{PREFIX}/entries"): self._entries,
            ("GET", f"{PREFIX}/offer"): self._offer,
            ("POST", f"{PREFIX}/files"): self._files,
            ("POST", f"{PREFIX}/mark"): self._mark,
        }

    async def answer(self, request: Request) -> Response:
        """What a mirror asks for; the caller was found to be one."""
        page = self._answers.get((request.method, request.url.path))
        if page is None:
            return problem_of(HTTPStatus.NOT_FOUND, "NOT_FOUND", "mirrors are told nothing there")
        try:
            return await page(request)
        except LedgerError as error:
            return problem(error)

    async def _entries(self, request: Request) -> Response:
        after = EntryId(
            Term(_number(request, "term", -1)), Index(_number(request, "after", NO_INDEX))
        )
        # An answer takes its turn: of slow ones none is to keep the others waiting for long.
        size = min(ANSWER_SIZE_MAX, self.bytes_per_s, _number(request, "size", 1))
        return await self._send(request, lambda: self._source.entries(after, size))

    async def _offer(self, request: Request) -> Response:
        term = Term(_number(request, "term", 0))
        return await self._send(request, lambda: self._source.offer(term))

    async def _files(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > QUESTION_SIZE_MAX:
            raise ProtocolError("question too long", size=len(body), limit=QUESTION_SIZE_MAX)
        asks = split_parts(body)
        return await self._send(request, lambda: self._source.files(asks))

    async def _mark(self, request: Request) -> Response:
        """What the caller holds, for which retention waits; its own mark and no other one.

        Raises:
            NotLeaderError: this node does not lead; says who does.
            ConfigError: retention waits for no such mirror, or not any more.
        """
        position = _number(request, "position", 0)
        name = caller_of(request).name
        speaker = HttpCaller(ADMIN, f"mirror {name}")
        mark = MIRROR_PREFIX + name
        leader = Inquirer(self._sources, speaker)
        listed = await leader.leader(lambda session: session.run(ask("archive_list")))
        if mark not in rows(listed, "archives", lambda row: text(row, "archive")):
            # Whoever has taken it away does not want it to come back by itself.
            raise ConfigError(
                "retention waits for no such mirror: ledgermq mirror add", mirror=name
            )
        await leader.leader(
            lambda session: session.run(ask("archive_commit", archive=mark, position=position))
        )
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _send(self, request: Request, make: Make) -> Response:
        """What ``make`` finds in a thread, when its turn comes.

        Raises:
            BusyError: too many answers are under way, or one to this mirror.
            LedgerError: there is no answer.
        """
        name = caller_of(request).name
        if name in self._under_way or len(self._under_way) >= UNDER_WAY_MAX:
            raise BusyError(
                "mirror is being answered, or too many are", mirror=name, limit=UNDER_WAY_MAX
            )
        self._under_way.add(name)
        try:
            await self._wait_turn()
            loop = asyncio.get_running_loop()
            body = join_parts(await loop.run_in_executor(self._thread, make))
        except BaseException:
            self._under_way.discard(name)
            raise
        self._free_at = max(self._free_at, time.monotonic()) + len(body) / self.bytes_per_s
        self._counters[ObserverCounter.MIRROR_BYTES] += len(body)
        return _Answer(body, lambda: self._under_way.discard(name))

    async def _wait_turn(self) -> None:
        """Wait until what was sent before has had its time."""
        wait = self._free_at - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)


class _Answer(Response):
    """An answer that is under way until it was read, or who asked has gone: it is memory."""

    def __init__(self, body: bytes, over: Callable[[], None]) -> None:
        super().__init__(body, media_type=CONTENT_TYPE)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


def _number(request: Request, name: str, least: int) -> int:
    """A whole number of the query.

    Raises:
        ProtocolError: it is missing, none, or out of range.
    """
    text = request.query_params.get(name, "")
    digits = text.removeprefix("-")
    value = int(text) if digits.isascii() and digits.isdecimal() and len(text) < 20 else least - 1
    if not least <= value <= NUMBER_MAX:
        raise ProtocolError(
            "not a number, or out of range", field=name, least=least, most=NUMBER_MAX
        )
    return value
