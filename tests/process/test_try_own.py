from __future__ import annotations
import shutil
from collections.abc import Callable
from ledgermq.client import Admin, Consumer, Producer, ShareConsumer
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S
import pytest
pytestmark = pytest.mark.slow

def test_own(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node)
    with Producer(node.address) as p:
        for n in range(10):
            p.send("orders", b"x%d" % n).result(PATIENCE_S)
    with ShareConsumer(node.address, group="sh", topic="orders") as c:
        for m in c.poll(2): c.accept(m)
        c.flush()
    assert node.stop() == 0
    saved = node.folder / "saved"
    shutil.copytree(node.root, saved, symlinks=True)
    files = sorted(p.relative_to(node.root) for p in node.root.rglob("*") if p.is_file() and ("ledgermq" in p.parts or p.suffix == "" and p.stat().st_size < 100000 and "set-aside" not in str(p)))
    files = [f for f in files if "consumequeue" not in str(f) and "/data/" not in str(f) and "/index/" not in str(f) and f.suffix not in (".json", ".bak")]
    print(files)
    for f in files:
        whole = (saved / f).read_bytes()
        for left in (b"", whole[: len(whole) // 2], bytes(len(whole))):
            if left == whole: continue
            shutil.rmtree(node.root)
            shutil.copytree(saved, node.root, symlinks=True)
            (node.root / f).write_bytes(left)
            node.log.write_text("")
            try:
                node.serve()
                with Admin(node.address) as a:
                    wait_until(lambda: a.topic("orders").messages == 10, "msgs", 20)
                node.stop()
                out = "ok"
            except BaseException as e:
                out = f"FAIL {type(e).__name__} {str(e)[:200]}"
                try: node.kill()
                except Exception: pass
            lines = [l for l in node.log.read_text().splitlines() if "CRITICAL" in l or "Traceback" in l or "bug" in l]
            print("TRY", f, len(left), out, lines[:3], flush=True)
