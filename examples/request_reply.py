"""Ask for a price, and wait for the answer.

python examples/request_reply.py ipc:///run/ledgermq
"""

from __future__ import annotations

import sys
import threading

from ledgermq.client import Consumer, Producer, Requester, asks_for_reply

TOPIC = "prices"
PRICES = {b"tea": b"3", b"coffee": b"4"}


def serve(address: str, begin: dict[int, int], stop: threading.Event) -> None:
    """Answer requests; one that nobody waits for any more is passed over."""
    with Producer(address) as producer, Consumer(address, topic=TOPIC, start=begin) as consumer:
        while not stop.is_set():
            for message in consumer.poll(0.2):
                if asks_for_reply(message):
                    producer.reply(message, PRICES.get(bytes(message.body), b"not sold"))


def main() -> None:
    """Ask for three prices, and print them."""
    address = sys.argv[1]
    with Producer(address) as producer:
        stored = producer.send(TOPIC, b"opening").result()
    stop = threading.Event()
    server = threading.Thread(target=serve, args=(address, {stored.queue_id: 0}, stop))
    server.start()
    try:
        with Requester(address) as requester:
            for goods in (b"tea", b"coffee", b"gold"):
                reply = requester.request(TOPIC, goods, timeout=30.0)
                print(goods.decode(), bytes(reply.body).decode())
    finally:
        stop.set()
        server.join()


if __name__ == "__main__":
    main()
