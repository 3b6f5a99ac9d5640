"""RocketMQ's clients that are connected: who they are, their groups, what they are asked."""
