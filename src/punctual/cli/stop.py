"""`punctual stop`: end a job, after a checkpoint if it can make one."""

from punctual.cli._options import AsJson, OpenJob
from punctual.cli._shown_answer import show_answer
from punctual.runtime.control_client import stop as have_ended
from punctual.runtime.runs import open_job


def stop(
    job: OpenJob = None,
    as_json: AsJson = False,
) -> None:
    """Ask a job to make a checkpoint, if it can, and end."""
    target = open_job(job)
    done = have_ended(target)
    show_answer({"job": target.title, "done": done}, f"{target.title}: {done}", as_json=as_json)
