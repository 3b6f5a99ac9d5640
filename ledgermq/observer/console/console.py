"""The console: its addresses, who may open them, and what becomes of forms and refusals.

The documentation is in one archive, which ``packaging/make-site.sh`` makes. Its pages have a few
scripts within them, which turn their colours and open their search; a page may run those alone, by
their digests.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
import zipfile
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ledgermq.hosts.address_share import share_of
from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    ConfigError,
    GroupUnknownError,
    LedgerError,
    MessageUnknownError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
    QuotaError,
    StorageError,
    TopicUnknownError,
)
from ledgermq.observer.callers import ANYBODY, HttpCaller, account_of, check_host
from ledgermq.observer.console import documents, message_pages
from ledgermq.observer.console.access_pages import ACCESS_PAGES
from ledgermq.observer.console.group_finding import silence_words
from ledgermq.observer.console.group_pages import GroupPages
from ledgermq.observer.console.happenings import Happenings
from ledgermq.observer.console.history import SAMPLE_S, History, Kept
from ledgermq.observer.console.node_pages import NodePages, Seen
from ledgermq.observer.console.rendering import FOLDER, HEADERS, Rendering
from ledgermq.observer.console.tables import exported
from ledgermq.observer.console.topic_pages import TopicPages
from ledgermq.observer.console.views import ConsolePage, Field, Form, PageAsked, View, address
from ledgermq.observer.console.visits import LIFETIME_S, Attempts, Visit, Visits, proof_of
from ledgermq.observer.health_source import HealthSource
from ledgermq.observer.inquiries.inquirer import Sources
from ledgermq.observer.metrics.lag_survey import Counted
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.observer.pages import Pages
from ledgermq.process.node_status import Health
from ledgermq.wire.session import ANY_USER

logger = logging.getLogger(__name__)

SecretOf = Callable[[str], Awaitable[str]]
"""The secret of a user of the node's; empty: there is none of that name, or it has none."""

_NOBODY: Final = "nobody has this secret, and comparing with it takes as long as with any other"


class SignIn:
    """Who asks for a page of the console.

    A visit that was signed in is its caller; else a token of the request, the account at the unix
    socket, or where no tokens are asked for anybody, who may look.
    """

    def __init__(
        self, settings: Settings, pages: Pages, secret_of: SecretOf, *, has_tls: bool
    ) -> None:
        self.visits = Visits()
        self._pages = pages
        self._secret_of = secret_of
        self._attempts = Attempts()
        self._has_tls = has_tls
        node = f"{settings.node.broker_name}\0{settings.node.self_id}\0{settings.listen.http}"
        # Of its own for each node: browsers keep one cookie for all ports of a host.
        mark = hashlib.sha256(node.encode()).hexdigest()[:8]
        self.cookie = f"{'__Host-' if has_tls else ''}ledgermq-{mark}"

    async def find(self, request: Request) -> tuple[HttpCaller | None, Visit | None]:
        """Who asks, and its visit.

        Raises:
            NoPermissionError: a browser was led here under another machine's name.
        LedgerError: it cannot be told now whether a user's secret is still the same.
        """
        visit = self.visits.find(request.cookies.get(self.cookie, ""))
        if visit is not None and visit.is_signed_in:
            if await self._is_current(visit):
                return visit.caller, visit
            self.visits.end(request.cookies[self.cookie])
        caller = self._pages.caller(request)
        if caller is None:
            return None, None
        if not self.needs_token or account_of(request) is not None:
            # Its address, or its account, speaks for a browser: no other site may borrow that.
            check_host(request)
        if visit is not None and visit.caller == caller:
            return caller, visit
        return caller, None

    def begin(self, caller: HttpCaller, shown: str, *, is_signed_in: bool) -> tuple[str, Visit]:
        """A visit of ``caller``, who has shown a token or a secret, or nothing."""
        return self.visits.begin(caller, proof_of(shown), is_signed_in=is_signed_in)

    async def sign_in(self, request: Request, name: str, shown: str) -> str:
        """The id of a new visit for a token, or with ``name`` for a user's secret.

        Raises:
            NoPermissionError: it is nobody's.
            QuotaError: too many have failed, from there or under that name.
        """
        client = request.client
        account = account_of(request)
        where = account.name if account else share_of(client.host) if client else "unknown"
        wait_s, attempt = self._attempts.begin(where, name)
        if wait_s:
            raise QuotaError("too many attempts to sign in have failed", wait_s=wait_s)
        caller = await self._caller_with(name, shown)
        if caller is None:
            logger.warning("sign-in refused: user=%r from %s", name[:64], where)
            raise NoPermissionError("nobody is known by that")
        self._attempts.succeeded(where, name, attempt)
        logger.info("signed in: %s from %s", caller.name, where)
        return self.begin(caller, shown, is_signed_in=True)[0]

    def keep(self, response: Response, visit_id: str) -> None:
        """Have the browser keep a visit; empty: forget it."""
        if visit_id:
            response.set_cookie(
                self.cookie,
                visit_id,
                max_age=LIFETIME_S,
                httponly=True,
                samesite="strict",
                secure=self._has_tls,
            )
        else:
            response.delete_cookie(
                self.cookie, httponly=True, samesite="strict", secure=self._has_tls
            )

    @property
    def needs_token(self) -> bool:
        """Whether nobody sees a page without having signed in."""
        return self._pages.tokens is not None

    async def _caller_with(self, name: str, shown: str) -> HttpCaller | None:
        if not name:
            tokens = self._pages.tokens
            return None if tokens is None else tokens.caller_with(shown)
        secret = await self._secret_of(name)
        is_right = hmac.compare_digest(proof_of(secret or _NOBODY), proof_of(shown))
        return HttpCaller(ANY_USER, name, name) if is_right and secret else None

    async def _is_current(self, visit: Visit) -> bool:
        """Whether what was shown still opens: the token is in the file, the secret is theirs."""
        caller = visit.caller
        tokens = self._pages.tokens
        if tokens is not None and tokens.caller_of_digest(visit.proof) == caller:
            return True
        if caller.kind != ANY_USER or caller.name != caller.user:
            return False
        secret = await self._secret_of(caller.user)
        return bool(secret) and hmac.compare_digest(proof_of(secret), visit.proof)


