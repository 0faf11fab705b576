"""Programs as people write them: each calls an endpoint through a real client library, and fails in one of many styles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

# library -> the program's `call`; URL is the endpoint with its failure
CALLS = {
    "openai": """
import openai
client = openai.OpenAI(base_url=URL + "/v1", api_key="sk-abcd", max_retries=0, timeout=1)
def call():
    return client.chat.completions.create(model="gpt-none", messages=[{"role": "user", "content": "hi"}])
""",
    "openai-responses": """
from openai import OpenAI
client = OpenAI(base_url=URL + "/v1", api_key="sk-abcd", max_retries=1, timeout=1)
def call():
    return client.responses.create(model="gpt-none", input="hi").output_text
""",
    "openai-async": """
import asyncio
from openai import AsyncOpenAI
async def ask():
    client = AsyncOpenAI(base_url=URL + "/v1", api_key="sk-abcd", max_retries=0, timeout=1)
    return await client.chat.completions.create(model="gpt-none", messages=[{"role": "user", "content": "hi"}])
def call():
    return asyncio.run(ask())
""",
    "openai-stream": """
import openai
client = openai.OpenAI(base_url=URL + "/v1", api_key="sk-abcd", max_retries=0, timeout=1)
def call():
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
    return "".join(part.choices[0].delta.content or "" for part in answer)
""",
    "anthropic": """
