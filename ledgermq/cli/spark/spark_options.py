"""Options that several of Spark's jobs take."""

from __future__ import annotations

import argparse

from ledgermq.model.units import MIB
from ledgermq.pipeline.job_defaults import SPLIT_BYTES


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take what all jobs take."""
    job = parser.add_argument_group("Spark")
    job.add_argument("--master", metavar="URL", help="local[*], or that of spark-submit")
    job.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    job.add_argument(
        "--split-mib",
        type=int,
        default=SPLIT_BYTES // MIB,
        metavar="N",
        help="MiB of the log for one task (%(default)s)",
    )
    job.add_argument("--json", action="store_true", help="print one JSON object")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take a store or a cluster, and topics."""
    parser.add_argument(
        "directories",
        nargs="*",
        metavar="DIRECTORY",
        help="storePathRootDir, as the workers see it, or those of several replicas; or --nodes",
    )
    parser.add_argument(
        "--nodes", metavar="ADDRESSES", help="of a running cluster, with commas between them"
    )
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--topics", metavar="NAMES", help="with commas; all but the system's")
    choice.add_argument("--pattern", metavar="REGEX", help="of whole names of topics")
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long a cluster may be away (default: 120)",
    )
