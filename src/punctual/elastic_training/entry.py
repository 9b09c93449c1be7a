"""The start of an elastic training, without torch: the agent needs none."""

from collections.abc import Callable

from punctual.elastic_training import agent
from punctual.elastic_training.agent_client import NoAgent


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
    """
    page = agent.managed_page()
    if page is None:
        from punctual.elastic_training.context import run_worker

        return run_worker(train, NoAgent())
    page.close()
    return agent.serve(train)
