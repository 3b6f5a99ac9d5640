"""Apache Iceberg table as an archive: each run adds one snapshot, or nothing.

The properties of a snapshot say how far its run has come, so rows and progress are one commit: who
is killed before it has added nothing, and the next run reads from the newest snapshot where to go
on. A commit holds only if the table is still at the state that the run was planned from.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.pipeline.archive.archive_layout import (
    ArchiveRun,
    ArchiveState,
    Gap,
    decode_marks,
    encode_marks,
)
from ledgermq.pipeline.archive.archive_store import StagingArea
from ledgermq.pipeline.tables.table_catalog import (
    REFUSALS,
    HonestCatalog,
    asked,
    opened_catalog,
    opened_table,
    refused,
    split_name,
)
from ledgermq.pipeline.tables.table_columns import (
    check_times,
    data_file,
    form_of,
    missing_columns,
    missing_fields,
)
from ledgermq.pipeline.tables.table_files import TableFiles
from ledgermq.pipeline.tables.value_fields import ColumnChange
from ledgermq.pipeline.typed.subject_type import SubjectType

PLAIN_VERSION, TYPED_VERSION = 1, 2
"""Versions of a run: with bodies as bytes alone, and with bodies as fields, too.

An earlier program would leave those empty.
"""

PREFIX = "ledgermq."
RUN, ATTEMPT = f"{PREFIX}run", f"{PREFIX}attempt"

PLAIN_TEXT_MAX = 4_096
"""Longer texts are compressed: each snapshot that is kept has them in the table's metadata."""

STATE_BYTES_MAX = 64 << 20
"""Most bytes of a property when it is not compressed any more: some million queues."""

_PACKED = "zlib:"

COMMITS_MAX = 5
"""Times that a commit is made, as when somebody else puts the table in order meanwhile."""

SNAPSHOT = f"{PREFIX}snapshot"
"""Property of the table: the snapshot whose properties the table has, too, in case it expires."""


class FoundState(NamedTuple):
    """What properties say.

    Attributes:
        attempt: random, of the commit that wrote them: no two have the same.
    """

    state: ArchiveState
    attempt: str


def encode_state(before: ArchiveState, run: ArchiveRun, attempt: str) -> dict[str, str]:
    """The properties of the snapshot that adds ``run`` to ``before``."""
    properties = {
        "version": str(TYPED_VERSION if run.subjects else PLAIN_VERSION),
        "run": str(run.number),
        "attempt": attempt,
        "source": run.source,
        "bodies": run.bodies,
        "topics": _packed(run.topics),
        "queues": _packed(encode_marks({**before.marks, **run.marks})),
        "gaps": _packed([list(gap) for gap in run.gaps]),
        "missing": str(sum(gap.end - gap.first for gap in run.gaps)),
        "damaged": str(sum(file.damaged for file in run.files)),
    }
    if run.subjects:
        properties["subjects"] = json.dumps(run.subjects)
        properties["unparsed"] = str(sum(file.unparsed for file in run.files))
    known = [one for one in (before.position, run.position) if one is not None]
    if known:
        properties["position"] = str(max(known))
    return {f"{PREFIX}{name}": text for name, text in properties.items()}


def decode_state(properties: Mapping[str, str], *, table: str) -> FoundState | None:
    """The state behind the run that has written ``properties``; None where no run has.

    Its gaps are those of that run; it has no files.

    Args:
        table: named in errors.

    Raises:
        ConfigError: a later version has written them.
        CorruptLogError: they cannot be read.
    """
    if RUN not in properties:
        return None
    take = _Properties(properties, table)
    version = take.number("version")
    if version > TYPED_VERSION:
        raise ConfigError(
            "table is of a later layout", table=table, version=version, known=TYPED_VERSION
        )
    state = ArchiveState(
        runs=take.number("run"),
        bodies=take.text("bodies"),
        topics=take.table("topics"),
        position=take.number("position") if f"{PREFIX}position" in properties else None,
        marks=decode_marks(take.table("queues"), file=table),
        gaps=take.gaps(),
        subjects=take.texts("subjects") if version == TYPED_VERSION else (),
    )
    return FoundState(state, take.text("attempt"))


