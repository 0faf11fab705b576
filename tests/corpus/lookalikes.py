"""Programs that fail by their own fault, and talk of trouble with services, disks or GPUs on the way.

None of them may be blamed on infrastructure. Those of `OWN_ANSWERS` ask a real endpoint through a real client, which says that the
request itself is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from clients import CALLS, OWN, STYLES, drawn

_GOT = "def get(failure=None):\n    import urllib.request\n    return urllib.request.urlopen(URL, timeout=1)\n"

# name -> failure of the endpoint that it asks (if any), source
SCRIPTS = {
    "keyerror-named": ("", "errors = {}\nerrors['ConnectionError']"),
    "keyerror-429": ("", "{}['HTTP Error 429: Too Many Requests']"),
    "keyerror-errno": ("", "{}['[Errno 111] Connection refused']"),
    "assert-429": ("", "status = 429\nassert status == 200, f'Error code: {status} - expected 200'"),
    "assert-message": ("", "said = 'openai.RateLimitError: Error code: 429'\nassert 'ok' in said, said"),
    "assert-http": ("", "assert False, 'HTTP Error 500: Internal Server Error'"),
    "valueerror-quoting": ("", "raise ValueError('cannot parse: HTTP Error 503: Service Unavailable')"),
    "own-ratelimit": ("", "class RateLimitError(Exception):\n    pass\nraise RateLimitError('429: slow down')"),
    "own-timeout": ("", "class APITimeoutError(Exception):\n    pass\nraise APITimeoutError('the window did not open in 30 s')"),
    "own-connection": ("", "class APIConnectionError(RuntimeError):\n    pass\nraise APIConnectionError('wire 4 is not connected')"),
    "own-module": ("", "import sys, types\nm = types.ModuleType('agent.errors')\nexec('class RateLimitError(Exception): pass', m.__dict__)\n"
                       "m.RateLimitError.__module__ = 'agent.errors'\nraise m.RateLimitError('more than 20 clicks per step')"),
    "own-server-error": ("", "class InternalServerError(Exception):\n    pass\nraise InternalServerError('the simulated shop is wrong')"),
    "timeout-own": ("", "raise TimeoutError('element #save was not there after 30 s')"),
    "timeout-bare": ("", "raise TimeoutError"),
    "timeout-asyncio": ("", "import asyncio\nasync def main():\n    await asyncio.wait_for(asyncio.sleep(9), 0.01)\nasyncio.run(main())"),
    "timeout-asyncio-context": ("", "import asyncio\nasync def main():\n    async with asyncio.timeout(0.01):\n        await asyncio.sleep(9)\nasyncio.run(main())"),
    "timeout-future": ("", "import concurrent.futures as f, time\npool = f.ThreadPoolExecutor(1)\npool.submit(time.sleep, 0.3).result(timeout=0.01)"),
    "timeout-process": ("", "import subprocess\nsubprocess.run(['sleep', '9'], timeout=0.01)"),
    "connectionerror-own": ("", "raise ConnectionError('nodes 3 and 7 of the graph are not connected')"),
    "connectionerror-bare": ("", "raise ConnectionError"),
    "eof": ("", "raise EOFError('no more input')"),
    "pipe": ("", "import multiprocessing as mp\na, b = mp.Pipe()\nb.close()\na.recv()"),
    "pipe-reset": ("", "import multiprocessing as mp, os\ndef child(c):\n    os._exit(3)\nif __name__ == '__main__':\n    a, b = mp.Pipe()\n"
                      "    p = mp.Process(target=child, args=(b,)); p.start(); b.close(); p.join()\n    a.send(1)\n    a.recv()"),
    "broken-pipe": ("", "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')"),
    "memory-of-words": ("", "raise RuntimeError('the agent ran out of memory cells (CUDA is not used)')"),
    "cuda-assert": ("", "raise RuntimeError('CUDA error: device-side assert triggered\\nCUDA kernel errors might be asynchronously reported')"),
    "cuda-ordinal": ("", "raise RuntimeError('CUDA error: invalid device ordinal')"),
    "cuda-illegal": ("", "raise RuntimeError('CUDA error: an illegal memory access was encountered')"),
    "cuda-shape": ("", "raise RuntimeError('mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)')"),
    "nonblocking": ("", "import os\nr, w = os.pipe()\nos.set_blocking(r, False)\nos.read(r, 1)"),
    "nofile": ("", "open('/nonexistent/docker.sock')"),
    "permission": ("", "import os\nos.chmod('.', 0o700)\nraise PermissionError(13, 'Permission denied', 'result.txt')"),
    "index": ("", "print('requests.exceptions.ConnectionError: retry', flush=True)\n[][3]"),
    "log-then-index": ("server", _GOT + "import logging, sys\nURL = __import__('os').environ['URL']\ntry:\n    get()\nexcept Exception:\n"
                                 "    logging.exception('first try failed')\nanswer = []\nprint(answer[0])"),
    "log-then-exit": ("rate", _GOT + "import logging, sys\nURL = __import__('os').environ['URL']\ntry:\n    get()\nexcept Exception:\n"
                              "    logging.exception('first try failed')\nsys.exit('the answer 41 is wrong: expected 42')"),
    "print-then-wrong": ("rate", _GOT + "import sys\nURL = __import__('os').environ['URL']\ntry:\n    get()\nexcept Exception as e:\n"
                                 "    print('retry after', e, file=sys.stderr)\nprint('checker: the file differs', file=sys.stderr)\nsys.exit(1)"),
    "handler-bug": ("server", _GOT + "URL = __import__('os').environ['URL']\ntry:\n    get()\nexcept Exception as e:\n    print(e.retry_after_seconds)"),
    "handler-key": ("refuse", _GOT + "URL = __import__('os').environ['URL']\ntry:\n    get()\nexcept Exception as e:\n    {}['fallback']"),
    "handler-type": ("rate", _GOT + "URL = __import__('os').environ['URL']\ntry:\n    get()\nexcept Exception as e:\n    'sorry: ' + 3"),
    "cached-404": ("missing", _GOT + "URL = __import__('os').environ['URL']\nget()"),
    "bad-url": ("", "import urllib.request\nurllib.request.urlopen('nonsense://x')"),
    "bad-url-requests": ("", "import requests\nrequests.get('no-scheme/x')"),
    "bad-url-httpx": ("", "import httpx\nhttpx.get('ftp://x')"),
    "bad-header": ("", "import requests\nrequests.get('http://127.0.0.1:1', headers={'x': 3})"),
    "no-json": ("", "import json\njson.loads('<html>502 Bad Gateway</html>')"),
    "no-json-httpx": ("", "import httpx\nhttpx.Response(200, text='<html>503 Service Unavailable</html>').json()"),
    "openai-argument": ("", "import openai\nopenai.OpenAI(api_key='k', base_url='http://127.0.0.1:1').chat.completions.create(model='m')"),
    "anthropic-argument": ("", "import anthropic\nanthropic.Anthropic(api_key='k').messages.create(model='m', messages=[])"),
    "boto-argument": ("", "import boto3\nboto3.client('bedrock-runtime', region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b').converse(modelId=3)"),
    "boto-unknown": ("", "import boto3\nboto3.client('no-such-service', region_name='us-east-1')"),
    "import": ("", "import openai.RateLimitError"),
    "import-from": ("", "from openai import RateLimitErrors"),
    "recursion": ("", "def connect():\n    connect()\nconnect()"),
    "exit-words": ("", "import sys\nsys.exit('score 0: the agent answered \"HTTP Error 500\" instead of 42')"),
    "exit-expected": ("", "import sys\nsys.exit('expected status 200, got Error code: 429')"),
    "exit-plain": ("", "import sys\nsys.exit('wrong answer')"),
    "exit-talk": ("", "import sys\nsys.exit('the page shows 503 Service Unavailable, the task wants the order number')"),
    "exit-disk-talk": ("", "import sys\nprint('tip: No space left on device means that the disk is full', file=sys.stderr)\nsys.exit('task failed: file not saved')"),
    "exit-docker-talk": ("", "import sys\nprint('docker: Cannot connect to the Docker daemon', file=sys.stderr)\nprint('using podman', file=sys.stderr)\nsys.exit('checker said no')"),
    "unittest-500": ("", "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual('HTTP Error 500: Internal Server Error', 'ok')\nunittest.main()"),
    "unittest-refused": ("", "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        with self.assertRaises(ConnectionRefusedError):\n            pass\nunittest.main()"),
    "pytest-429": ("", "import sys, pytest\nopen('test_x.py', 'w').write('def test():\\n    assert \"Error code: 429\" == \"\"\\n')\nsys.stdout = sys.stderr\nsys.exit(pytest.main(['-q', 'test_x.py']))"),
    "chained-own": ("", "try:\n    {}['RateLimitError']\nexcept KeyError as e:\n    raise RuntimeError('429 is no key') from e"),
    "disk-quoted": ("", "raise KeyError('No space left on device')"),
    "errno-quoted": ("", "raise ValueError('[Errno 28] No space left on device')"),
    "files-quoted": ("", "raise RuntimeError('too many open files in the menu: 9')"),
    "display-quoted": ("", "import sys\nsys.exit('the agent could not display the table')"),
    "bus-quoted": ("", "import sys\nsys.exit('failed: the bus to the airport was not booked')"),
    "gpu-quoted": ("", "raise ValueError('no GPU named in the spreadsheet; CUDA cores column is empty')"),
    "timeout-quoted": ("", "import sys\nsys.exit('login timed out: the password was wrong')"),
    "status-own": ("", "class ApiError(Exception):\n    pass\nraise ApiError('status 500 in row 3 of the table')"),
    "quota-own": ("", "class QuotaExceeded(Exception):\n    pass\nraise QuotaExceeded('the agent used 50 of 50 steps')"),
    "budget-own": ("", "raise RuntimeError('step budget used up')"),
    "401-own": ("", "raise RuntimeError('room 401 is not in the list')"),
    "timeout-words": ("", "raise TimeoutError('waiting for the element #save timed out')"),
    "timeout-runtime": ("", "raise RuntimeError('waiting for the window: timed out')"),
    "code-own": ("", "class AgentError(Exception):\n    pass\nraise AgentError('(timeout) the element is not there')"),
    "code-internal": ("", "raise RuntimeError('(internal) the plan has no next step')"),
    "status-code-own": ("", "class ShopError(Exception):\n    pass\nraise ShopError('the shop said no (status code: 500)')"),
    "display-settings": ("", "import sys\nsys.exit('could not open Display settings')"),
    "display-settings-raised": ("", "raise RuntimeError('Unable to open display settings of the monitor')"),
    "bus-airport": ("", "import sys\nsys.exit('Failed to connect to the airport bus')"),
    "certificate-talk": ("", "import sys\nsys.exit('the page has a self-signed certificate, and the agent did not go on')"),
    "disk-tip": ("", "import sys\nsys.exit('tip: No space left on device means that the disk is full')"),
    "pty": ("", "import os, pty\npid, fd = pty.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\nwhile True:\n    os.read(fd, 99)"),
    "syntax": ("", "def f(:\n    pass"),
    "unicode": ("", "b'\\xff429'.decode()"),
    "gaierror-word": ("", "raise RuntimeError('gaierror is not in the dictionary')"),
}  # fmt: skip
_ASKING = ("openai", "openai-async", "anthropic", "google-genai", "litellm", "httpx", "requests", "urllib", "aiohttp", "botocore",
           "azure-ai-inference")  # fmt: skip


def programs() -> Iterator[tuple[str, str, str]]:
    """Id, failure of the endpoint, source."""
    for name, (failure, source) in SCRIPTS.items():
        yield f"script/{name}", failure or "missing", source
    styles = ("uncaught", "from", "during", "logged", "printed", "tenacity-reraise", "error-log", "typed")
    for library in _ASKING:
        for failure in OWN:
            if failure in ("bad", "context") or not drawn(f"{library}/{failure}/own", 2):
                style = styles[drawn(f"{library}/{failure}/style", len(styles))]
                source = f"import os\nURL = os.environ['URL']\n{CALLS[library]}\n{STYLES[style]}"
                yield f"{library}/{failure}/{style}", failure, source
