"""Catalog of Iceberg tables: opened by PyIceberg's own configuration, with errors of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata

from pyiceberg.catalog import Catalog, infer_catalog_type, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.utils.config import Config
from sqlalchemy.exc import SQLAlchemyError
from strictyaml import YAMLError

from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.pipeline.tables.table_columns import (
    TABLE_PROPERTIES,
    new_order,
    new_schema,
    new_spec,
)
from ledgermq.pipeline.tables.table_files import SyncedFileIO, local_path

KINDS = ("sql", "rest")
"""Kinds of catalogs, as PyIceberg names them."""

VERSIONS = ("0.12", "0.13")
"""Versions of PyIceberg: the first one that will do, and the first that nobody has tried."""

REFUSALS = (OSError, RESTError, SQLAlchemyError)
"""What PyIceberg lets through when a catalog or a store does not answer, or says no."""


def check_version() -> None:
    """Whether PyIceberg is one that this was tried with.

    Raises:
        ConfigError: it is not; says what to do.
    """
    found = metadata.version("pyiceberg")
    first, beyond = ([int(part) for part in version.split(".")] for version in VERSIONS)
    if not first <= [int(part) for part in found.split(".")[:2]] < beyond:
        raise ConfigError(
            "another version of PyIceberg: pip install 'ledgermq[iceberg]'",
            found=found,
            expected=f"at least {VERSIONS[0]}, less than {VERSIONS[1]}",
        )


@contextmanager
def asked(what: str, **details: object) -> Iterator[None]:
    """A question to a catalog, or to the store of its tables.

    Raises:
        StorageError: it was refused, or not answered; ``what`` says what for.
    """
    try:
        yield
    except REFUSALS as error:
        raise refused(what, error, **details) from error


def refused(what: str, error: BaseException, **details: object) -> StorageError:
    """The error of ours for one of ``REFUSALS``."""
    # SQLAlchemy's own text has the statement and its values in it.
    original = getattr(error, "orig", None)
    reason = str(original or error).strip().partition("\n")[0][:300]
    errno = error.errno if isinstance(error, OSError) else None
    return StorageError(what, errno=errno, reason=reason or type(error).__name__, **details)


def split_name(text: str) -> tuple[str, tuple[str, ...]]:
    """The catalog and the table that ``CATALOG.NAMESPACE.TABLE`` names; namespaces may be nested.

    Raises:
        ConfigError: it is no such name.
    """
    catalog, *table = text.split(".")
    if len(table) < 2 or not all((catalog, *table)):
        raise ConfigError(
            "not the name of a table",
            option="--iceberg",
            value=text,
            form="CATALOG.NAMESPACE.TABLE",
        )
    return catalog, tuple(table)


def opened_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog of that name, as PyIceberg's configuration has it.

    Args:
        properties: of the catalog, over those of the configuration.

    Raises:
        ConfigError: PyIceberg is another one, or nothing or something wrong is said of the catalog,
            or it is of a kind that is not taken.
        StorageError: it does not answer.
    """
    check_version()
    known = dict(properties)
    try:
        configured = Config().get_catalog_config(name) or {}
        known = {**{key: str(value) for key, value in configured.items()}, **known}
        kind = known.get("type") or str(infer_catalog_type(name, dict(known)).value)  # type: ignore[union-attr]
    except (ValueError, YAMLError) as error:
        uri = known.get("uri", "")
        _check_not_of_java(name, uri)
        # An address may have a password in it.
        reason = str(error).replace(uri, "…") if uri else str(error)
        raise ConfigError(
            "catalog is not described: .pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI, or"
            " --catalog-property uri=...",
            catalog=name,
            reason=" ".join(reason.split())[:300],
        ) from None
    if kind.lower() not in KINDS:
        raise ConfigError(
            "no such kind of catalog is taken", catalog=name, type=kind, allowed=list(KINDS)
        )
    more = dict(properties)
    if "py-io-impl" not in known and local_path(known.get("warehouse", "none:")):
        more["py-io-impl"] = f"{SyncedFileIO.__module__}.{SyncedFileIO.__name__}"
    try:
        with asked("catalog not opened", catalog=name):
            return load_catalog(name, **more)
    except (ImportError, NotInstalledError, ValueError) as error:
        raise ConfigError(
            "catalog not opened: what its kind needs is not installed, or a property is wrong",
            catalog=name,
            reason=str(error)[:300],
        ) from error


def _check_not_of_java(name: str, uri: str) -> None:
    """Whether an address is one that Spark takes of the same catalog, and PyIceberg does not.

    Raises:
        ConfigError: it is.
    """
    if uri.startswith("jdbc:"):
        raise ConfigError(
            "catalog's uri is one for Java: write it as SQLAlchemy does",
            catalog=name,
            allowed=["postgresql+psycopg://USER@HOST/DATABASE", "sqlite:///FILE"],
        )


class HonestCatalog:
    """A catalog that says of a commit that it failed only when it has not been made.

    An answer that is lost on its way may be asked for once more, below PyIceberg; the catalog finds
    the table changed then, by the commit itself, and says that it failed. PyIceberg would delete
    the files that the new snapshot consists of.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit through the catalog; where it says that the commit failed, look whether it was
        made.

        Raises:
            CommitFailedException: the table was changed meanwhile, and nothing was added.
        """
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException:
            found = self._catalog.load_table(table.name())
            added = [one.snapshot for one in updates if isinstance(one, AddSnapshotUpdate)]
            if not added or any(
                found.metadata.snapshot_by_id(one.snapshot_id) is None for one in added
            ):
                raise
            return CommitTableResponse.model_validate(
                {"metadata": found.metadata, "metadata-location": found.metadata_location}
            )


def opened_table(catalog: Catalog, path: tuple[str, ...], *, name: str, may_make: bool) -> Table:
    """The table.

    Args:
        path: namespaces and the table.
        name: for errors.
        may_make: it is made where there is none.

    Raises:
        ConfigError: there is none, or no room for it: the catalog names no place for tables.
        CorruptLogError: its metadata cannot be read.
        StorageError: the catalog does not answer, or refuses.
    """
    with asked("table not opened", table=name):
        try:
            return catalog.load_table(path)
        except NoSuchTableError as error:
            if not may_make:
                raise ConfigError("no such table", table=name) from error
        except (ValidationError, ValueError) as error:
            raise CorruptLogError(
                "metadata of the table not read", table=name, reason=str(error)[:300]
            ) from error
        for length in range(1, len(path)):
            _make_namespace(catalog, path[:length])
        schema = new_schema()
        try:
            return catalog.create_table(
                path,
                schema,
                partition_spec=new_spec(schema),
                sort_order=new_order(schema),
                properties=TABLE_PROPERTIES,
            )
        except TableAlreadyExistsError:
            # Another run was faster.
            return catalog.load_table(path)
        except ValueError as error:
            raise ConfigError(
                "table not made: does the catalog have a warehouse?",
                table=name,
                reason=str(error)[:300],
            ) from error


def _make_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    if catalog.namespace_exists(namespace):
        return
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:
        # Another run was faster.
        return