def _packed(document: object) -> str:
    text = json.dumps(document, separators=(",", ":"))
    if len(text) <= PLAIN_TEXT_MAX:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> object:
    """The document of a text.

    Raises:
        ValueError: it is none, or has more than ``STATE_BYTES_MAX``.
    """
    if not text.startswith(_PACKED):
        return json.loads(text)
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(
            base64.b64decode(text.removeprefix(_PACKED), validate=True), STATE_BYTES_MAX
        )
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError(f"not whole, or larger than {STATE_BYTES_MAX:,} bytes")
    return json.loads(content)


class _Properties:
    """Properties of one snapshot, each of the type that is asked for."""

    def __init__(self, properties: Mapping[str, str], table: str) -> None:
        self._properties = properties
        self._table = table

    def text(self, name: str) -> str:
        """A text."""
        found = self._properties.get(f"{PREFIX}{name}")
        if found is None:
            raise self._corrupt(name, "missing")
        return found

    def number(self, name: str) -> int:
        """A whole number."""
        try:
            return int(self.text(name))
        except ValueError as error:
            raise self._corrupt(name, str(error)) from error

    def table(self, name: str) -> dict[str, object]:
        """An object of JSON."""
        found = self._document(name)
        if not isinstance(found, dict):
            raise self._corrupt(name, "no object")
        return found

    def gaps(self) -> list[Gap]:
        """What the run has not found any more."""
        found = self._document("gaps")
        if not isinstance(found, list):
            raise self._corrupt("gaps", "no list")
        gaps = []
        for item in found:
            match item:
                case [str(topic), int(queue_id), int(generation), int(first), int(end)]:
                    gaps.append(Gap(topic, queue_id, generation, first, end))
                case _:
                    raise self._corrupt("gaps", "no gap")
        return gaps

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self._document(name)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._corrupt(name, "no list of texts")
        return tuple(found)

    def _document(self, name: str) -> object:
        try:
            return _unpacked(self.text(name))
        except (ValueError, RecursionError) as error:
            raise self._corrupt(name, str(error)) from error

    def _corrupt(self, name: str, why: str) -> CorruptLogError:
        return CorruptLogError(
            "state of the archive not read",
            table=self._table,
            property=f"{PREFIX}{name}",
            reason=why[:200],
        )


