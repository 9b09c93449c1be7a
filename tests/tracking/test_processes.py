"""Who may speak on the page, and what a reader sees while a writer writes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import punctual
from punctual.channel import BLOCK_VARIABLE, Declaration, SharedBlock

WRITER = """
import sys
from punctual.channel import SharedBlock, PhaseEntry
page, i = SharedBlock.open(sys.argv[1]), 0
while True:
    i += 1
    page.publish_progress(i, 2 * i, 3 * i, i % 8)
    page.publish_phases([PhaseEntry(f"phase {i % 10}", i, i, 2 * i, 3 * i, 4 * i, 0.5)] * (1 + i % 8))
"""


def script(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answer(code: str) -> str:
    with script(code) as process:
        assert process.stdout is not None
        return process.stdout.read().strip()


def in_fork(what: object) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            what()  # type: ignore[operator]
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_reader_never_sees_half_a_write(page: SharedBlock, tmp_path: Path) -> None:
    with script(WRITER, str(tmp_path / "page")) as writer:
        try:
            n_seen, last, until = 0, 0, time.monotonic() + 2.0
            while time.monotonic() < until or n_seen < 100:
                progress = page.progress()
                assert (progress.stamp_ns, progress.cpu_ns, progress.i_phase) == (
                    2 * progress.n_steps, 3 * progress.n_steps, progress.n_steps % 8 if progress.n_steps else -1,
                )  # fmt: skip
                assert progress.n_steps >= last
                n_seen, last = n_seen + (progress.n_steps > last), progress.n_steps
                for entry in page.phases():
                    i = entry.n_units_done
                    assert (entry.name, entry.units_planned) == (f"phase {i % 10}", i)
                    assert (entry.n_units_measured, entry.cpu_ns, entry.wall_ns) == (2 * i, 3 * i, 4 * i)
        finally:
            writer.kill()


def test_a_forked_child_is_silent(page: SharedBlock) -> None:
    run = iter(punctual.track(range(10), epochs=1))
    next(run)
    next(run)
    before = (page.progress(), page.declaration(), page.phases())

    def count_on() -> None:
        next(run)
        with punctual.phase("evaluate"):
            pass
        list(punctual.track(range(5), epochs=2))

    in_fork(count_on)
    assert (page.progress(), page.declaration(), page.phases()) == before
    next(run)
    assert page.progress().n_steps == 2


def test_only_the_first_process_claims_the_page(page: SharedBlock) -> None:
    with script("import time, punctual; punctual.track('ab', epochs=1); print(flush=True); time.sleep(60)") as first:
        assert first.stdout is not None
        first.stdout.readline()
        try:
            list(punctual.track(range(7), epochs=1))
            assert (page.declaration().pid, page.declaration().total_steps, page.progress().n_steps) == (
                first.pid,
                2,
                0,
            )
        finally:
            first.kill()


def test_processes_that_start_together_agree_who_speaks(page: SharedBlock) -> None:
    code = "import punctual; r = punctual.track('ab', epochs=1); print(r._session.is_linked, flush=True); input()"
    siblings = [script(code) for _ in range(4)]
    answers = []
    for sibling in siblings:  # who lives until all have answered
        assert sibling.stdout is not None
        answers.append(sibling.stdout.readline().strip())
    for sibling in siblings:
        sibling.communicate("\n")
    assert sorted(answers) == ["False", "False", "False", "True"]
    assert page.declaration().pid in [sibling.pid for sibling in siblings]


def test_a_page_of_a_dead_process_is_taken_over(page: SharedBlock) -> None:
    with script("import punctual; list(punctual.track(range(3), total_steps=9))") as first:
        first.wait()
    assert page.declaration().pid == first.pid
    punctual.track(range(6), total_steps=9, start_step=3)
    assert page.declaration() == Declaration(os.getpid(), 9, 3)


@pytest.mark.parametrize("content", [None, b"", b"something else", b"x" * 4096])
def test_an_unreadable_page_is_one_warning(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "not a page"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(BLOCK_VARIABLE, str(path))
    for _ in range(2):
        assert len(list(punctual.track("abc", epochs=1))) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "`PUNCTUAL_PAGE` must name a page of Punctual" in lines[0]
    assert "in a container" in lines[0]
    assert "`--progress-regex auto`" in lines[0]


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, punctual; print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'torch')])"
    assert answer(code) == "[]"
    assert answer(code.replace("punctual;", "punctual; punctual.track;")) == "[]"
    assert answer("import sys, punctual; print([m for m in sys.modules if m.startswith('punctual.')])") == "[]"


def test_the_package_lists_what_it_offers() -> None:
    assert {"track", "phase", "Phase", "Run", "on_stop", "__version__"} <= set(dir(punctual))
    assert all(getattr(punctual, name) for name in punctual.__all__)
    with pytest.raises(AttributeError, match="no attribute 'tracks'"):
        punctual.tracks  # noqa: B018