def is_from_here(request: Request) -> bool:
    """Whether the browser says that a form was sent by a page of this origin; true for programs,
    which say nothing.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")


def is_anybody(caller: HttpCaller) -> bool:
    """Whether only its address admits it."""
    return caller == ANYBODY


_INSTALLED = FOLDER / "site.zip"
SITE = _INSTALLED if _INSTALLED.is_file() else FOLDER.parents[2] / "build" / "site" / "site.zip"
"""The archive: beside this module where it is installed; a checkout has that of ``make site``."""

KEPT_S = 600
"""A browser asks for a file again after so long."""

FIRST_PAGE = "index.html"
CONTENT_MAX = 16 << 20
"""Bytes of a file; none of the site has a quarter of that."""

_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
_POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; worker-src 'self'; connect-src 'self';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'"
)


class SiteFile(NamedTuple):
    """A file of the site as it is sent."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


class SiteFiles:
    """The files of an archive; a blocking reader."""

    def __init__(self, archive: Path = SITE) -> None:
        """Look whether there is one; a node is as good without it."""
        self._archive = archive
        self.is_there = archive.is_file()
        self.read = lru_cache(8)(self._read)

    def _read(self, name: str) -> SiteFile | None:
        """The file of that name; None: there is none, or no archive.

        Raises:
            StorageError: the archive cannot be read, or is another one than it was.
        """
        if not self.is_there:
            return None
        try:
            with zipfile.ZipFile(self._archive) as archive:
                info = archive.NameToInfo.get(name)
                if info is None or info.is_dir() or info.file_size > CONTENT_MAX:
                    return None
                content = archive.read(info)
        except (OSError, zipfile.BadZipFile, EOFError) as error:
            raise StorageError(
                "documentation cannot be read", file=str(self._archive), reason=str(error)
            ) from error
        media_type = guess_type(name)[0] or "application/octet-stream"
        digests = {
            b64encode(hashlib.sha256(script).digest()).decode()
            for script in (_SCRIPT.findall(content) if name.endswith(".html") else ())
        }
        scripts = " ".join(f"'sha256-{digest}'" for digest in sorted(digests))
        policy = _POLICY.format(scripts=scripts)
        kept = {"content-security-policy": policy, "cache-control": f"private, max-age={KEPT_S}"}
        return SiteFile(content, media_type, {**HEADERS, **kept})


