"""Producer and Consumer, synchronous and asyncio; needs only pyzmq."""
