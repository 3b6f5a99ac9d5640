"""RocketMQ's clients: a port of the broker process that speaks their protocol."""
