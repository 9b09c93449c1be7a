"""What a job could have had, by hand."""

from dataclasses import replace

import pytest

from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.history.cluster import ClusterHistory
from punctual.history.job import JobRecord
from punctual.request.cluster_file import NodeGroup
from punctual.sim.ideal import Ideal
from punctual.sim.job import SimJob
from punctual.sim.speed_laws import ByDevice, Constant, MeasuredTruth, SpeedLaw

ID = JobId("a")


def sim_job(truth: SpeedLaw, counts: tuple[int, ...]) -> SimJob:
    worker = Resources(gpus=1)
    spec = JobSpec(id=ID, ceiling=worker * counts[-1], worker=worker, counts=counts, controller=None)
    return SimJob(0.0, spec, truth, 100.0)


def record(n_present: float) -> JobRecord:
    cluster = ClusterHistory()
    cluster.add(JobSubmitted(at=0.0, spec=JobSpec(id=ID, ceiling=Resources(gpus=1))))
    return replace(cluster.job(ID), n_present=n_present)


#: 1, 2 and 4 devices give 1, 1.5 and 2 steps a second; 4 across two nodes 1.25.
CONCAVE = MeasuredTruth({(1, 1): 1.0, (2, 1): 1.5, (4, 1): 2.0, (4, 2): 1.25})


def test_alone_a_job_has_its_ceiling_on_as_few_nodes_as_possible() -> None:
    job = sim_job(CONCAVE, (1, 2, 4))
    assert Ideal([job], [NodeGroup(n_nodes=2, gpus=4)]).alone_s == {ID: 50.0}
    assert Ideal([job], [NodeGroup(n_nodes=2, gpus=2)]).alone_s == {ID: 80.0}


def test_the_best_kind_of_device_counts() -> None:
    job = sim_job(ByDevice({"fast": Constant(10.0)}, Constant(1.0)), (1,))
    groups = [NodeGroup(gpus=1, device="slow"), NodeGroup(gpus=1, device="fast")]
    assert Ideal([job], groups).alone_s == {ID: 10.0}


def test_fewest_device_seconds_of_any_count() -> None:
    assert Ideal([sim_job(CONCAVE, (1, 2, 4))], [NodeGroup(gpus=4)]).least_device_s == {ID: 100.0}
    assert Ideal([sim_job(CONCAVE, (2, 4))], [NodeGroup(gpus=4)]).least_device_s == {ID: pytest.approx(400 / 3)}


@pytest.mark.parametrize(("n_present", "private_s"), [(1.0, 50.0), (2.0, 200 / 3), (4.0, 100.0), (8.0, 200.0)])
def test_a_private_share_holds_what_fits_in_it_or_is_used_in_turns(n_present: float, private_s: float) -> None:
    ideal = Ideal([sim_job(CONCAVE, (1, 2, 4))], [NodeGroup(gpus=4)])
    assert ideal.private_s(record(n_present)) == pytest.approx(private_s)


def test_a_job_that_fits_nowhere_has_no_ideal() -> None:
    ideal = Ideal([sim_job(CONCAVE, (4,))], [NodeGroup(n_nodes=1, gpus=2)])
    assert (ideal.alone_s, ideal.least_device_s, ideal.private_s(record(1.0))) == ({}, {}, None)