class IcebergTable:
    """A table that runs of ``archive`` add to.

    Invariant: ``state`` is what the newest snapshot of a run says, as of opening it or of the last
    ``commit``.
    """

    def __init__(
        self, catalog: Catalog, path: tuple[str, ...], *, name: str, may_make: bool
    ) -> None:
        """Open the table; columns that it lacks are added.

        Args:
            may_make: it is made where there is none.

        Raises:
            ConfigError: there is none, or it is no archive, and cannot be one.
            CorruptLogError: what it says of its runs cannot be read.
            StoreLockedError: it was changed meanwhile.
            StorageError: the catalog or the store refused.
        """
        self._name = name
        table = opened_table(catalog, path, name=name, may_make=may_make)
        # Of a table of somebody else nothing is changed.
        newest_state(table, name)
        _change_columns(table, missing_columns(table, name), name)
        table.catalog = cast(Catalog, HonestCatalog(catalog))
        self._table = table
        self._look(has_fields=False)

    @classmethod
    def at(cls, text: str, properties: Mapping[str, str], *, may_make: bool = True) -> IcebergTable:
        """The table that ``CATALOG.NAMESPACE.TABLE`` names.

        Args:
            properties: of the catalog, over those of PyIceberg's configuration.
            may_make: it is made where there is none.

        Raises:
            LedgerError: as opening it, and the catalog.
        """
        name, path = split_name(text)
        return cls(opened_catalog(name, properties), path, name=text, may_make=may_make)

    def add_fields(self, bodies: SubjectType) -> None:
        """Let bodies of the next run be fields, too; fields that the table has stay.

        Raises:
            ConfigError: columns of their names are of other types, or no schema gives the first
                ones.
            StoreLockedError: the table was changed meanwhile.
            StorageError: the catalog refused.
        """
        _change_columns(self._table, missing_fields(self._table, self._name, bodies), self._name)
        self._look(has_fields=True)

    def _look(self, *, has_fields: bool) -> None:
        """Form and state, of the same metadata as the commit's condition: changing columns has
        loaded it anew.
        """
        self.form = form_of(self._table.schema(), name=self._name, has_fields=has_fields)
        found = newest_state(self._table, self._name)
        self.state = ArchiveState() if found is None else found.state
        self._attempt = "" if found is None else found.attempt

    @property
    def table(self) -> Table:
        """PyIceberg's, as it was loaded last."""
        return self._table

    def as_text(self) -> str:
        """The table's name, as it was given."""
        return self._name

    def staging(self) -> TableFiles:
        """Where its data files stand: at once in their places, for no reader sees them there."""
        root = self._table.properties.get("write.data.path")
        return TableFiles.of(
            (root or f"{self._table.location()}/data").rstrip("/"), self._table.io.properties
        )

    def discard(self) -> None:
        """There is nothing to let go of."""

    def commit(self, run: ArchiveRun, staged: StagingArea) -> None:
        """Add one snapshot with the files of ``run``; durable on return.

        Raises:
            ConfigError: a message's store time is beyond the calendar; nothing was added.
            StoreLockedError: another run has added something meanwhile, or the table's columns or
                partitions were changed; nothing was added.
            StorageError: the catalog refused. Where it did not answer, it may have been added:
                the next run sees that.
        """
        assert isinstance(staged, TableFiles), type(staged)
        assert run.number == self.state.runs + 1, (run.number, self.state.runs)
        planned = self._table.metadata
        locations = [staged.location_of(file.path) for file in run.files]
        try:
            for file in run.files:
                check_times(file, self._name)
        except ConfigError:
            self.delete(locations)
            raise
        files = [
            data_file(planned, file, location)
            for file, location in zip(run.files, locations, strict=True)
        ]
        attempt = uuid.uuid4().hex
        properties = encode_state(self.state, run, attempt)
        for _ in range(COMMITS_MAX):
            try:
                self._commit(properties, added=files)
                break
            except (CommitFailedException, NoSuchTableError, ValidationException):
                self._reload()
                self._check_as_planned(planned, locations)
            except REFUSALS as error:
                if self._has_been_added(attempt):
                    break
                raise refused("run not added to the table", error, table=self._name) from error
        else:
            self.delete(locations)
            raise self._never_still()
        self.state.add(run)
        self._attempt = attempt

    def exchange(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Let files take the place of others that have the same rows; durable on return.

        The new snapshot says of runs what the newest one of a run says.

        Args:
            old: of the current snapshot, without files of deleted rows.

        Raises:
            StoreLockedError: rows of them were changed meanwhile, or the table was; the new files
                are deleted, and the table is as it was.
            StorageError: as of ``commit``.
        """
        planned = self._table.metadata
        locations = [file.file_path for file in new]
        for _ in range(COMMITS_MAX):
            properties = _newest_properties(self._table, self._name) or {}
            own = {
                key: text
                for key, text in properties.items()
                if key.startswith(PREFIX) and key != SNAPSHOT
            }
            try:
                self._commit(own, added=new, removed=old)
                return
            except (CommitFailedException, NoSuchTableError, ValidationException):
                self._reload()
                self._check_layout(planned, locations)
                if not {file.file_path for file in old} <= self.whole_files().keys():
                    self.delete(locations)
                    raise StoreLockedError(
                        "rows were changed while their files were put together: run it again",
                        table=self._name,
                    ) from None
            except REFUSALS as error:
                self._reload()
                if set(locations) <= self.whole_files().keys():
                    return
                raise refused("files not put together", error, table=self._name) from error
        self.delete(locations)
        raise self._never_still()

    def whole_files(self) -> dict[str, DataFile]:
        """Files of the current snapshot, by location, but those of which rows were deleted.

        Raises:
            StorageError: the store refused.
        """
        with asked("files of the table not listed", table=self._name):
            return {
                task.file.file_path: task.file
                for task in self._table.scan().plan_files()
                if not task.delete_files
            }

    def _commit(
        self,
        properties: Mapping[str, str],
        *,
        added: Sequence[DataFile],
        removed: Sequence[DataFile] = (),
    ) -> None:
        """One commit, on the condition that the table is as it was loaded."""
        table = self._table
        # PyIceberg would put the same files behind whatever it finds instead.
        table.metadata = table.metadata.model_copy(
            update={"properties": {**table.properties, "commit.retry.num-retries": "0"}}
        )
        with table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(properties))
            with update.overwrite() if removed else update.merge_append() as files:
                for file in removed:
                    files.delete_data_file(file)
                for file in added:
                    files.append_data_file(file)
                snapshot_id = files.snapshot_id
            transaction.set_properties({**properties, SNAPSHOT: str(snapshot_id)})

    def _reload(self) -> None:
        """Load the table anew.

        Raises:
            StoreLockedError: it was dropped.
            StorageError: the catalog does not answer.
        """
        with asked("not known whether the run was added to the table", table=self._name):
            try:
                self._table.refresh()
            except (NoSuchTableError, ValueError) as error:
                # The one of its name has another UUID.
                raise StoreLockedError(
                    "table was dropped while it was written: run it again", table=self._name
                ) from error

    def _has_been_added(self, attempt: str) -> bool:
        """Load the table anew; whether it has the commit, whose answer was lost then."""
        self._reload()
        return any(
            snapshot.summary is not None
            and snapshot.summary.additional_properties.get(ATTEMPT) == attempt
            for snapshot in self._table.metadata.snapshots
        )

    def _check_as_planned(self, planned: TableMetadata, locations: list[str]) -> None:
        """Whether the run can be added to the table as it is now; else its files are deleted.

        Raises:
            StoreLockedError: it cannot.
        """
        found = newest_state(self._table, self._name)
        if (found.attempt if found else "") != self._attempt:
            self.delete(locations)
            raise StoreLockedError(
                "another run writes the archive: it has added to the table meanwhile",
                table=self._name,
                run=found.state.runs if found else 0,
                planned_after=self.state.runs,
            )
        self._check_layout(planned, locations)

    def _check_layout(self, planned: TableMetadata, locations: list[str]) -> None:
        """Whether files of the planned columns and partitions can be added yet; else those at
        ``locations`` are deleted.

        Raises:
            StoreLockedError: they cannot.
        """
        now = self._table.metadata
        if (now.table_uuid, now.current_schema_id, now.default_spec_id) != (
            planned.table_uuid,
            planned.current_schema_id,
            planned.default_spec_id,
        ):
            self.delete(locations)
            raise StoreLockedError(
                "table was changed while it was written: run it again", table=self._name
            )

    def _never_still(self) -> StorageError:
        return StorageError(
            "not committed: the table was changed before each try",
            table=self._name,
            tries=COMMITS_MAX,
        )

    def delete(self, locations: Iterable[str]) -> None:
        """Delete files that no snapshot names; somebody else may have been faster.

        Raises:
            StorageError: the store refused.
        """
        for location in locations:
            what = "file not deleted that the table does not have"
            with asked(what, file=location), suppress(FileNotFoundError):
                self._table.io.delete(location)


def _change_columns(table: Table, changes: Sequence[ColumnChange], name: str) -> None:
    if not changes:
        return
    try:
        with asked("columns not added", table=name), table.update_schema() as update:
            for one in changes:
                if one.is_new:
                    update.add_column(one.path, one.type)
                else:
                    update.update_column(one.path, one.type)
    except CommitFailedException as error:
        raise StoreLockedError(
            "table was changed while it was opened: run it again", table=name
        ) from error


def newest_state(table: Table, name: str) -> FoundState | None:
    """What the newest snapshot that a run has added says; None in an empty table.

    Snapshots of others stand over it, such as of those who put its files in order.

    Raises:
        ConfigError: rows are in it, and no run has written them; or the snapshot has expired that
            would tell.
        CorruptLogError: what it says cannot be read.
    """
    properties = _newest_properties(table, name)
    return None if properties is None else decode_state(properties, table=name)


def _newest_properties(table: Table, name: str) -> Mapping[str, str] | None:
    """Where ``newest_state`` looks; raises as it does."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    while snapshot is not None:
        summary = snapshot.summary
        if summary is not None and RUN in summary.additional_properties:
            return summary.additional_properties
        parent = snapshot.parent_snapshot_id
        # Of a parent that has expired, PyIceberg leaves no trace.
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return _properties_of_expired(table, name)


def _properties_of_expired(table: Table, name: str) -> Mapping[str, str]:
    """What the table itself says of a snapshot that it has no more.

    Raises:
        ConfigError: it says nothing, or was put back to an older snapshot since.
    """
    if RUN not in table.properties:
        raise ConfigError("table has rows that no archive has written", table=name)
    written_by = table.properties.get(SNAPSHOT, "")
    if not written_by.isdigit() or table.snapshot_by_id(int(written_by)) is not None:
        raise ConfigError(
            "snapshots have expired that say how far the table has the log: put it back to one"
            " that a run has written, or take another table",
            table=name,
        )
    return table.properties
