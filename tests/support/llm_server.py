"""A small real server for tests, which behaves badly when it is told to. Standard library only: it is run on bare hosts too."""

from __future__ import annotations

import argparse
import http.server
import os
import signal
import socket
import subprocess
import sys
import time

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB"


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            print(f"Traceback (most recent call last):\nRuntimeError: the engine died with {OOM}", flush=True)
            os._exit(1)
        if self.path == "/hang":
            time.sleep(600)
        if self.path == "/killed":
            os.kill(os.getpid(), signal.SIGKILL)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"tokens")

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


class Selfish(http.server.HTTPServer):
    """Shares its port with nobody, not even with one that does not listen."""

    allow_reuse_address = False


def leave_a_child() -> None:
    """Double fork: a process in a session of its own, whose parent is gone, and which does not mind SIGTERM."""
    program = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen([sys.executable, "-c", program])
        os._exit(0)
    os.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--behave", default="well")
    parser.add_argument("--tp", type=int, choices=[1, 2, 4], default=1)
    parser.add_argument("--load", type=float, default=0.0)
    known = parser.parse_args()
    print(f"loading on port {known.port}", flush=True)
    if known.behave == "oom":
        sys.exit(OOM)
    if known.behave == "hub":
        sys.exit("huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo")
    if known.behave == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if known.behave == "fork":
        leave_a_child()
    until = time.monotonic() + known.load
    while time.monotonic() < until:
        print("loading a shard", flush=True)
        time.sleep(0.1)
    if known.behave == "hang":
        time.sleep(600)
    kind = Selfish if known.behave == "selfish" else http.server.ThreadingHTTPServer
    server = kind(("127.0.0.1", known.port), Answers)
    if known.behave == "late":  # listens, and lets everybody wait
        server.socket.settimeout(None)
        time.sleep(600)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    server.serve_forever()


if __name__ == "__main__":
    main()
