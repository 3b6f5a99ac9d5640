"""Options of jobs on tables of Apache Iceberg: the table, and its catalog."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ledgermq.cli.arguments import takes
from ledgermq.model.errors import ConfigError

if TYPE_CHECKING:
    from ledgermq.pipeline.tables.iceberg_table import IcebergTable


def add_catalog_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take properties of a catalog."""
    takes(
        parser,
        "--catalog-property NAME=VALUE",
        "of the catalog, over PyIceberg's configuration",
        action="append",
        default=[],
    )


def opened_table(name: str, arguments: argparse.Namespace, *, may_make: bool) -> IcebergTable:
    """The table that is named, in a catalog with the properties that ``arguments`` give.

    Args:
        may_make: it is made where there is none.

    Raises:
        LedgerError: PyIceberg is missing, or does not read its configuration; or as opening it.
    """
    try:
        # PyIceberg, and what it brings, may be missing.
        from strictyaml import YAMLError

        try:
            from ledgermq.pipeline.tables.iceberg_table import IcebergTable
        except YAMLError as error:
            # PyIceberg reads it when it is imported.
            reason = " ".join(str(error).split())[:300]
            raise ConfigError("not read: .pyiceberg.yaml", reason=reason) from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            "tables need PyIceberg: pip install 'ledgermq[iceberg]'",
            option="--iceberg",
            missing=error.name,
        ) from error
    return IcebergTable.at(name, _catalog_properties(arguments), may_make=may_make)


def _catalog_properties(arguments: argparse.Namespace) -> dict[str, str]:
    """Properties of the catalog that are given on the command line.

    Raises:
        ConfigError: one cannot be read.
    """
    found = {}
    for text in arguments.catalog_property:
        name, equals, value = text.partition("=")
        if not (name and equals):
            # A value may be a key.
            raise ConfigError("must be NAME=VALUE", option="--catalog-property", value=name)
        found[name] = value
    return found