import anthropic
client = anthropic.Anthropic(base_url=URL, api_key="sk-abcd", max_retries=0, timeout=1)
def call():
    return client.messages.create(model="claude-none", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
""",
    "anthropic-async": """
import asyncio, anthropic
async def ask():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="sk-abcd", max_retries=0, timeout=1) as client:
        return await client.messages.create(model="c", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
def call():
    return asyncio.run(ask())
""",
    "anthropic-stream": """
import anthropic
client = anthropic.Anthropic(base_url=URL, api_key="sk-abcd", max_retries=0, timeout=1)
def call():
    with client.messages.stream(model="c", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
        return stream.get_final_text()
""",
    "google-genai": """
from google import genai
from google.genai import types
client = genai.Client(api_key="abcd", http_options=types.HttpOptions(base_url=URL, timeout=1000))
def call():
    return client.models.generate_content(model="gemini-none", contents="hi").text
""",
    "google-genai-async": """
import asyncio
from google import genai
from google.genai import types
async def ask():
    client = genai.Client(api_key="abcd", http_options=types.HttpOptions(base_url=URL, timeout=1000))
    return await client.aio.models.generate_content(model="gemini-none", contents="hi")
def call():
    return asyncio.run(ask()).text
""",
    "litellm": """
import litellm
def call():
    return litellm.completion(model="openai/gpt-none", api_base=URL + "/v1", api_key="sk-abcd", timeout=1, max_retries=0,
                              messages=[{"role": "user", "content": "hi"}])
""",
    "litellm-anthropic": """
import litellm
def call():
    return litellm.completion(model="anthropic/claude-none", api_base=URL, api_key="sk-abcd", timeout=1, max_retries=0,
                              messages=[{"role": "user", "content": "hi"}])
""",
    "httpx": """
import httpx
def call():
    answer = httpx.post(URL + "/v1/chat/completions", json={"model": "m"}, timeout=1)
    answer.raise_for_status()
    return answer.json()
""",
    "httpx-async": """
import asyncio, httpx
async def ask():
    async with httpx.AsyncClient(base_url=URL, timeout=1) as client:
        answer = await client.post("/v1/chat/completions", json={"model": "m"})
        return answer.raise_for_status().json()
def call():
    return asyncio.run(ask())
""",
    "httpx-stream": """
import httpx
def call():
    with httpx.stream("POST", URL + "/v1/chat/completions", json={"stream": True}, timeout=1) as answer:
        answer.raise_for_status()
        return list(answer.iter_lines())
""",
    "requests": """
import requests
def call():
    answer = requests.post(URL + "/v1/chat/completions", json={"model": "m"}, timeout=1)
    answer.raise_for_status()
    return answer.json()
""",
    "requests-session": """
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry
session = requests.Session()
retry = Retry(total=2, backoff_factor=0.01, status_forcelist=[429, 500, 502, 503, 504], allowed_methods=None)
session.mount("http://", HTTPAdapter(max_retries=retry))
session.mount("https://", HTTPAdapter(max_retries=retry))
def call():
    answer = session.post(URL + "/v1/chat/completions", json={"model": "m"}, timeout=1)
    answer.raise_for_status()
    return answer.json()
""",
    "requests-stream": """
import requests
def call():
    with requests.post(URL + "/v1/chat/completions", json={"stream": True}, timeout=1, stream=True) as answer:
        answer.raise_for_status()
        return list(answer.iter_lines())
""",
    "urllib3": """
import urllib3
http = urllib3.PoolManager(timeout=1.0, retries=False)
def call():
    return http.request("POST", URL + "/v1/chat/completions", json={"model": "m"}).json()
""",
    "urllib3-retry": """
import urllib3
http = urllib3.PoolManager(timeout=1.0, retries=urllib3.Retry(2, backoff_factor=0.01, status_forcelist=[429, 500, 503]))
def call():
    return http.request("GET", URL + "/v1/models").json()
""",
    "urllib": """
import json, urllib.request
def call():
    request = urllib.request.Request(URL + "/v1/chat/completions", json.dumps({"model": "m"}).encode())
    with urllib.request.urlopen(request, timeout=1) as answer:
        return json.load(answer)
""",
    "http.client": """
import http.client, json, urllib.parse
def call():
    where = urllib.parse.urlsplit(URL)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.hostname, where.port, timeout=1)
    connection.request("POST", where.path + "/v1/chat/completions", "{}")
    return json.loads(connection.getresponse().read())
""",
    "aiohttp": """
import asyncio, aiohttp
async def ask():
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
        async with session.post(URL + "/v1/chat/completions", json={"model": "m"}) as answer:
            answer.raise_for_status()
            return await answer.json()
def call():
    return asyncio.run(ask())
""",
    "aiohttp-session": """
import asyncio, aiohttp
async def ask():
    session = aiohttp.ClientSession(raise_for_status=True, timeout=aiohttp.ClientTimeout(sock_connect=1, sock_read=1))
    answer = await session.get(URL + "/v1/models")
    return await answer.text()
def call():
    return asyncio.run(ask())
""",
    "botocore": """
import boto3
from botocore.config import Config
client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=URL, aws_access_key_id="a",
    aws_secret_access_key="b", config=Config(retries={"max_attempts": 1}, read_timeout=1, connect_timeout=1))
def call():
    return client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])
""",
    "azure-ai-inference": """
from azure.ai.inference import ChatCompletionsClient
from azure.core.credentials import AzureKeyCredential
client = ChatCompletionsClient(endpoint=URL, credential=AzureKeyCredential("abcd"), connection_timeout=1, read_timeout=1,
    retry_total=0)
def call():
    return client.complete(messages=[{"role": "user", "content": "hi"}])
""",
    "azure-core": """
from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy
from azure.core.rest import HttpRequest
client = PipelineClient(URL, policies=[RetryPolicy(retry_total=1, retry_backoff_factor=0.01)])
def call():
    answer = client.send_request(HttpRequest("GET", URL + "/v1/models"), connection_timeout=1, read_timeout=1)
    answer.raise_for_status()
    return answer.json()
""",
}  # fmt: skip

# how the program ends when its call raises
STYLES = {
    "uncaught": """
print(call())
""",
    "from": """
class AgentError(Exception):
    pass
def step():
    try:
        return call()
    except Exception as error:
        raise AgentError("step 3 failed") from error
step()
""",
    "during": """
