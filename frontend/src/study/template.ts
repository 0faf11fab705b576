// What the form for a new study begins with: a small study of a program that every machine has.

export const TEMPLATE = `[study]
name = "server"
strategy = "random"                  # grid | random | bayesian | halving
trials = 20
max_parallel_experiments = 1         # trials at a time
objective = { maximize = "throughput_tok_s" }
constraints = ["ttft_p99_ms <= 200"]
timeout_per_trial = "20m"
repeats = 3                          # of the best and of the baseline
baseline = { tp = 1, max_num_seqs = 64 }
seed = 1

[parameters]
tp = [1, 2, 4]
max_num_seqs = { type = "integer", low = 16, high = 512, log = true }
# chunk = { type = "integer", low = 256, high = 4096, log = true, when = "tp > 1" }
forbid = ["tp == 4 and max_num_seqs < 32"]

[trial]
# Reads payload.parameters of the file $EVALFLEET_TASK, and writes
# {"success": true, "metrics": {"throughput_tok_s": 4510.2, "ttft_p99_ms": 143.0}} to $EVALFLEET_RESULT.
command = ["python3", "bench_server.py"]
# gpus = "tp"                        # a number, or an expression over the parameters
`;
