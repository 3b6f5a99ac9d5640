#!/bin/sh
exec /usr/lib/ledgermq/bin/python3 -I -m ledgermq.cli.main serve "$@"
