"""Make CUDA fail in many ways, each in a process of its own: `python3 tests/corpus/cuda.py > tests/corpus/cuda.jsonl`.

Needs torch and a GPU, and takes a minute. A failure of the program itself has no kind.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile

CASES = {
    "oom": "import torch\nx = torch.empty(1 << 46, device='cuda')",
    "oom-many": "import torch\nheld = []\nwhile True:\n    held.append(torch.empty(8 << 30, dtype=torch.uint8, device='cuda'))",
    "oom-share": "import torch\ntorch.cuda.set_per_process_memory_fraction(0.01)\nx = torch.empty(8 << 30, dtype=torch.uint8, device='cuda')",
    "oom-wrapped": "import torch\ntry:\n    torch.empty(1 << 46, device='cuda')\nexcept Exception as e:\n    raise RuntimeError('step 3 failed') from e",
    "ordinal": "import torch\ntorch.zeros(1, device='cuda:99')",
    "ordinal-set": "import torch\ntorch.cuda.set_device(99)",
    "assert": "import torch\nx = torch.zeros(4, device='cuda')\ni = torch.tensor([99], device='cuda')\nprint(x[i])\ntorch.cuda.synchronize()",
    "assert-nll": "import torch\nimport torch.nn.functional as F\nF.nll_loss(torch.randn(2, 3, device='cuda'), torch.tensor([9, 9], device='cuda'))\ntorch.cuda.synchronize()",
    "nodevice": ("CUDA_VISIBLE_DEVICES=", "import torch\ntorch.zeros(1).cuda()"),
    "nodevice-minus": ("CUDA_VISIBLE_DEVICES=-1", "import torch\ntorch.zeros(1, device='cuda')"),
    "nodevice-uuid": (
        "CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000000",
        "import torch\ntorch.zeros(1, device='cuda')",
    ),
    "nodevice-init": ("CUDA_VISIBLE_DEVICES=", "import torch\ntorch.cuda.init()"),
    "fork": "import os, torch\ntorch.zeros(1, device='cuda')\npid = os.fork()\nif pid == 0:\n    torch.zeros(1, device='cuda')\n    os._exit(0)\nraise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "fork-mp": "import multiprocessing as mp, sys, torch\ndef f():\n    torch.zeros(1, device='cuda')\ntorch.zeros(1, device='cuda')\np = mp.get_context('fork').Process(target=f)\np.start(); p.join(); sys.exit(p.exitcode)",
    "illegal": (
        "",
        "import ctypes, torch\ntorch.zeros(1, device='cuda')\ncu = ctypes.CDLL('libcuda.so.1')\n"
        "ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() {\\n.reg .b64 %a; .reg .b32 %v;\\nmov.u64 %a, 0x10; mov.u32 %v, 1;\\nst.global.u32 [%a], %v;\\nret;\\n}\\n\\0'\n"
        "m, f = ctypes.c_void_p(), ctypes.c_void_p()\nprint(cu.cuModuleLoadData(ctypes.byref(m), ptx), cu.cuModuleGetFunction(ctypes.byref(f), m, b'k'))\n"
        "print(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None))\ntorch.cuda.synchronize()",
    ),
    "misaligned": (
        "",
        "import ctypes, torch\nx = torch.zeros(64, device='cuda')\ncu = ctypes.CDLL('libcuda.so.1')\n"
        "ptx = ('.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() {\\n.reg .b64 %a; .reg .b32 %v;\\nmov.u64 %a, ' + str(x.data_ptr() + 1) + '; mov.u32 %v, 1;\\nst.global.u32 [%a], %v;\\nret;\\n}\\n\\0').encode()\n"
        "m, f = ctypes.c_void_p(), ctypes.c_void_p()\ncu.cuModuleLoadData(ctypes.byref(m), ptx); cu.cuModuleGetFunction(ctypes.byref(f), m, b'k')\n"
        "cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)\ntorch.cuda.synchronize()",
    ),
    "trap": (
        "",
        "import ctypes, torch\ntorch.zeros(1, device='cuda')\ncu = ctypes.CDLL('libcuda.so.1')\n"
        "ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() {\\ntrap;\\nret;\\n}\\n\\0'\n"
        "m, f = ctypes.c_void_p(), ctypes.c_void_p()\ncu.cuModuleLoadData(ctypes.byref(m), ptx); cu.cuModuleGetFunction(ctypes.byref(f), m, b'k')\n"
        "cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)\ntorch.cuda.synchronize()",
    ),
    "illegal-instruction-shared": (
        "",
        "import ctypes, torch\ntorch.zeros(1, device='cuda')\ncu = ctypes.CDLL('libcuda.so.1')\n"
        "ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() {\\n.reg .b32 %a; .reg .b32 %v;\\nmov.u32 %a, 0x7fffff00; mov.u32 %v, 1;\\nst.shared.u32 [%a], %v;\\nret;\\n}\\n\\0'\n"
        "m, f = ctypes.c_void_p(), ctypes.c_void_p()\ncu.cuModuleLoadData(ctypes.byref(m), ptx); cu.cuModuleGetFunction(ctypes.byref(f), m, b'k')\n"
        "cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)\ntorch.cuda.synchronize()",
    ),
    "cublas-dtype": "import torch\na = torch.zeros(2, 3, device='cuda')\nb = torch.zeros(4, 5, device='cuda')\na @ b",
    "cublas-alloc": "import torch\nfree, total = torch.cuda.mem_get_info()\nheld = []\nsize = 1 << 30\nwhile size > 1 << 16:\n    try:\n        held.append(torch.empty(size, dtype=torch.uint8, device='cuda'))\n    except RuntimeError:\n        size //= 2\ntorch._C._cuda_clearCublasWorkspaces()\na = held[-1][:16].view(torch.float16).reshape(2, 4)\na @ a.T",
    "cublas-poisoned": "import torch\nx = torch.zeros(4, device='cuda')\nx[torch.tensor([99], device='cuda')]\na = torch.randn(64, 64, device='cuda')\n(a @ a).sum().item()",
    "host-pinned": "import torch\ntorch.empty(1 << 46, dtype=torch.uint8, pin_memory=True)",
    "ctypes-nodriver": "import ctypes\nctypes.CDLL('libcuda-missing.so.1')",
    "nccl-single": "import torch, torch.distributed as d\nd.init_process_group('nccl', init_method='tcp://127.0.0.1:29511', rank=0, world_size=2, timeout=__import__('datetime').timedelta(seconds=5))",
    "shape": "import torch\ntorch.zeros(2, 3, device='cuda') + torch.zeros(4, 5, device='cuda')",
    "mixed-device": "import torch\ntorch.zeros(2, device='cuda') + torch.ones(2, 2)[0]@torch.ones(2, device='cuda')",
}

KINDS = {
    "oom": "out_of_memory", "cublas-alloc": "out_of_memory", "host-pinned": "out_of_memory",
    "nodevice": "environment_failed", "trap": "environment_failed",
}  # fmt: skip


def main():
    version = importlib.metadata.version("torch")
    with tempfile.TemporaryDirectory() as folder:
        for name, case in sorted(CASES.items()):
            env, code = case if isinstance(case, tuple) else ("", case)
            path = os.path.join(folder, "agent.py")
            with open(path, "w") as file:
                file.write(code + "\n")
            extra = dict([env.split("=", 1)]) if env else {}
            try:
                done = subprocess.run(
                    [sys.executable, path],
                    cwd=folder,
                    env={**os.environ, **extra},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    timeout=120,
                    check=False,
                )
                status, said = done.returncode, done.stderr
            except subprocess.TimeoutExpired as late:
                status, said = None, late.stderr or b""
            text = said[-20000:].decode("utf-8", "replace").replace(folder, "/home/me/agent")
            for place in sorted({p for p in sys.path if p.endswith(("-packages",))}, key=len, reverse=True):
                text = text.replace(place, "/opt/venv/lib/python3.12/site-packages")
            kind = KINDS.get(name.split("-")[0], KINDS.get(name))
            row = {
                "id": f"cuda/{name}",
                "library": "torch",
                "version": version,
                "kind": kind,
                "status": status,
            }
            print(json.dumps({**row, "stderr": text}), flush=True)


if __name__ == "__main__":
    main()
