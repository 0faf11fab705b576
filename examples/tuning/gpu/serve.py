"""The transformer behind HTTP: requests are gathered into batches. See served.toml."""

import argparse
import http.server
import queue
import threading

from model import DTYPES, keep_to_lease, network, prompts, torch

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
parser.add_argument("--max-batch", type=int, default=1)
parser.add_argument("--cache-gb", type=float, default=1.0, help="reserved at the start, as LLM servers do")
flags = parser.parse_args()

waiting = queue.SimpleQueue()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        done = threading.Event()
        waiting.put(done)
        done.wait()
        self.answer(b"tokens")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def gathered():
    """At least one request, and those that wait already."""
    batch = [waiting.get()]
    while len(batch) < flags.max_batch:
        try:
            batch.append(waiting.get(timeout=0.001))
        except queue.Empty:
            break
    return batch


@torch.inference_mode()
def work():
    while True:
        batch = gathered()
        net(inputs[: len(batch)])
        torch.cuda.synchronize()
        for done in batch:
            done.set()


with torch.inference_mode():
    keep_to_lease()
    net, inputs = network(flags.dtype), prompts(flags.max_batch, flags.dtype)
    cache = torch.empty(int(flags.cache_gb * 2**30), dtype=torch.uint8, device="cuda")
    net(inputs)
    torch.cuda.synchronize()
print(f"ready: {torch.cuda.memory_allocated() / 2**30:.1f} GiB", flush=True)
threading.Thread(target=work, daemon=True).start()
Server(("127.0.0.1", flags.port), Handler).serve_forever()
