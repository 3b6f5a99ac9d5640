#!/bin/sh
# -I: neither the caller's folder nor its environment says which modules are imported.
exec /usr/lib/ledgermq/bin/python3 -I -m ledgermq.cli.main "$@"
