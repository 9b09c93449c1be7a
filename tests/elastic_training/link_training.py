"""A training that uses nothing but its link: at each step its members count each other. A program of its own.

Its first argument is what to do, the others are modules to be loaded beforehand: what a test does not need it does not
wait for.
"""

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from punctual.channel import BLOCK_VARIABLE, SharedBlock
from punctual.elastic_training import forkserver, other_node
from punctual.elastic_training.agent import Agent
from punctual.elastic_training.agent_client import SocketAgentClient

if TYPE_CHECKING:
    from punctual.elastic_training.group import WorkerGroup

STEP_S = 0.005
#: The last worker's; the others wait for it.
LAST_STEP_S = float(os.environ.get("LAST_STEP_S", STEP_S))
#: After so long without a step a worker is taken to hang; what no test waits for is far beyond what a busy machine needs.
HANG_S = float(os.environ.get("HANG_S", "100"))


def train(link: SocketAgentClient, n_steps_total: int) -> None:
    from torch import device

    from punctual.elastic_training.collectives import GroupFault
    from punctual.elastic_training.group import WorkerGroup

    n_steps, progress, after_fault = 0, None, False
    while n_steps < n_steps_total:
        membership = link.join(n_steps=n_steps, progress=progress, after_fault=after_fault)
        if membership is None:
            return
        after_fault = False
        try:
            group = WorkerGroup(membership, device("cpu"), link)
        except GroupFault:
            after_fault = True
            continue
        try:
            n_steps = _share(n_steps, group)
            progress = (n_steps,)
            while n_steps < n_steps_total and not _step(link, group, n_steps):
                n_steps += 1
            n_steps += n_steps < n_steps_total
        except GroupFault:
            after_fault = True
        progress = progress and (n_steps,)
        group.drop(after_fault=after_fault)


def _share(n_steps: int, group: "WorkerGroup") -> int:
    """The steps that the source has behind it."""
    import torch

    source = group.membership.source
    if source == -1 or group.n_workers == 1:
        return n_steps
    shared = torch.tensor([n_steps])
    group.together.send_from(source, shared)
    return int(shared)


def _step(link: SocketAgentClient, group: "WorkerGroup", n_steps: int) -> bool:
    """One step; whether the members leave their group after it."""
    import torch

    time.sleep(LAST_STEP_S if group.rank == group.n_workers - 1 else STEP_S)
    link.stamp(n_steps, waiting=True)
    counts = torch.tensor([1.0, float(link.generation_wanted > group.membership.generation)])
    if group.n_workers > 1:
        group.add_up(counts)
    assert counts[0] == group.n_workers
    link.stamp(n_steps + 1, waiting=False)
    return bool(counts[1])


def for_ever(link: SocketAgentClient) -> None:
    train(link, 10**9)


def for_a_while(link: SocketAgentClient) -> None:
    """Until there are two workers, and then some steps."""
    n_steps, progress = 0, None
    while (membership := link.join(n_steps=n_steps, progress=progress)) is not None:
        progress = (0,)
        if membership.n_workers > 1:
            link.finish()
            return
        while link.generation_wanted == membership.generation:
            time.sleep(STEP_S)


def briefly(link: SocketAgentClient) -> None:
    """Also says how many threads it has, and the page."""
    import torch

    train(link, 20)
    sys.stdout.write(f"trained with {torch.get_num_threads()} threads, {os.environ[BLOCK_VARIABLE]}\n")


def idle(link: SocketAgentClient) -> None:
    """Ends without having joined."""


def dawdle(link: SocketAgentClient) -> None:
    """One does something alone for longer than anything should take, and has said so: the other waits for it, and then ends."""
    membership = link.join(n_steps=0)
    if membership is not None and membership.rank == 0:
        with link.excused():
            time.sleep(3.5 * HANG_S)
            sys.stdout.write("all done\n")
    else:
        link.stamp(1, waiting=True)
        time.sleep(1.5 * HANG_S)


def watch(link: SocketAgentClient) -> None:
    """Trains without a connection that could break: whether its generation is whole it sees on the board."""
    n_steps, after_fault = 0, False
    while (membership := link.join(n_steps=n_steps, after_fault=after_fault)) is not None:
        while link.generation_wanted == membership.generation:
            time.sleep(STEP_S)
            n_steps += 1
            link.stamp(n_steps, waiting=False)
        after_fault = link.generation_broken == membership.generation
        sys.stdout.write(f"generation {membership.generation} {'has lost a member' if after_fault else 'is over'}\n")
        sys.stdout.flush()


def alone(link: SocketAgentClient) -> None:
    """Trains by itself; there is no room for another."""
    if link.generation_wanted:
        raise MemoryError("no room for another")
    n_steps = 0
    while (membership := link.join(n_steps=n_steps)) is not None:
        while link.generation_wanted == membership.generation:
            time.sleep(STEP_S)
            n_steps += 1
            link.stamp(n_steps, waiting=False)


def fail(link: SocketAgentClient) -> None:
    link.join(n_steps=0)
    raise LookupError("no such layer")


def crash(link: SocketAgentClient) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    train_or_not, *preloaded = sys.argv[1:]
    forkserver.PRELOADED = tuple(preloaded)
    page = SharedBlock.open(os.environ[BLOCK_VARIABLE])
    first = other_node.first_node()
    if first is not None:
        sys.exit(other_node.serve(first, globals()[train_or_not], page))
    with Agent(globals()[train_or_not], page, hang_s=HANG_S) as agent:
        code = agent.run()
    sys.exit(code)
