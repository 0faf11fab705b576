"""Stands in for an LLM server: HTTP, loading, batching, and a cache that must fit. Standard library only."""

import argparse
import http.server
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--max-num-seqs", type=int, default=8)
parser.add_argument("--chunked", action="store_true")
flags = parser.parse_args()

CACHE_MB, PER_SEQUENCE_MB = 4096, 64
loaded = threading.Event()
places = threading.Semaphore(flags.max_num_seqs)
lock, running = threading.Lock(), 0


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200 if loaded.is_set() else 503, b"")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with places:
            generate()
        self.answer(200, b"some tokens")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def generate():
    """A step takes longer with more sequences in it, but much less than one step for each of them would."""
    global running
    with lock:
        running += 1
    for _ in range(4):
        time.sleep(0.004 * (1 + running / (24 if flags.chunked else 8)))
    with lock:
        running -= 1


def load():
    for shard in range(1, 4):
        print(f"loading shard {shard} of 3", flush=True)
        time.sleep(0.05)
    needed = flags.max_num_seqs * PER_SEQUENCE_MB
    if needed > CACHE_MB:
        print(f"ValueError: KV cache of {needed} MB does not fit into {CACHE_MB} MB", flush=True)
        server.shutdown()
        sys.exit()
    loaded.set()
    print("ready", flush=True)


server = Server(("127.0.0.1", flags.port), Handler)
threading.Thread(target=load).start()
server.serve_forever()
sys.exit(0 if loaded.is_set() else 1)
