module ledgermq.invalid/bench/nats

go 1.24

require github.com/nats-io/nats.go v1.55.0
