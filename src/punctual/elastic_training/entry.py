"""The start of an elastic training, without torch: the agent needs none."""

import os
from collections.abc import Callable

from punctual.elastic_training import agent, forkserver
from punctual.elastic_training.agent_client import AgentClient
from punctual.tracking.complaint import invalid


def elastic(train: "Callable[..., object]") -> None:
    """Train with as many workers as Punctual grants: each calls ``train(context)``.

    Started by ``punctual run --workers 1..4``, this process looks after the workers and never trains. Otherwise there
    is one worker, and it is this process.

    Parameters
    ----------
    train
        A function at the top level of the script. It builds model and optimiser and then trains them inside
        ``with context.elastic(...) as run``; see `punctual.elastic_training.run.ElasticRun`.

    Raises
    ------
    SystemExit
        The training was stopped, or failed in a worker.
    ValueError
        A launcher has started the script several times: each would train for itself. Or the script starts the training
        when it is only loaded.
    """
    if forkserver.is_forkserver:
        raise invalid(
            "the script must start the training only when it is the main program",
            "a call while it was being loaded",
            "`punctual.elastic`",
            'Write `if __name__ == "__main__":` above the call.',
        )
    n_processes = os.environ.get("WORLD_SIZE", "1")
    if n_processes != "1" and "RANK" in os.environ:
        raise invalid(
            "an elastic training must be started as one process",
            f"{n_processes} of a launcher (`WORLD_SIZE`)",
            "`punctual.elastic`",
            "Start the script without torchrun or `accelerate launch`; `punctual run --workers 1..4` says how many workers "
            "there are.",
        )
    page = agent.managed_page()
    if page is None:
        from punctual.elastic_training.context import run_worker

        return run_worker(train, AgentClient())
    return agent.serve(train, page)
