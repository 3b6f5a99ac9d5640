#!/bin/sh
# What the image runs: a command of ledgermq's if one is given, else a node, by the settings that are mounted
# or by these, for tests on a network that nobody else is on.
#
#   LEDGERMQ_ID       of three nodes n0, n1 or n2; n0
#   LEDGERMQ_PEERS    members of a group, as "n0-HOST:10920", "n1-HOST:10920"; none
#   LEDGERMQ_ADDRESS  where RocketMQ's clients find it; the container's own, 127.0.0.1 where its ports are
#                     published on the host of the tests
#   LEDGERMQ_GRPC     a port for RocketMQ 5's gRPC clients, 8081, and where each member has it, as
#                     "n0=HOST:8081", "n1=HOST:8081"; none
set -eu
[ $# = 0 ] || exec ledgermq "$@"
config=/etc/ledgermq/node.toml
if [ ! -e "$config" ]; then
    config=/var/lib/ledgermq/node.toml
    cat >"$config" <<SETTINGS
[node]
self_id = "${LEDGERMQ_ID:-n0}"
peers = [${LEDGERMQ_PEERS:-}]
broker_ip = "${LEDGERMQ_ADDRESS:-$(hostname -i | cut -d ' ' -f 1)}"
[access]
admin_over_clients = true
[raft]
curve = false
direct_port = 10923
[listen]
produce = "tcp://*:10921"
consume = "tcp://*:10922"
remoting = "*:10911"
name_server = "*:9876"
http = "0.0.0.0:9464"
trusted_network = true
${LEDGERMQ_GRPC:+grpc = '*:8081'}
[grpc]
members = [${LEDGERMQ_GRPC:-}]
[retention]
refuse_above = "100%"
SETTINGS
fi
exec ledgermqd --config "$config"
