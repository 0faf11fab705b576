"""A small transformer for one NVIDIA GPU, and the ways to run it that are worth a search."""

import contextlib
import json
import os
import sys

try:
    import torch  # pyright: ignore[reportMissingImports] - nothing else here needs it
    from torch import nn  # pyright: ignore[reportMissingImports]
    from torch.nn import functional  # pyright: ignore[reportMissingImports]
except ImportError as error:
    sys.exit(f"this example needs PyTorch ({error}); install it with `pip install torch`")
if not torch.cuda.is_available():
    sys.exit("this example needs an NVIDIA GPU, and PyTorch finds none here; see `evalfleet gpus` and `nvidia-smi`")

LAYERS, WIDTH, HEADS, LENGTH = 8, 1024, 16, 256
CONTEXT_MB = 600  # what a process takes of the card before it allocates anything
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def network(dtype="float32"):
    """Always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)).to("cuda", DTYPES[dtype]).eval()


def prompts(batch, dtype="float32"):
    torch.manual_seed(1)
    return torch.randn(batch, LENGTH, WIDTH).to("cuda", DTYPES[dtype])


@contextlib.contextmanager
def attention(kind):
    """Which kernels attention may use: math, efficient or flash; auto lets PyTorch choose."""
    if kind == "auto":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel  # pyright: ignore[reportMissingImports]

    kinds = {
        "math": SDPBackend.MATH,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
    }
    with sdpa_kernel(kinds[kind]):
        yield


def keep_to_lease():
    """Where a trial was given a part of the card, take no more than that: CUDA itself would not mind."""
    given = [gpu.get("memory_mb") for gpu in json.loads(os.environ.get("EVALFLEET_GPUS") or "[]")]
    if given and given[0]:
        total_mb = torch.cuda.get_device_properties(0).total_memory / 2**20
        torch.cuda.set_per_process_memory_fraction(min(1.0, (given[0] - CONTEXT_MB) / total_mb))
