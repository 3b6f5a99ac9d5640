#!/usr/bin/env bash
# obstore 0.12.1: one key with an empty segment ends the listing of all others.
#
# S3 takes any key; programs that join folders by hand leave keys such as `p//two` behind. boto3 lists
# the bucket's three objects. obstore's `list` of the same prefix raises InvalidPathError (EmptySegment)
# and gives none of them, neither the two whose names are fine; the key cannot be named to obstore either,
# for its own paths take the empty segment out. So whoever lists a bucket that others write to with
# obstore needs another client for that bucket. Seen with moto's server on loopback.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    'obstore==0.12.1' 'moto[server]==5.1.4' 'boto3==1.38.0'
cat >"$folder/shown.py" <<'PY'
import logging

import boto3
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

logging.getLogger("werkzeug").disabled = True
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://127.0.0.1:{port}"
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
client = boto3.client("s3", endpoint_url=url, **keys)
client.create_bucket(Bucket="box")
for key in ("p/one", "p//two", "p/three"):
    client.put_object(Bucket="box", Key=key, Body=b"x")
listed = client.list_objects_v2(Bucket="box", Prefix="p/")["Contents"]
print("boto3:", sorted(row["Key"] for row in listed))
store = S3Store(
    "box", endpoint=url, access_key_id="a", secret_access_key="b", region="us-east-1",
    client_options={"allow_http": True}, virtual_hosted_style_request=False,
)
try:
    print("obstore:", sorted(row["path"] for row in store.list("p/").collect()))
except Exception as error:
    print("obstore:", type(error).__name__, "EmptySegment" in str(error))
server.stop()
PY
found=$("$folder/venv/bin/python" "$folder/shown.py" 2>/dev/null)
echo "$found"
wanted="boto3: ['p//two', 'p/one', 'p/three']
obstore: InvalidPathError True"
[ "$found" = "$wanted" ] || { echo "this has changed; expected:"; echo "$wanted"; exit 1; }
