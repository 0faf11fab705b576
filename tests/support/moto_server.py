"""A real S3 server on loopback: moto's, with one bucket."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "a-key",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-see",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextmanager
def s3_server(bucket: str, port: int = 0) -> Iterator[str]:
    """Start one; gives its address."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()  # which the system chose
        address = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/{bucket}", method="PUT"), timeout=30).close()
        yield address
    finally:
        server.stop()
