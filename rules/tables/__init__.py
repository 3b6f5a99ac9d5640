"""The broker's tables, one module each, with the file that RocketMQ has for it."""
