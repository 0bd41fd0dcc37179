"""An S3-compatible server on the loopback, for tests: buckets that a corpus is uploaded to, and who may read them."""

from __future__ import annotations

import contextlib
import logging
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEY, SECRET = "AKIAOFTHETEST", "hunter2OfTheTest/+"


@contextlib.contextmanager
def serving() -> Iterator[dict[str, str]]:
    """A server; gives the environment variables by which the standard credential chain finds it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    # What one server held is there in the next of the same process, until it is told to forget.
    urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/reset", data=b"").close()
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        server.stop()


def client_of(environment: dict[str, str]) -> Any:
    """A client of the server, to be closed."""
    return boto3.client(
        "s3", endpoint_url=environment["AWS_ENDPOINT_URL"], aws_access_key_id=KEY, aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )  # fmt: skip


def upload(folder: Path, bucket: str, environment: dict[str, str]) -> None:
    """Put every file of a folder into a new bucket, under its path in the folder."""
    client = client_of(environment)
    client.create_bucket(Bucket=bucket)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=path.relative_to(folder).as_posix(), Body=path.read_bytes())
    client.close()


def clean_environment(environment: dict[str, str]) -> dict[str, str]:
    """This process's environment with ``environment`` instead of any credentials of its own."""
    return {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | environment
