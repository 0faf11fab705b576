"""Windows Agent Arena (WAA): 154 tasks in Windows, which runs in a virtual machine in a container.

WAA brings its own agents, its own program `run.py` and its own checkers, all inside the container. One task here is one
call of `run.py` with a list of one task; results come back one by one. WAA knows no limits and no failures: both are kept
here and by the runner.
"""
