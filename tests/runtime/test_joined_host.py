"""The host of a command's jobs, in this process: which jobs are the command's, and when they have ended."""

from functools import partial

import pytest
from tests.runtime.live_jobs import PACED, submission

from punctual.core.status import StatusBoard
from punctual.runtime.joined_host import host_of_new_jobs, receiver_of_none


def test_a_command_ends_with_its_last_job_although_the_ends_of_the_first_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("punctual.runtime.host_state.StatusBoard", partial(StatusBoard, n_ended=2))
    given = [submission(name) for name in ("a", "b", "c")]
    with host_of_new_jobs(given, PACED, output_of=receiver_of_none, facts={}) as host:
        host.run()
        assert host.local is not None
        assert len(host.local.jobs()) == 2
        assert [host.status(job).state for job in host.jobs] == ["finished"] * 3
        assert all(host.knows(job) and host.has_ended(job) for job in host.jobs)
