"""Service of the observer: one loop, which wakes for requests and once a second to say it lives."""

from __future__ import annotations

import asyncio
import logging
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledgermq.ipc.counters import Counts
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import StopFlag, sleep_max_ms
from ledgermq.model.config.settings import HttpSection, Settings
from ledgermq.model.config.settings_rules import HTTP_UNIX
from ledgermq.model.errors import ConfigError
from ledgermq.model.exit_status import EXIT_STOPPED
from ledgermq.observer.api.api import Api
from ledgermq.observer.api.document import problem_of
from ledgermq.observer.api.registry import SchemaRegistry
from ledgermq.observer.callers import caller_of
from ledgermq.observer.health_source import HealthSource
from ledgermq.observer.http_limits import HttpLimits
from ledgermq.observer.http_port import HttpPort, listen
from ledgermq.observer.inquiries.cluster_survey import ClusterSurvey
from ledgermq.observer.inquiries.inquirer import Sources, members_of
from ledgermq.observer.metrics.mirror_looks import MirrorLooks
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.observer.mirrors.log_source import LogSource
from ledgermq.observer.mirrors.mirror_pages import MirrorPages
from ledgermq.observer.pages import Pages
from ledgermq.observer.tokens import Tokens
from ledgermq.process.one_loop import bound_memory, entered_page, live
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings import reload
from ledgermq.sessions.keys.peer_keys import keys_directory
from ledgermq.sessions.keys.tls_files import server_context
from ledgermq.store.files.descriptor_cache import connections_allowed
from ledgermq.wire.mirror_frames import PREFIX as MIRRORS

if TYPE_CHECKING:
    from ledgermq.observer.console.console import Console

logger = logging.getLogger(__name__)


