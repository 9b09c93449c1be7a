"""The page in Firefox: what it shows is there, what it is told is done, and nothing fails."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.live_service import LiveService
from tests.page.firefox import Firefox, system_firefox
from tests.page.test_one_job import stepper, submitted
from tests.waiting import wait_until

from punctual.api.frozen import frozen_page
from punctual.core.ids import JobId
from punctual.daemon.runs import messages_of


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with system_firefox(tmp_path_factory.mktemp("profile")) as started:
        yield started


def test_jobs_are_seen_and_steered_in_firefox(service: LiveService, firefox: Firefox, tmp_path: Path) -> None:
    submitted(service, "drawn", stepper(tmp_path / "go"), deadline="1h", cores="0.1..1")
    firefox.open(f"{service.served.url}/#token={service.caller.token}")
    firefox.wait_for("document.querySelector('#jobs tr')?.textContent.includes('drawn')")
    firefox.open(f"{service.served.url}/#/jobs/drawn")
    firefox.wait_for("document.getElementById('progress-caption').textContent.includes('The deadline is')")
    assert firefox.said("document.querySelectorAll('#course-chart path').length") > 2
    firefox.said(
        "document.getElementById('steer-deadline').value = '3h';"
        "document.getElementById('steer-deadline').dispatchEvent(new Event('input')); true"
    )
    firefox.wait_for("document.getElementById('steer-change-deadline').disabled === false")
    firefox.said("document.getElementById('steer-change-deadline').click(); true")
    firefox.wait_for("document.getElementById('steer-done').textContent.includes('The deadline is now')")
    for place in ("budget", "submit", "what-if"):
        firefox.said(f"location.hash = '#/{place}'; true")
        firefox.wait_for(f"document.getElementById('{place}').hidden === false")
    firefox.wait_for("document.getElementById('what-if-policy').options.length > 3")
    assert firefox.faults == []
    firefox.open("about:blank")  # before the service ends
    (tmp_path / "go").touch()


def test_a_report_is_shown_in_firefox(service: LiveService, firefox: Firefox, tmp_path: Path) -> None:
    """It is one file with scripts in it, which browsers load in their own ways."""
    submitted(service, "ended", [sys.executable, "-c", "import punctual\nfor i in punctual.track(range(9)): pass"])
    wait_until(lambda: service.host.has_ended(JobId("ended")))
    run, report = service.host.run_folder, tmp_path / "report.html"
    report.write_text(frozen_page(run, messages_of(run), {JobId("ended"): "It has landed."}))
    firefox.open(report.as_uri())
    firefox.wait_for("document.getElementById('one-title').textContent === 'Job ended'")
    firefox.wait_for("document.getElementById('progress-caption').textContent.includes('Progress: 100 %')")
    assert firefox.faults == []