FIELDS_MAX = 64
"""Most fields of one form."""

_NAME_MAX = 255

_STATIC = FOLDER / "static"
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_NODE = (
    ("/", "The group"),
    ("/processes", "Processes"),
    ("/disk", "Disk and files"),
    ("/events", "Events"),
)
_MESSAGES = (
    ("/topics", "Topics"),
    ("/groups", "Consumer groups"),
    ("/messages", "Messages"),
    ("/dead-letters", "Dead letters"),
    ("/timers", "Timers"),
    ("/transactions", "Transactions"),
)
SITE_PATH = "/documentation"
SECTIONS = (
    ("Node", _NODE),
    ("Messages", _MESSAGES),
    ("Access", (("/users", "Users"), ("/quotas", "Quotas"))),
    ("Help", (("/handbook", "Handbook"), (SITE_PATH, "All documents"))),
)

_STATUSES: tuple[tuple[type[LedgerError], HTTPStatus], ...] = (
    (NoPermissionError, HTTPStatus.FORBIDDEN),
    (TopicUnknownError, HTTPStatus.NOT_FOUND),
    (GroupUnknownError, HTTPStatus.NOT_FOUND),
    (MessageUnknownError, HTTPStatus.NOT_FOUND),
    (QuotaError, HTTPStatus.TOO_MANY_REQUESTS),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (ProtocolError, HTTPStatus.BAD_REQUEST),
)

_TITLES = {
    HTTPStatus.FORBIDDEN: "Not with these rights",
    HTTPStatus.NOT_FOUND: "Not there",
    HTTPStatus.BAD_REQUEST: "Not so",
}
"""Titles of a page that could not be made, by status; the title of all others is "Not now"."""


class ConsoleParts(NamedTuple):
    """What the console has of the observer.

    Attributes:
        thread: for files, and the journal.
        has_tls: whether browsers come by TLS.
    """

    page: CursorPage
    pages: Pages
    sources: Sources
    health: HealthSource
    scrapes: Scrapes
    counters: Counts
    thread: Executor
    has_tls: bool