class ObserverService:
    """What one life of the process serves."""

    def __init__(self, settings: Settings, page: CursorPage, resources: ExitStack) -> None:
        """Read the files and listen.

        Raises:
            ConfigError: ``listen.http`` cannot be listened at, or a file cannot be used.
        """
        assert settings.listen.http is not None
        paths = RuntimePaths(settings.listen.runtime_dir)
        counters = page.counters(Role.OBSERVER)
        resources.callback(counters.release)
        thread = ThreadPoolExecutor(1, thread_name_prefix="observer-health")
        resources.callback(thread.shutdown, wait=False, cancel_futures=True)
        self._settings = settings
        self._is_unix = settings.listen.http == HTTP_UNIX
        self._tls = self._make_tls(settings.http)
        source = HealthSource(paths.control, thread)
        found = ThreadPoolExecutor(1, thread_name_prefix="observer-scrape")
        resources.callback(found.shutdown, wait=True, cancel_futures=True)
        self._scrapes = Scrapes(page, settings, source, counters, found)
        self._pages = Pages(source, counters, self._read_tokens())
        listener = listen(settings.listen.http, paths.http, settings.listen.socket_mode)
        resources.callback(listener.close)
        if self._is_unix:
            resources.callback(paths.http.unlink, missing_ok=True)
        most, _ = connections_allowed(settings.http.connections_max)
        limits = HttpLimits.of(most, settings.http.memory_bytes_max)
        asked = ThreadPoolExecutor(2, thread_name_prefix="observer-ask")
        resources.callback(asked.shutdown, wait=False, cancel_futures=True)
        looks = MirrorLooks(settings, page, self._scrapes, asked)
        cluster = ClusterSurvey(keys_directory(settings))
        members = members_of(settings.http)
        self._sources = Sources(paths, source, asked, members, looks, cluster=cluster)
        self._console: Console | None = None
        if settings.http.console:
            # Who has no console does not carry its libraries.
            from ledgermq.observer.console.console import Console, ConsoleParts

            has_tls = self._tls is not None
            told = page, self._pages, self._sources, source, self._scrapes, counters, found
            self._console = Console(settings, ConsoleParts(*told, has_tls=has_tls))
        routes = () if self._console is None else self._console.routes()
        api = Api(self._sources, counters, self._pages)
        self._mirrors: MirrorPages | None = None
        self._make_mirrors = partial(self._made_mirrors, page, counters, resources)
        mirrors = Route(
            f"{MIRRORS}/{{path:path}}", self._pages.guarded(self._mirror), methods=["GET", "POST"]
        )
        registry = SchemaRegistry(self._sources, counters, self._pages)
        app = self._pages.app(
            [*api.routes, *registry.routes, mirrors, *routes], metrics=self._metrics
        )
        self._port = HttpPort(app, listener, counters, limits, tls=self._tls)

    async def _mirror(self, request: Request) -> Response:
        """What mirrors of other sites ask for."""
        if not caller_of(request).copies:
            return problem_of(
                HTTPStatus.FORBIDDEN, "NO_PERMISSION", "only a mirror's token copies the log"
            )
        if not self._settings.store.log.has_terms:
            return problem_of(HTTPStatus.NOT_FOUND, "NOT_FOUND", "a plain log has no mirrors")
        if self._mirrors is None:
            self._mirrors = self._make_mirrors()
        return await self._mirrors.answer(request)

    def _made_mirrors(
        self, page: CursorPage, counters: Counts, resources: ExitStack
    ) -> MirrorPages:
        thread = ThreadPoolExecutor(2, thread_name_prefix="observer-mirror")
        resources.callback(thread.shutdown, wait=False, cancel_futures=True)
        return MirrorPages(
            LogSource(self._settings, page),
            self._sources,
            counters,
            thread,
            bytes_per_s=self._settings.http.mirror_bytes_per_s,
        )

    def open(self) -> None:
        """Begin to answer."""
        self._port.open()

    def close(self) -> None:
        """Answer no more."""
        self._port.close()
        self._sources.close()

    def sample(self) -> None:
        """Keep what curves are drawn of: with each wake-up."""
        if self._console is not None:
            self._console.sample()

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again, and so are certificate and tokens; bad ones change nothing,
        and are told.
        """
        self._settings = settings
        self._scrapes.take_settings(settings)
        self._sources.members = members_of(settings.http)
        if self._mirrors is not None:
            self._mirrors.bytes_per_s = settings.http.mirror_bytes_per_s
        try:
            if self._tls is not None and self._make_tls(settings.http) is not None:
                # Who connects from now on is shown the new one.
                certificate, key = settings.http.tls_certificate_file, settings.http.tls_key_file
                assert certificate is not None
                self._tls.load_cert_chain(certificate, key, password="")
            self._pages.tokens = self._read_tokens()
        except (ConfigError, ssl.SSLError, OSError) as error:
            logger.warning("certificate and tokens of HTTP stay those read before: %s", error)

    async def _metrics(self, request: Request) -> Response:
        content, content_type = await self._scrapes.scrape(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": content_type})

    def _make_tls(self, http: HttpSection) -> ssl.SSLContext | None:
        certificate, key = http.tls_certificate_file, http.tls_key_file
        if self._is_unix or certificate is None or key is None:
            return None
        return server_context(certificate, key, section="http")

    def _read_tokens(self) -> Tokens | None:
        path = self._settings.http.tokens_file
        return None if path is None or self._is_unix else Tokens.read(path)


def serve(settings: Settings, stop: StopFlag) -> int:
    """Answer HTTP until told to stop; the exit status.

    Raises:
        ConfigError: ``listen.http`` cannot be listened at, or a file cannot be used.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    bound_memory(settings.http.memory_bytes_max)
    with ExitStack() as resources:
        paths = RuntimePaths(settings.listen.runtime_dir)
        page = resources.enter_context(entered_page(paths.cursors, Role.OBSERVER))
        observer = ObserverService(settings, page, resources)
        stop.on_reload = lambda: observer.take_settings(reload.take_published(settings))
        asyncio.run(_run(observer, page, stop, sleep_max_ms(settings) / 1_000))
    return EXIT_STOPPED


async def _run(
    observer: ObserverService, page: CursorPage, stop: StopFlag, sleep_max_s: float
) -> None:
    observer.open()
    await live(page, Role.OBSERVER, stop, sleep_max_s, observer.sample)
    observer.close()
