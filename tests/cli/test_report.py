"""What is said of a run, at its end or before."""

from tests.cli.pieces import JOB, progressed, started, submitted

from punctual.cli._report import paragraph
from punctual.metrics.run import summarize


def test_a_run_that_goes_on_or_was_left_has_not_landed() -> None:
    told = paragraph(summarize([submitted(0.0), started(0.1), progressed(10.0, 133, 5.0)], JOB))
    assert told.startswith("The job has not landed; the last that was heard of it is step 133 of 1,000. It used ")
