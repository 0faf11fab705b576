"""One trial: how many tokens per second the transformer takes in, run as the parameters say. See study.toml."""

import json
import os
import statistics

with open(os.environ["EVALFLEET_TASK"]) as file:
    wanted = json.load(file)["payload"]["parameters"]

from model import LENGTH, attention, keep_to_lease, network, prompts, torch

WARM_UP, REPEATS, LEAST_MS = 10, 7, 300.0


def graphed(run):
    """The same work as one CUDA graph: the CPU then launches once, not once for each kernel."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def timed(run, count):
    """Milliseconds of one of `count` calls, by the GPU's own clock."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for _ in range(count):
        run()
    ended.record()
    torch.cuda.synchronize()
    return begun.elapsed_time(ended) / count


def error_of(net):
    """How far its answers are from those of plain float32: root mean square, relative."""
    exact = network()
    with attention("math"):
        torch.set_float32_matmul_precision("highest")
        right = exact(prompts(2))
    torch.set_float32_matmul_precision("high" if wanted.get("tf32") else "highest")
    with attention(wanted["attention"]):
        found = net(prompts(2, wanted["dtype"])).float()
    return ((found - right).pow(2).mean().sqrt() / right.pow(2).mean().sqrt()).item()


with torch.inference_mode():
    keep_to_lease()
    net, inputs = network(wanted["dtype"]), prompts(wanted["batch"], wanted["dtype"])
    error = error_of(net)
    torch.cuda.reset_peak_memory_stats()
    with attention(wanted["attention"]):

        def run():
            return net(inputs)

        for _ in range(WARM_UP):
            run()
        with open(os.environ["EVALFLEET_EVENTS"], "a") as events:
            events.write('{"ready": true}\n')  # its memory is taken: the next trial on this card may start up
        call = graphed(run) if wanted["cuda_graph"] else run
        count = max(3, int(LEAST_MS / timed(call, 3)))
        times = [timed(call, count) for _ in range(REPEATS)]

latency_ms = statistics.median(times)
metrics = {
    "tokens_s": round(wanted["batch"] * LENGTH / latency_ms * 1000, 1),
    "latency_ms": round(latency_ms, 4),
    "spread_percent": round(100 * (max(times) - min(times)) / latency_ms, 2),
    "error": round(error, 6),
    "peak_mb": round(torch.cuda.max_memory_allocated() / 2**20, 1),
}
print(torch.cuda.get_device_name(0), torch.__version__, wanted, metrics)
with open(os.environ["EVALFLEET_RESULT"], "w") as file:
    json.dump({"success": True, "metrics": metrics}, file)
