"""An endpoint on loopback that fails in every way that a client can meet.

The first part of the path names the failure: a client with the base address `http://127.0.0.1:PORT/rate` is told 429
whatever it asks for. The bodies are those of the provider whose client asks.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HTML = (
    "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    "<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
HANG_S = 60.0

# failure -> status, kind of error, the provider's words
ANSWERS = {
    "rate": (429, "rate_limit_exceeded", "Rate limit reached for requests per min. Please try again in 1s."),
    "server": (500, "server_error", "The server had an error while processing your request. Sorry about that!"),
    "gateway": (502, "bad_gateway", ""),
    "unavailable": (503, "overloaded", "The engine is currently overloaded, please try again later."),
    "late": (504, "gateway_timeout", "upstream request timeout"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "slow": (408, "request_timeout", "The request took too long."),
    "key": (401, "invalid_api_key", "Incorrect API key provided: sk-abcd. You can find your key in the settings."),
    "forbidden": (403, "permission_denied", "Your account does not have access to this resource."),
    "quota": (429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."),
    "credit": (402, "payment_required", "Insufficient balance: add credits to go on."),
    "model": (404, "model_not_found", "The model `gpt-none` does not exist or you do not have access to it."),
    "bad": (400, "invalid_request_error", "Invalid value for 'temperature': expected a number."),
    "context": (400, "context_length_exceeded", "This model's maximum context length is 8192 tokens."),
    "large": (413, "request_too_large", "Request exceeds the maximum size"),
    "missing": (404, "not_found", "No such page"),
    "unprocessable": (422, "unprocessable", "messages: field required"),
}  # fmt: skip
GOOGLE = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
AWS = {
    "rate": "ThrottlingException", "server": "InternalServerException", "unavailable": "ServiceUnavailableException",
    "late": "ModelTimeoutException", "key": "UnrecognizedClientException", "forbidden": "AccessDeniedException",
    "quota": "ServiceQuotaExceededException", "model": "ResourceNotFoundException", "bad": "ValidationException",
    "context": "ValidationException",
}  # fmt: skip


def body_of(failure: str, path: str) -> bytes:
    """What the provider says; its style follows from the path that its client asks for."""
    status, kind, words = ANSWERS[failure]
    if failure == "gateway":
        return HTML.encode()
    if "/v1/messages" in path:
        names = {"credit": "invalid_request_error", "quota": "rate_limit_error", "rate": "rate_limit_error", "server": "api_error",
                 "key": "authentication_error", "model": "not_found_error", "forbidden": "permission_error"}  # fmt: skip
        told: dict[str, object] = {"type": "error", "error": {"type": names.get(failure, kind), "message": words}}
    elif "generateContent" in path or "GenerateContent" in path:
        told = {"error": {"code": status, "message": words, "status": GOOGLE.get(status, "UNKNOWN")}}
    elif "/model/" in path:
        told = {"message": words}
    else:
        told = {"error": {"message": words, "type": kind, "param": None, "code": kind}}
    return json.dumps(told).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(size)
        self.answer()

    def answer(self) -> None:
        failure = self.path.split("/")[1]
        if failure == "hang":
            time.sleep(HANG_S)
        elif failure == "reset":
            # Closing with zero linger sends a reset instead of an end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif failure == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif failure == "cut":
            self.begin(200, "application/json", 4000)
            self.wfile.write(b'{"id": "x", "object"')
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif failure in ("streamcut", "streamhang", "streamerror"):
            self.stream(failure)
        else:
            body = body_of(failure, self.path)
            status = ANSWERS[failure][0]
            self.begin(status, "text/html" if failure == "gateway" else "application/json", len(body), failure)
            self.wfile.write(body)
        self.close_connection = True

    def begin(self, status: int, kind: str, size: int | None, failure: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if failure in AWS:
            self.send_header("x-amzn-ErrorType", AWS[failure])
        if size is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def stream(self, failure: str) -> None:
        """A few events of a streamed answer, and then trouble."""
        self.begin(200, "text/event-stream", None)
        if "/v1/messages" in self.path:
            first = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
                     "model": "x", "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}}  # fmt: skip
            self.chunk(f"event: message_start\ndata: {json.dumps(first)}\n\n")
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            trouble = f"event: error\ndata: {json.dumps(error)}\n\n"
        else:
            first = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x",
                     "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]}  # fmt: skip
            self.chunk(f"data: {json.dumps(first)}\n\n")
            words = "The server had an error while processing your request"
            trouble = f"data: {json.dumps({'error': {'message': words, 'type': 'server_error', 'code': None}})}\n\n"
        if failure == "streamerror":
            self.chunk(trouble)
            self.chunk("")
        elif failure == "streamhang":
            time.sleep(HANG_S)
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def serve(certificate: Path | None = None) -> int:
    """Start the endpoint, with TLS where there is a certificate. Returns its port."""
    server = Quiet(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def self_signed(folder: Path) -> Path:
    """A certificate that nobody trusts."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both
