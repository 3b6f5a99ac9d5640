"""Schema source: schemas of topics, from the tables of a store directory or from a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.model.errors import ConfigError, NoPermissionError
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.verbs.schemas import RegisteredSchema, SchemaOfId, ShowSchema

TABLE = Path("ledgermq", "schemas.json")
TABLE_AGAIN_S = 0.05
PATIENCE_S = 2.0
"""Longest that one task waits, in all, for ids that are newer than its table."""

TABLE_SIZE_MAX = 64 * 1024 * 1024


class SchemaSource(Protocol):
    """Schemas as they are now."""

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The last version of a subject; None where there is none."""

    def of_id(self, identity: int) -> RegisteredSchema | None:
        """The schema of an id; None where nothing has it, or where it may not be read."""

    def close(self) -> None:
        """Let go of everything."""


def open_schemas(options: SourceOptions) -> SchemaSource:
    """The schemas of the store directories, or of the cluster, that the options name."""
    if options.nodes:
        return NodeSchemas(options.nodes, timeout_ms=options.timeout_ms)
    return StoreSchemas(options.paths)


class StoreSchemas:
    """Those of store directories, the first one that has a schema first.

    A table is read again when its file is another one, as a broker writes it anew.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._files = [root / TABLE for root in roots]
        self._patience_s = PATIENCE_S
        self._read_as: tuple[object, ...] = ()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._latest: dict[str, RegisteredSchema] = {}

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The last version of a subject; None where there is none.

        Raises:
            ConfigError: a table cannot be read.
        """
        self._look()
        return self._latest.get(subject)

    def of_id(self, identity: int) -> RegisteredSchema | None:
        """The schema of an id; None where nothing has it.

        Raises:
            ConfigError: a table cannot be read.
        """
        if identity not in self._schemas:
            self._look()
        highest = max(self._schemas, default=0)
        while highest < identity not in self._schemas and self._patience_s > 0:
            # A node shows a message before its broker has written the table with the message's id.
            time.sleep(TABLE_AGAIN_S)
            self._patience_s -= TABLE_AGAIN_S
            self._look()
        return self._schemas.get(identity)

    def close(self) -> None:
        """Nothing is open."""

    def _look(self) -> None:
        found = tuple(_mark(file) for file in self._files)
        if found == self._read_as:
            return
        # Of what several have the first one counts.
        for file in reversed(self._files):
            for schema in sorted(_read(file), key=lambda one: one.version):
                self._schemas[schema.id] = schema
                self._latest[schema.subject] = schema
        self._read_as = found


class NodeSchemas:
    """Those of a running cluster."""

    def __init__(self, addresses: Sequence[str], *, timeout_ms: int) -> None:
        """Connect with the first question.

        Raises:
            ConfigError: an address cannot be one.
        """
        self._connection = connect_broker(addresses, name="spark", timeout_s=timeout_ms / 1_000)
        self._broker: Broker = self._connection.__enter__()

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The last version of a subject; None where there is none.

        Raises:
            NotLeaderError: no broker answers.
            NoPermissionError: this client may not use the subject's topic.
        """
        try:
            found = self._broker.run(asking(ShowSchema(subject)))[1]
        except ConfigError:
            return None
        return found if found.version else None

    def of_id(self, identity: int) -> RegisteredSchema | None:
        """The schema of an id; None where nothing has it, or where it may not be read.

        Raises:
            NotLeaderError: no broker answers.
        """
        try:
            return self._broker.run(asking(SchemaOfId(identity)))
        except (ConfigError, NoPermissionError):
            return None

    def close(self) -> None:
        """Say goodbye to the nodes."""
        self._connection.__exit__(None, None, None)


def _mark(file: Path) -> object:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(file: Path) -> Iterator[RegisteredSchema]:
    """All versions in a table's file, which a broker has written; none where there is no file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(TABLE_SIZE_MAX + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError("schemas cannot be read", file=str(file), reason=error.strerror) from None
    try:
        subjects = json.loads(content)["subjects"]
        for name, subject in subjects.items():
            for number, row in subject.get("versions", {}).items():
                yield RegisteredSchema(
                    name, int(number), int(row["id"]), str(row["type"]), str(row["schema"])
                )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ConfigError("not a table of schemas", file=str(file), reason=repr(error)) from None
