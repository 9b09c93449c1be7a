"""`punctual resume`: let a paused job go on."""

from punctual.cli._options import AsJson, OpenJob
from punctual.cli._shown_answer import show_answer
from punctual.runtime.control_client import resume as have_resumed
from punctual.runtime.runs import open_job


def resume(
    job: OpenJob = None,
    as_json: AsJson = False,
) -> None:
    """Let a job go on that was paused with `punctual pause`."""
    answer = have_resumed(open_job(job))
    show_answer(answer, f"{answer['job']}: goes on with what the next plan gives it", as_json=as_json)
