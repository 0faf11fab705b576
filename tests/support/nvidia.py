"""A library that answers as NVIDIA's does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# Four cards whose numbers are not in the order of the bus. The one with the handle 3 does not say who it is, the one with
# the handle 4 is split into two parts. What a card has on it stands in a file, so that it can change: "used pid pause_ms".
_SOURCE = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory2;
typedef struct { unsigned gpu, memory; } use;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; } pci;
typedef struct { unsigned pid; u64 memory; unsigned gi, ci; } process;
typedef struct { unsigned pid; u64 memory; } old_process;
static unsigned bus[] = {0, 0x81, 0x21, 0x41, 0x61};
static unsigned long n(void *h) { return (unsigned long)h; }
static void state(u64 *used, unsigned *pid) {
    unsigned pause = 0; *used = 0; *pid = 0;
    FILE *f = fopen(STATE, "r");
    if (f) { if (fscanf(f, "%llu %u %u", used, pid, &pause) < 3) pause = 0; fclose(f); }
    if (pause) usleep(pause * 1000); }
int nvmlInit_v2(void) { return INIT; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(unsigned long)(i + 1); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned size) {
    if (n(h) == 3) return 15;
    snprintf(s, size, n(h) >= 100 ? "MIG-%lu" : "GPU-%lu", n(h)); return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned size) { snprintf(s, size, "NVIDIA Fake"); return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, pci *p) {
    memset(p, 0, sizeof *p); p->bus = bus[n(h)]; snprintf(p->name, 32, "00000000:%02X:00.0", p->bus); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) {
    u64 used; unsigned pid; state(&used, &pid);
    m->total = 80ULL << 30; m->used = (615 + used) << 20; m->free = m->total - m->used; return n(h) == 4 ? 3 : 0; }
int nvmlDeviceGetUtilizationRates(void *h, use *u) { if (n(h) >= 100) return 3; u->gpu = 7; u->memory = 1; return 0; }
#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses(void *h, unsigned *count, old_process *p) {
    p[0].pid = 7; p[0].memory = 3 << 20; *count = 1; return 0; }
#else
int nvmlDeviceGetMemoryInfo_v2(void *h, memory2 *m) {
    u64 used; unsigned pid; state(&used, &pid);
    if (m->version != (sizeof *m | 2 << 24)) return 25;
    m->total = 80ULL << 30; m->reserved = 615 << 20; m->used = used << 20; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, process *p) {
    u64 used; unsigned pid, needed = n(h) == 1 ? 70 : 1; state(&used, &pid);
    if (n(h) >= 100) return 3;
    if (n(h) != 4 && !pid) needed = 0;
    if (*count < needed) { *count = needed; return 7; }
    for (unsigned i = 0; i < needed; i++) { p[i].pid = pid + i; p[i].memory = used << 20; p[i].gi = 5; p[i].ci = 0; }
    if (n(h) == 1 && needed) p[69].memory = ~0ULL;
    *count = needed; return 0; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *count, process *p) {
    if (n(h) != 2) return 3;
    p[0].pid = 1; p[0].memory = 30 << 20; *count = 1; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *later) { if (n(h) == 1) return 3; *now = *later = n(h) == 4; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **part) {
    if (i != 0 && i != 2) return 6;
    *part = (void *)(unsigned long)(100 + i); return 0; }
int nvmlDeviceGetGpuInstanceId(void *h, unsigned *id) { *id = n(h) == 100 ? 5 : 6; return 0; }
int nvmlDeviceGetP2PStatus(void *a, void *b, int caps, unsigned *status) { *status = LINKED && caps == 2 ? 0 : 2; return 0; }
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, unsigned *level) { *level = 40; return 0; }
#endif
"""


def library(folder: Path, *, init: int = 0, old: bool = False, linked: bool = False) -> str:
    """Compile the library; what is on its cards stands in `folder/state`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (folder / "nvml.c").write_text(_SOURCE)
    made = folder / f"nvml-{init}-{old:d}-{linked:d}.so"
    words = [f"-DINIT={init}", f"-DLINKED={linked:d}", f'-DSTATE="{folder / "state"}"', *(["-DOLD"] if old else [])]
    subprocess.run([compiler, "-shared", "-fPIC", "-w", *words, "-o", made, folder / "nvml.c"], check=True)
    return str(made)


def put(folder: Path, used_mb: int, pid: int, pause_ms: int = 0) -> None:
    """Change what is on the cards of the library."""
    (folder / "new").write_text(f"{used_mb} {pid} {pause_ms}")
    (folder / "new").rename(folder / "state")
