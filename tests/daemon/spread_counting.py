"""An elastic training without PyTorch, which takes seconds to load: its workers count, each by itself, and the first tells it.

Arguments: a folder, where the step is kept in `step` and each worker writes its process id into `pids`; it ends when there is
a file `end` in it.
"""

import os
import sys
import time
from pathlib import Path

from punctual.channel import BLOCK_VARIABLE, Declaration, SharedBlock, process_number
from punctual.elastic_training import forkserver, other_node
from punctual.elastic_training.agent import Agent
from punctual.elastic_training.agent_client import SocketAgentClient


def train(link: SocketAgentClient) -> None:
    folder, page = Path(sys.argv[1]), SharedBlock.open(os.environ[BLOCK_VARIABLE])
    kept = folder / "step"
    n_steps, progress, after_fault = 0, None, False
    with (folder / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while (membership := link.join(n_steps=n_steps, progress=progress, after_fault=after_fault)) is not None:
        n_steps = max(n_steps, int(kept.read_text()) if kept.exists() else 0)
        if membership.rank == 0:
            page.declare(Declaration(pid=process_number(), total_steps=10**6, can_stop=True))
        while link.generation_wanted == membership.generation:
            if (folder / "end").exists():
                link.finish()
                return
            if membership.rank == 0 and page.directives().stop:
                (folder / "stopped").touch()
            if (folder / "stopped").exists():
                link.leave(143)
                return
            time.sleep(0.01)
            n_steps += 1
            link.stamp(n_steps, waiting=False)
            if membership.rank == 0:
                kept.with_suffix(".new").write_text(str(n_steps))
                kept.with_suffix(".new").rename(kept)
                page.publish_progress(n_steps, time.monotonic_ns(), time.process_time_ns(), -1)
        progress, after_fault = (n_steps,), link.generation_broken == membership.generation


if __name__ == "__main__":
    own = SharedBlock.open(os.environ[BLOCK_VARIABLE])
    forkserver.PRELOADED = ()
    first = other_node.first_node()
    if first is not None:
        sys.exit(other_node.serve(first, train, own))
    Path(sys.argv[1], "stopped").unlink(missing_ok=True)
    with Agent(train, own) as agent:
        code = agent.run()
    sys.exit(code)