def step():
    try:
        return call()
    except Exception:
        raise RuntimeError("the model gave no answer")
step()
""",
    "logged": """
import logging, sys
logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
try:
    call()
except Exception:
    logging.exception("agent failed at step %d", 3)
    sys.exit(1)
""",
    "printed": """
import sys
try:
    call()
except Exception as error:
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(1)
""",
    "typed": """
import sys
try:
    call()
except Exception as error:
    sys.exit(f"agent: {type(error).__name__}: {error}")
""",
    "error-log": """
import logging, sys
logging.basicConfig()
try:
    call()
except Exception as error:
    logging.error("request failed: %s", error)
    sys.exit(2)
""",
    "tenacity": """
import tenacity
tenacity.retry(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(0.01))(call)()
""",
    "tenacity-reraise": """
import tenacity
tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(0.01), reraise=True)(call)()
""",
    "own-retry": """
import time
for attempt in range(3):
    try:
        call()
        break
    except Exception as error:
        print("attempt", attempt, "failed:", error, flush=True)
        time.sleep(0.01)
        if attempt == 2:
            raise
""",
    "thread": """
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print([future.result() for future in [pool.submit(call), pool.submit(call)]])
""",
    "print-exc": """
import sys, traceback
try:
    call()
except BaseException:
    traceback.print_exc()
    print("giving up", file=sys.stderr)
    sys.exit(1)
""",
}  # fmt: skip

FAILED = ("rate", "server", "gateway", "unavailable", "late", "overloaded", "slow", "hang", "reset", "close", "refuse", "dns",
          "tls", "cut")  # fmt: skip
REFUSED = ("key", "forbidden", "quota", "credit")
STREAMED = ("streamcut", "streamhang", "streamerror")
OWN = ("bad", "context", "large", "missing", "unprocessable")
MODELS = ("openai", "openai-async", "anthropic", "google-genai", "litellm")
# These look at no status, or answer 404 and 400 by themselves: what they say then is another story.
NO_STATUS = ("urllib3", "http.client")
WITHOUT = {
    ("openai-stream", "cut"), ("anthropic-stream", "cut"), ("httpx-stream", "streamerror"), ("requests-stream", "streamerror"),
}  # fmt: skip


def drawn(name: str, among: int) -> int:
    """A number below `among` that depends on the name only."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % among


def failures_of(library: str) -> Iterator[tuple[str, str]]:
    """Each failure that the library can meet, with the kind that it is."""
    network = ("hang", "reset", "close", "refuse", "dns", "tls", "cut")
    for failure in FAILED:
        if library in NO_STATUS and failure not in network:
            continue
        if library == "urllib3-retry" and failure not in (*network, "rate", "server", "unavailable"):
            continue
        yield failure, "service_failed"
    if library not in NO_STATUS and library != "urllib3-retry":
        for failure in REFUSED:
            # A plain HTTP client does not show the body that says why it was 429.
            plain = library.split("-", maxsplit=1)[0] in ("httpx", "requests", "urllib", "aiohttp")
            yield failure, "service_failed" if plain and failure == "quota" else "service_refused"
    if library in MODELS:
        yield "model", "service_refused"
    if library.endswith("-stream"):
        for failure in STREAMED:
            yield failure, "service_failed"


def programs() -> Iterator[tuple[str, str, str, str, str]]:
    """Id, library, failure, kind and source of each program: a third of all pairs, uncaught or in another style."""
    others = [style for style in STYLES if style != "uncaught"]
    for library, call in CALLS.items():
        for failure, kind in failures_of(library):
            if (library, failure) in WITHOUT:
                continue
            styles = ["uncaught", others[drawn(f"{library}/{failure}", len(others))]]
            for style in styles:
                name = f"{library}/{failure}/{style}"
                if drawn(name + "/kept", 3) == 0:
                    yield name, library, failure, kind, f"import os\nURL = os.environ['URL']\n{call}\n{STYLES[style]}"
