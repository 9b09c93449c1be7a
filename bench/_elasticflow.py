"""ElasticFlow's simulator, which is not part of this project, run by any Python from 3.8 on: what it costs.

``PYTHON _elasticflow.py FOLDER TRACE CLUSTER SCHEDULE GPU`` in the folder `scheduler` of a checkout of github.com/pkusys/ElasticFlow,
with its requirements installed and its stubs made (`make`). All that it imports of others is imported first. The last line of
the output is JSON: CPU seconds until then, start of Python included, and those of the work.
"""

import importlib
import json
import platform
import runpy
import sys
import time


def main() -> None:
    folder, trace, cluster, schedule, gpu = sys.argv[1:]
    sys.path.insert(0, ".")
    for name in ("cvxpy", "runtime.rpc.scheduler_client", "runtime.rpc.scheduler_server"):
        importlib.import_module(name)

    import_s = time.process_time()
    sys.argv = [
        "scheduler.py", "--cluster_spec=" + cluster, "--print", "--scheme=elastic", "--trace_file=" + trace,
        "--schedule=" + schedule, "--log_path=" + folder, "--simulation=True", "--scheduling_slot=60", "--gpu_type=" + gpu,
    ]  # fmt: skip
    try:
        runpy.run_path("scheduler.py", run_name="__main__")
    finally:
        run_s = time.process_time() - import_s
        print(json.dumps({"python": platform.python_version(), "import_s": import_s, "run_s": run_s}))


if __name__ == "__main__":
    main()
