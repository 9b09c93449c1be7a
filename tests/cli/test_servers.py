"""Jobs with parameter servers beside their workers: what the options say, and one run of them."""

from typing import Any

import pytest
from tests.cli.programs import Terminal, objects

from punctual.channel import SERVERS_VARIABLE
from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.executors.local.workers import parts_in
from punctual.request.job_options import JobOptions
from punctual.request.quantities import worker_range
from punctual.request.submission import Submission, submission_of

SERVED = """
import pathlib, sys, punctual

def train(context):
    import torch  # where it is needed: the process that looks after workers would load it too
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    dataset = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.ones(64, 1))
    with context.elastic(model=model, optimizer=optimizer) as run:
        for epoch in run.epochs(20):
            for inputs, targets in run.batches(dataset, global_batch_size=32, seed=0):
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
                if run.step_number == 1:
                    run.print("served" if run._stepper.served else "alone")
    run.print("trained", run.step_number, len(optimizer.state) > 0)

if __name__ == "__main__":
    punctual.elastic(train)
"""


def submitted(servers: str | None) -> Submission:
    return submission_of(JobOptions(program=["true"], workers="1..4", servers=servers), 0.0, Resources(cores=8))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_grant_says_how_many_there_are_of_each(n: int) -> None:
    spec = submitted("1..2").spec
    assert spec.unit is not None
    assert spec.parts_of(spec.unit * n) == parts_in(spec, spec.unit * n) == (n, n)
    assert spec.ceiling.fits_in(Resources(cores=8))
    assert spec.worker_counts() == (1, 2, 3, 4)


def test_the_range_is_told_to_the_agent() -> None:
    assert submitted("2").program.environment[SERVERS_VARIABLE] == "1..2"
    assert SERVERS_VARIABLE not in submitted(None).program.environment


@pytest.mark.parametrize(("workers", "gpus"), [(None, None), (None, "1..2")])
def test_servers_need_workers_on_cores(workers: str | None, gpus: str | None) -> None:
    with pytest.raises(InvalidSpec, match="`--servers` must go with workers on cores"):
        worker_range(workers, gpus, None, "1")


def test_workers_and_a_server_train_under_the_command(terminal: Terminal) -> None:
    run = terminal.start("run", "--workers", "1..2", "--servers", "1", "--json", "--", *terminal.script(SERVED))
    output, errors = run.communicate()
    assert run.returncode == 0, errors
    assert "served\n" in errors
    assert "trained 40 True" in errors
    report: dict[str, Any] = objects(output)[-1]
    assert (report["steps_done"], report["status"], report["workers"]["n_workers_lost"]) == (40, "finished", 0)