class Console:
    """All pages; what they show and do is asked of ``Inquiries`` with the caller's rights."""

    def __init__(self, settings: Settings, parts: ConsoleParts) -> None:
        """Read the static files."""
        scrapes = parts.scrapes
        self._page = parts.page
        self._scrapes = scrapes
        self._seen = Seen(History(parts.page), Happenings(parts.page, settings.node.self_id))
        self._kept = Kept()
        self._counted: Counted | None = None
        self._counted_at = (-1, -1, -1)
        self._sampled_s = 0.0
        self._sampling: asyncio.Task[None] | None = None
        self._sources = parts.sources
        self._health = parts.health
        self._counters = parts.counters
        self._thread = parts.thread
        self._sign_in = SignIn(settings, parts.pages, scrapes.secret_of, has_tls=parts.has_tls)
        self._topics = TopicPages(scrapes, self._kept)
        self._groups = GroupPages(scrapes, self._kept)
        node_pages = NodePages(settings, self._seen, self._groups.greatest_lags, parts.thread)
        node = settings.node
        self._names = {
            "cluster": node.broker_cluster_name,
            "broker": node.broker_name,
            "node": node.self_id,
        }
        self._files = {
            path.name: path.read_bytes() for path in _STATIC.iterdir() if path.suffix in _MEDIA
        }
        digest = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files)))
        self._version = digest.hexdigest()[:16]
        self._site = SiteFiles()
        self._sections = SECTIONS if self._site.is_there else _without(SITE_PATH)
        self._rendering = Rendering(self._version)
        self._pages: tuple[ConsolePage, ...] = (
            *node_pages.pages,
            *self._topics.pages,
            *self._groups.pages,
            *message_pages.PAGES,
            *ACCESS_PAGES,
            ConsolePage("/handbook", _handbook),
            ConsolePage("/handbook/{name}", _document),
        )

    def routes(self) -> list[BaseRoute]:
        """Where all of it is."""
        return [
            Route("/static/{path:path}", self._static),
            Route(SITE_PATH, self._site_page),
            Route(f"{SITE_PATH}/{{path:path}}", self._site_page),
            Route("/sign-in", self._sign_in_page),
            Route("/sign-in", self._signed_in, methods=["POST"]),
            Route("/sign-out", self._signed_out, methods=["POST"]),
            Route("/curves.json", partial(self._data, self._rates)),
            Route("/groups/{group}/lag.json", partial(self._data, self._groups.lag_curve)),
            Route("/topics/{topic}/rate.json", partial(self._data, self._topics.rate_curve)),
            *(Route(page.path, partial(self._show, page), methods=["GET"]) for page in self._pages),
            *(
                Route(page.path, partial(self._change, page), methods=["POST"])
                for page in self._pages
                if page.acts
            ),
        ]

    def sample(self) -> None:
        """Follow the node's rates, its events, its topics and its groups; with each wake-up."""
        self._seen.history.look()
        self._seen.happenings.look()
        now_s = time.monotonic()
        is_idle = self._sampling is None or self._sampling.done()
        if is_idle and now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            self._sampling = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Keep a sample of topics and groups; where the log stands still nothing is looked at."""
        page = self._page
        here = (
            page.read_committed_position(),
            page.read_dispatched().position,
            page.read_log_begin().position,
        )
        counted = self._counted
        if here != self._counted_at or counted is None or not counted.is_whole or counted.is_old:
            # The node is starting, or a file is damaged: the courses have a gap.
            with suppress(LedgerError):
                self._counted = await self._scrapes.counted()
                self._counted_at = here
        if self._counted is not None and here == self._counted_at and not self._counted.is_old:
            self._kept.put(self._counted)

    async def _show(self, page: ConsolePage, request: Request) -> Response:
        try:
            caller, visit = await self._sign_in.find(request)
        except LedgerError as error:
            return await self._outside(error)
        if caller is None:
            return _see(address("/sign-in", to=_here(request)))
        visit_id = ""
        if visit is None and not is_anybody(caller) and "authorization" not in request.headers:
            visit_id, visit = self._sign_in.begin(caller, "", is_signed_in=False)
        asked = PageAsked(request, caller, self._sources, await self._health_now())
        try:
            view = await page.show(asked)
        except LedgerError as error:
            response = self._trouble(asked, visit, error)
        else:
            table = next((one for one in view.tables if one.name == asked.export), None)
            if table is not None:
                # There may be a hundred thousand rows, and others ask for health meanwhile.
                form = request.query_params["export"]
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, exported, table, form)
            response = await self._view(asked, visit, view)
        if visit_id:
            self._sign_in.keep(response, visit_id)
        return response

    async def _change(self, page: ConsolePage, request: Request) -> Response:
        try:
            caller, visit = await self._sign_in.find(request)
            if caller is None:
                return _see(address("/sign-in", to=request.scope["path"]))
            form = await _form(request)
            if visit is None or not (is_from_here(request) and visit.allows(_key(form))):
                raise NoPermissionError("nothing was done: the form is not one of this visit's")
            act = page.acts.get(form.get("act", ""))
            if act is None:
                raise ConfigError("no such act", act=form.get("act", "")[:64])
        except LedgerError as error:
            return await self._outside(error)
        asked = PageAsked(request, caller, self._sources, await self._health_now())
        try:
            done = await act(asked, form)
        except LedgerError as error:
            visit.notice = ("bad", _sentence(error))
            return _see(_here(request))
        visit.notice = ("ok", done.text)
        return _see(done.to)

    async def _rates(self, _asked: PageAsked) -> Mapping[str, object]:
        return self._seen.history.curves()

    async def _data(
        self, find: Callable[[PageAsked], Awaitable[Mapping[str, object]]], request: Request
    ) -> Response:
        """What a curve is drawn from."""
        try:
            caller, _ = await self._sign_in.find(request)
            if caller is None:
                return JSONResponse({}, HTTPStatus.UNAUTHORIZED)
            return JSONResponse(await find(PageAsked(request, caller, self._sources, None)))
        except LedgerError as error:
            return JSONResponse({"error": error.message}, _status_of(error))

    async def _sign_in_page(self, request: Request) -> Response:
        to = _local(request.query_params.get("to", "/"))
        return self._page_outside("sign_in.html", "Sign in", {"to": to, "refused": ""})

    async def _signed_in(self, request: Request) -> Response:
        to = "/"
        try:
            form = await _form(request)
            to = _local(form.get("to", "/"))
            if not is_from_here(request):
                raise NoPermissionError("the form was sent by a page of another place")
            name = form.get("user", "") if form.get("by") == "user" else ""
            shown = form.get("secret" if name else "token", "")
            visit_id = await self._sign_in.sign_in(request, name.strip()[:_NAME_MAX], shown.strip())
        except LedgerError as error:
            self._counters[ObserverCounter.DENIED] += 1
            values = {"to": to, "refused": _sentence(error)}
            return self._page_outside("sign_in.html", "Sign in", values, _status_of(error))
        response = _see(to)
        self._sign_in.keep(response, visit_id)
        return response

    async def _signed_out(self, request: Request) -> Response:
        visit_id = request.cookies.get(self._sign_in.cookie, "")
        visit = self._sign_in.visits.find(visit_id)
        try:
            form = await _form(request)
            if visit is None or not (is_from_here(request) and visit.allows(_key(form))):
                raise NoPermissionError("nobody was signed out: the form is not this visit's")
            self._sign_in.visits.end(visit_id)
        except LedgerError as error:
            return await self._outside(error)
        response = _see("/sign-in" if self._sign_in.needs_token else "/")
        self._sign_in.keep(response, "")
        return response

    async def _static(self, request: Request) -> Response:
        # Behind the version, by which browsers tell those of this program from those before.
        name = str(request.path_params["path"]).partition("/")[2]
        content = self._files.get(name)
        if content is None:
            return PlainTextResponse("no such file\n", HTTPStatus.NOT_FOUND)
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "cross-origin-resource-policy": "same-origin",
        }
        return Response(content, media_type=_MEDIA[Path(name).suffix], headers=headers)

    async def _site_page(self, request: Request) -> Response:
        """A file of the documentation's site, for who may see pages of the console."""
        try:
            caller, _ = await self._sign_in.find(request)
            if caller is None:
                return _see(address("/sign-in", to=_here(request)))
        except LedgerError as error:
            return await self._outside(error)
        name = str(request.path_params.get("path", ""))
        if not name and self._site.is_there:
            return _see(f"{SITE_PATH}/{FIRST_PAGE}")
        try:
            # To unpack one takes milliseconds, and others ask for health meanwhile.
            file = await self._sources.looks.make(self._site.read, name)
        except StorageError as error:
            return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if file is None:
            return PlainTextResponse("no such file\n", HTTPStatus.NOT_FOUND)
        return Response(file.content, media_type=file.media_type, headers=dict(file.headers))

    async def _health_now(self) -> Health | None:
        with suppress(LedgerError):
            return await self._health.health()
        return None

    async def _view(self, asked: PageAsked, visit: Visit | None, view: View) -> Response:
        notice = None
        if visit is None:
            view = view._replace(changes=())
        elif asked.request.headers.get("sec-fetch-dest", "document") == "document":
            # Not for a page that looks again by itself, maybe in another window.
            notice, visit.notice = visit.notice, None
        values = {"view": view, "asked": asked, "notice": notice, **view.values}
        # Rows are as many, and as long, as somebody has made them.
        return await self._sources.looks.make(
            self._rendering.page,
            view.template,
            {**self._around(asked, visit), **values},
            view.status,
        )

    def _trouble(self, asked: PageAsked, visit: Visit | None, error: LedgerError) -> Response:
        """A page that could not be made, and why."""
        status = _status_of(error)
        title, silent = _TITLES.get(status, "Not now"), ""
        if isinstance(error, NotLeaderError):
            title = "Not here" if "leader" in error.details else "Nobody leads"
            happenings = self._seen.happenings
            silent = silence_words(happenings.silent, happenings.since_ms)
        values = {
            "view": View(title),
            "asked": asked,
            "notice": None,
            "text": _sentence(error, details=not isinstance(error, NotLeaderError)),
            "leader": error.details.get("leader", ""),
            "silent": silent,
            "url": error.details.get("url", ""),
            "is_elsewhere": isinstance(error, NotLeaderError),
        }
        if asked.export:
            return PlainTextResponse(f"{values['text']}\n", status)
        return self._rendering.page(
            "trouble.html", {**self._around(asked, visit), **values}, status
        )

    async def _outside(self, error: LedgerError) -> Response:
        """A refusal before it is known who asks, or of a form."""
        self._counters[ObserverCounter.DENIED] += 1
        values = {"text": _sentence(error)}
        return self._page_outside("refused.html", "Refused", values, _status_of(error))

    def _page_outside(
        self, template: str, title: str, values: Mapping[str, object], status: int = HTTPStatus.OK
    ) -> Response:
        around = {"title": title, "names": self._names, "theme": "", **values}
        return self._rendering.page(template, around, status)

    def _around(self, asked: PageAsked, visit: Visit | None) -> dict[str, object]:
        """What stands around each page."""
        health = asked.health
        path = asked.request.scope["path"]
        theme = asked.request.cookies.get("ledgermq-theme", "")
        return {
            "names": self._names,
            "sections": self._sections,
            "here": "/" + path.strip("/").partition("/")[0],
            "state": health["state"] if health is not None else "silent",
            "is_ready": health is not None and health["ready"],
            "role": health["role"] if health is not None else "",
            "change_key": visit.change_key if visit is not None else "",
            "is_signed_in": visit is not None and visit.is_signed_in,
            "theme": theme if theme in ("light", "dark") else "",
        }


