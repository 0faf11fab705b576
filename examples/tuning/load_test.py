"""Sends requests to the server of its trial, as many at a time as it is told, and writes how fast they were answered."""

import argparse
import http.client
import json
import os
import threading
import time
from urllib.parse import urlsplit

parser = argparse.ArgumentParser()
parser.add_argument("--clients", type=int, default=8)
parser.add_argument("--requests", type=int, default=6, help="of each client")
flags = parser.parse_args()

where = urlsplit(os.environ["EVALFLEET_SERVER_URL"]).netloc
times = []


def client():
    connection = http.client.HTTPConnection(where, timeout=30)
    for number in range(flags.requests):
        begun = time.perf_counter()
        connection.request("POST", "/generate", body=json.dumps({"prompt": "hello"}))
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"the server answers {answer.status}")
        if number:  # the first is the warm-up
            times.append(time.perf_counter() - begun)
        connection.close()


begun = time.perf_counter()
threads = [threading.Thread(target=client) for _ in range(flags.clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
took_s = time.perf_counter() - begun
if len(times) < flags.clients * (flags.requests - 1):
    raise SystemExit("some requests failed")
times.sort()
metrics = {
    "requests_s": round(flags.clients * flags.requests / took_s, 2),
    "p50_ms": round(1000 * times[len(times) // 2], 2),
    "p99_ms": round(1000 * times[int(len(times) * 0.99)], 2),
}
with open(os.environ["EVALFLEET_RESULT"], "w") as file:
    json.dump({"success": True, "metrics": metrics}, file)
