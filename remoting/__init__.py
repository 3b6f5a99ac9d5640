"""RocketMQ's remoting protocol, as bytes in and bytes out; it owns no socket and no clock."""