def _without(path: str) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """The sections without a page that is not there."""
    return tuple(
        (title, tuple(page for page in pages if page[0] != path)) for title, pages in SECTIONS
    )


async def _handbook(asked: PageAsked) -> View:
    words = asked.text("find")
    # To read all of the documents for the first time takes a second.
    make = asked.inquirer.sources.looks.make
    return View(
        "Handbook",
        "The operating documents of this version, as they are in its package.",
        search=(Field("find", "Find", "search", words),),
        template="handbook.html",
        values={
            "contents": await make(documents.contents),
            "places": await make(documents.found, words) if words else [],
            "words": words,
        },
    )


async def _document(asked: PageAsked) -> View:
    found = documents.document(asked.part("name"))
    if found is None:
        return View(
            "No such page",
            "The handbook has none of that name.",
            back=("/handbook", "Handbook"),
            status=HTTPStatus.NOT_FOUND,
        )
    return View(
        found.title,
        back=("/handbook", "Handbook"),
        template="document.html",
        values={"document": found},
    )


async def _form(request: Request) -> Form:
    """The fields of a form, the last one of each name.

    Raises:
        ProtocolError: it is none.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ProtocolError("not a form", content_type=kind[:64])
    try:
        text = (await request.body()).decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise ProtocolError("form cannot be read", reason=str(error)[:64]) from None
    return dict(fields)


def _key(form: Form) -> str:
    return form.get("change_key", "")


def _see(to: str) -> Response:
    """Go on with a page that is asked for anew."""
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={**HEADERS, "location": to})


def _here(request: Request) -> str:
    """The page that was asked for, with its query."""
    path = quote(request.scope["path"], safe="/%")
    query = request.scope["query_string"].decode("ascii", "replace")
    return f"{path}?{query}" if query else path


def _local(to: str) -> str:
    """An address of this console, else its first page: nobody is led away by a link to it."""
    is_here = to.startswith("/") and not to.startswith(("//", "/\\"))
    return to if is_here and to.isascii() and to.isprintable() and " " not in to else "/"


def _status_of(error: LedgerError) -> HTTPStatus:
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.SERVICE_UNAVAILABLE


def _sentence(error: LedgerError, *, details: bool = True) -> str:
    """What an error says, with the values that it names."""
    named = ", ".join(f"{name} {value}" for name, value in error.details.items() if details)
    words = f"{error.message} ({named})" if named else error.message
    return words[:1].upper() + words[1:]
