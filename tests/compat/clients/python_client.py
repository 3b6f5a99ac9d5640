"""Produces and consumes with PyPI's ``rocketmq-client-python``, which binds the C++ library.

Arguments: name servers (host:port;host:port), topic, messages.
"""

import sys
import threading
import time

from rocketmq.client import (
    ConsumeStatus,
    Message,
    Producer,
    PushConsumer,
    SendStatus,
    TransactionMQProducer,
    TransactionStatus,
)

PATIENCE_S = 60.0


def made(topic: str, body: str) -> Message:
    message = Message(topic)
    message.set_keys(f"key-{body}")
    message.set_tags("TagA")
    message.set_body(body)
    return message


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            print("FAILED", what, flush=True)
            sys.exit(1)
        time.sleep(0.02)


def main() -> None:
    name_servers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    producer = Producer("python-producer")
    producer.set_name_server_address(name_servers)
    producer.start()
    for number in range(count):
        result = producer.send_sync(made(topic, f"py-{number}"))
        assert result.status == SendStatus.OK, result
    producer.send_oneway(made(topic, f"py-{count}"))
    print("sent", count + 1, flush=True)

    came: dict[str, int] = {}
    lock = threading.Lock()

    def take(message):
        body = message.body.decode()
        with lock:
            came[body] = came.get(body, 0) + 1
            again = body == "py-3" and came[body] == 1
        return ConsumeStatus.RECONSUME_LATER if again else ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(f"python-{topic}")
    consumer.set_name_server_address(name_servers)
    consumer.subscribe(topic, take, "TagA")
    consumer.start()
    wait_until(lambda: len(came) >= count + 1, f"consumption: {len(came)}")
    print("consumed", len(came), flush=True)
    wait_until(lambda: came["py-3"] >= 2, "the one that comes again")
    print("py-3 came", came["py-3"], "times", flush=True)

    teller = TransactionMQProducer(f"python-tx-{topic}", lambda message: TransactionStatus.COMMIT)
    teller.set_name_server_address(name_servers)
    teller.start()
    teller.send_message_in_transaction(
        made(topic, "py-committed"), lambda message, given: TransactionStatus.COMMIT, None
    )
    wait_until(lambda: "py-committed" in came, "the end of a transaction")
    print("transaction committed", flush=True)
    consumer.shutdown()
    teller.shutdown()
    producer.shutdown()


if __name__ == "__main__":
    main()
