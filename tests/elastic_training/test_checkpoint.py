"""CheckpointStore: what was saved comes back to the bit, and whatever happens to the last one, a whole one is found."""

import errno
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.small_disk import fill, mounted
from tests.waiting import PATIENCE_S
from torch import Tensor

from punctual.channel import CHECKPOINT_VARIABLE
from punctual.elastic_training import _checkpoint_file, checkpoint_store
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.replica import TrainingState


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[CheckpointStore]:
    made = CheckpointStore(tmp_path / "kept")
    yield made
    made.close()


def saved(checkpoints: CheckpointStore, tensors: Mapping[str, Tensor], **values: object) -> Path:
    """The file of a checkpoint that has been written."""
    checkpoints.save(TrainingState(dict(tensors), values))
    checkpoints.flush()
    return files(checkpoints)[-1]


def files(checkpoints: CheckpointStore) -> list[Path]:
    return sorted(checkpoints.folder.glob("*.safetensors"))


def step_of(checkpoints: CheckpointStore) -> object:
    found = checkpoint_store.newest(checkpoints.folder)
    return None if found is None else found.values["step"]


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


# What comes back.

TENSORS = {
    "float32": torch.randn(3, 5),
    "bfloat16": torch.randn(7).to(torch.bfloat16),
    "float16": torch.randn(2, 1, 3).to(torch.float16),
    "float64": torch.tensor([float("nan"), -0.0, float("inf"), 5e-324], dtype=torch.float64),
    "float8": torch.randn(3).to(torch.float8_e4m3fn),
    "complex": torch.randn(3, dtype=torch.complex64),
    "scalar": torch.tensor(3.25),
    "count": torch.tensor(2**62 + 1),
    "bool": torch.tensor([True, False, True]),
    "uint8": torch.arange(256).to(torch.uint8),
    "int16": torch.tensor([-1, 7], dtype=torch.int16),
    "empty": torch.empty(0, 4),
    "transposed": torch.randn(4, 6).t(),
    "strided": torch.randn(20)[::3],
    "expanded": torch.randn(3, 1).expand(3, 4),
    "with gradient": torch.randn(2, requires_grad=True),
    'odd "name" é': torch.ones(1),
}


def test_every_kind_of_tensor_comes_back_to_the_bit(checkpoints: CheckpointStore) -> None:
    saved(checkpoints, TENSORS)
    found = checkpoints.latest()
    assert found is not None
    assert set(found.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert (found.tensors[name].dtype, found.tensors[name].shape) == (tensor.dtype, tensor.shape), name
        assert bits(found.tensors[name]) == bits(tensor.detach()), name


def test_values_come_back(checkpoints: CheckpointStore) -> None:
    values = {"step": 12, "rates": [0.1, 1e-300, float("inf")], "seen": {"a": None, "ö": True}, "random": [3, 2**80]}
    saved(checkpoints, {}, **values)
    assert checkpoints.latest() == TrainingState({}, values)


def test_tied_tensors_are_stored_once_and_tied_again(checkpoints: CheckpointStore) -> None:
    weight = torch.randn(100, 100)
    path = saved(checkpoints, {"a": weight, "b": weight, "part": weight[:50]})
    found = checkpoints.latest()
    assert found is not None
    assert found.tensors["a"] is found.tensors["b"]
    assert torch.equal(found.tensors["part"], weight[:50])
    assert path.stat().st_size < 1.6 * weight.nbytes


def test_the_file_is_one_that_safetensors_reads(checkpoints: CheckpointStore) -> None:
    path = saved(checkpoints, TENSORS, step=1)
    read = load_file(path)
    assert set(read) == set(TENSORS)
    assert all(bits(read[name]) == bits(tensor.detach()) for name, tensor in TENSORS.items())


def test_a_checkpoint_is_the_state_when_it_was_saved(checkpoints: CheckpointStore) -> None:
    weight = torch.zeros(1000)
    for step in range(5):
        checkpoints.save(TrainingState({"weight": weight}, {"step": step}))
        weight += 1
    checkpoints.flush()
    found = checkpoints.latest()
    assert found is not None
    assert found.values["step"] == 4
    assert torch.equal(found.tensors["weight"], torch.full((1000,), 4.0))


def test_one_that_waits_is_replaced(checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    write = _checkpoint_file.write

    is_under_way, goes_on = Event(), Event()

    def write_slowly(path: Path, image: _checkpoint_file.Image) -> None:
        written.append(path)
        is_under_way.set()
        assert goes_on.wait(PATIENCE_S)
        write(path, image)

    monkeypatch.setattr(_checkpoint_file, "write", write_slowly)
    for step in (1, 2, 3, 4):
        checkpoints.save(TrainingState({"weight": torch.full((8,), float(step))}, {"step": step}))
        assert is_under_way.wait(PATIENCE_S)
    goes_on.set()
    checkpoints.flush()
    assert len(written) == 2
    found = checkpoints.latest()
    assert found is not None
    assert found.values == {"step": 4}
    assert torch.equal(found.tensors["weight"], torch.full((8,), 4.0))
    first = _checkpoint_file.read(files(checkpoints)[0])
    assert torch.equal(first.tensors["weight"], torch.full((8,), 1.0))


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    kept = CheckpointStore(tmp_path, n_kept=3)
    for step in range(6):
        saved(kept, {}, step=step)
    assert [_checkpoint_file.read(path).values["step"] for path in files(kept)] == [3, 4, 5]
    kept.close()


def test_without_a_checkpoint_there_is_none(checkpoints: CheckpointStore) -> None:
    assert checkpoints.latest() is None


@pytest.mark.parametrize("bad", [torch.eye(3).to_sparse(), torch.ones(2).to_mkldnn()])
def test_a_tensor_that_cannot_be_stored_is_refused(checkpoints: CheckpointStore, bad: Tensor) -> None:
    with pytest.raises(ValueError, match=r"must be dense.*tensor 'bad'"):
        checkpoints.save(TrainingState({"bad": bad}))


# Damage.


def two(checkpoints: CheckpointStore) -> Path:
    """The newer one of two checkpoints."""
    for step in (1, 2):
        path = saved(checkpoints, {"weight": torch.randn(40), "count": torch.tensor(step)}, step=step)
    return path


def test_a_file_cut_off_anywhere_is_passed_over(
    checkpoints: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    path = two(checkpoints)
    whole = path.read_bytes()
    for n_bytes in range(len(whole)):
        path.write_bytes(whole[:n_bytes])
        assert step_of(checkpoints) == 1
        said = capsys.readouterr().err
        assert said.count("punctual: warning") == 1
        assert str(path) in said
    path.write_bytes(whole)
    assert step_of(checkpoints) == 2
    assert not capsys.readouterr().err


def test_a_file_with_a_flipped_bit_is_passed_over(
    checkpoints: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    path = two(checkpoints)
    whole = path.read_bytes()
    for i_byte in range(len(whole)):
        torn = bytearray(whole)
        torn[i_byte] ^= 1 << (i_byte % 8)
        path.write_bytes(torn)
        assert step_of(checkpoints) == 1
    path.write_bytes(whole + b"x")
    assert step_of(checkpoints) == 1
    assert "SHA-256" in capsys.readouterr().err


def test_pieces_that_never_reached_the_disk_are_noticed(checkpoints: CheckpointStore) -> None:
    path = two(checkpoints)
    whole = path.read_bytes()
    for start in range(0, len(whole), 64):
        path.write_bytes(whole[:start] + bytes(len(whole[start : start + 64])) + whole[start + 64 :])
        assert step_of(checkpoints) == (2 if whole == path.read_bytes() else 1)


def test_a_file_of_a_later_format_is_refused_and_stays(
    checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(checkpoints, {}, step=1)
    monkeypatch.setattr(_checkpoint_file, "_VERSION", 2)
    saved(checkpoints, {}, step=2)
    monkeypatch.setattr(_checkpoint_file, "_VERSION", 1)
    with pytest.raises(ValueError, match="later version of Punctual: got format 2"):
        step_of(checkpoints)
    monkeypatch.setattr(_checkpoint_file, "_VERSION", 2)
    assert step_of(checkpoints) == 2


def forged(whole: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with another header, and a digest that fits."""
    n_header = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + n_header])
    header["__metadata__"]["sha256"] = "0" * 64
    changed = change(header)
    return with_digest(compact(header if changed is None else changed), whole[8 + n_header :])


def compact(header: object) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def with_digest(text: bytes, rest: bytes, n_header: int | None = None) -> bytes:
    before, digits, after = text.partition(b"0" * 64)
    before = (len(text) if n_header is None else n_header).to_bytes(8, "little") + before
    digest = hashlib.sha256(before + after + rest).hexdigest() if digits else ""
    return before + digest.encode() + after + rest


def many_of_one(header: dict[str, Any]) -> None:
    header.update({f"copy {i}": header["weight"] for i in range(10_000)})


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "more than there is": lambda header: header["weight"].update(data_offsets=[0, 1 << 50], shape=[1 << 48]),
    "from behind": lambda header: header["weight"].update(data_offsets=[-4, 0]),
    "backwards": lambda header: header["weight"].update(data_offsets=[8, 0]),
    "not at an element": lambda header: header["weight"].update(data_offsets=[3, 163]),
    "another shape": lambda header: header["weight"].update(shape=[1 << 62, 4]),
    "no kind": lambda header: header["weight"].update(dtype="F7"),
    "no place": lambda header: header["weight"].pop("data_offsets"),
    "no table": lambda header: header.update(weight=[1]),
    "ten thousand copies": many_of_one,
    "no values": lambda header: header["__metadata__"].update(punctual="[]"),
    "values within values": lambda header: header["__metadata__"].update(punctual="[" * 100_000),
    "a number without end": lambda header: header["__metadata__"].update(punctual="9" * 5_000),
    "names of nothing": lambda header: header["__metadata__"].update(
        punctual='{"format": 1, "values": {}, "aliases": {"a": "b"}}'
    ),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_header_that_lies_is_passed_over(
    checkpoints: CheckpointStore, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object]
) -> None:
    path = two(checkpoints)
    whole = path.read_bytes()
    path.write_bytes(forged(whole, lambda header: None))
    assert step_of(checkpoints) == 2  # only its digest was made anew
    path.write_bytes(forged(whole, change))
    assert step_of(checkpoints) == 1
    assert "SHA-256" not in capsys.readouterr().err


@pytest.mark.parametrize("n_header", [0, 1 << 40, (1 << 64) - 1])
def test_a_header_that_is_longer_than_its_file_is_passed_over(checkpoints: CheckpointStore, n_header: int) -> None:
    path = two(checkpoints)
    text = compact({"__metadata__": {"sha256": "0" * 64}})
    path.write_bytes(with_digest(text, b"", n_header))
    assert step_of(checkpoints) == 1


def test_whatever_a_header_holds_a_state_comes_back(checkpoints: CheckpointStore) -> None:
    path = two(checkpoints)
    whole = path.read_bytes()
    draw = random.Random(13)
    odd: list[object] = [
        None,
        -1,
        0,
        1 << 63,
        1 << 70,
        0.5,
        float("nan"),
        "",
        "F32",
        [],
        [[]],
        {},
        [-1],
        [0, 1 << 62],
        True,
    ]

    def change(header: dict[str, Any]) -> None:
        table = draw.choice([header, header["__metadata__"], header["weight"], header["count"]])
        for key in draw.sample(list(table), 1):
            table[key] = draw.choice(odd)

    for _ in range(300):
        with suppress(KeyError, TypeError):
            path.write_bytes(forged(whole, change))
        assert step_of(checkpoints) in (1, 2)


def test_one_that_is_damaged_on_its_way_to_the_disk_replaces_nothing(
    checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two(checkpoints)
    write = _checkpoint_file.write

    def write_wrongly(path: Path, image: _checkpoint_file.Image) -> None:
        write(path, image)
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")

    monkeypatch.setattr(_checkpoint_file, "write", write_wrongly)
    saved(checkpoints, {"weight": torch.zeros(4)}, step=3)
    assert step_of(checkpoints) == 2
    assert len(files(checkpoints)) == 2
    assert "SHA-256" in capsys.readouterr().err


# Failures of the machine.


class Crash(BaseException):
    """The process would end here."""


CALLS = [(os, "fsync"), (os, "posix_fadvise"), (Path, "rename"), (Path, "unlink")]


def crashing(monkeypatch: pytest.MonkeyPatch, n_calls: int) -> Callable[[], bool]:
    """Let the call after `n_calls` calls that change the disk be the last one; whether it was reached."""
    calls = []

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            calls.append(real)
            if len(calls) > n_calls:
                raise Crash
            return real(*arguments, **named)

        return call

    for owner, name in CALLS:
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    return lambda: len(calls) > n_calls


def test_after_a_crash_between_any_two_calls_a_whole_one_is_there(tmp_path: Path) -> None:
    has_crashed, n_calls = True, 0
    while has_crashed:
        one = CheckpointStore(tmp_path / str(n_calls), n_kept=1)
        saved(one, {"weight": torch.ones(9)}, step=1)
        with pytest.MonkeyPatch.context() as patched:
            reached = crashing(patched, n_calls)
            with suppress(Crash):
                one._put(_checkpoint_file.image(TrainingState({"weight": torch.ones(9)}, {"step": 2}), None))
            has_crashed = reached()
        one.close()
        after = CheckpointStore(one.folder)
        assert step_of(after) in {1, 2}
        after.save(TrainingState({}, {"step": 3}))
        after.close()
        assert step_of(after) == 3
        assert not list(one.folder.glob("*.writing"))
        n_calls += 1
    assert n_calls > 6


KILLED = """
import os, random, signal, sys, time
import torch
from pathlib import Path
from punctual.elastic_training import checkpoint_store
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.replica import TrainingState

torch.set_num_threads(1)

def train(folder, said):
    checkpoints, step = CheckpointStore(folder), 0
    while True:
        step += 1
        checkpoints.save(TrainingState({"weight": torch.full((200_000,), float(step))}, {"step": step}))
        if step % 3 == 0:
            checkpoints.flush()
            os.write(said, step.to_bytes(8, "little"))

draw = random.Random(int(sys.argv[2]))
for i in range(int(sys.argv[3])):
    folder = Path(sys.argv[1]) / str(i)
    hears, said = os.pipe()
    pid = os.fork()
    if not pid:
        train(folder, said)
    os.close(said)
    begun = os.read(hears, 8)
    time.sleep(draw.random() * 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    n_flushed = int.from_bytes((begun + os.read(hears, 1 << 16))[-8:], "little")
    os.close(hears)
    checkpoints = CheckpointStore(folder)
    state = checkpoints.latest()
    assert state.values["step"] >= n_flushed, (state.values, n_flushed)
    assert torch.equal(state.tensors["weight"], torch.full((200_000,), float(state.values["step"])))
    left = sorted(path.name for path in folder.iterdir() if path.suffix != ".safetensors")
    assert left == ["writer.lock"], left
    checkpoints.close()
print("all found")
"""


def test_a_killed_writer_loses_nothing_that_was_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(random.randrange(1000)), "30"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("all found\n", "")


@pytest.mark.parametrize("call", ["write", "verify"])
def test_a_full_disk_is_warned_of_once_and_the_last_one_stays(
    checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    two(checkpoints)

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(_checkpoint_file, call, fail)
        for step in (3, 4):
            saved(checkpoints, {"weight": torch.ones(1)}, step=step)
    said = capsys.readouterr().err
    assert said.count("No space left on device") == said.count("punctual: warning") == 1
    assert not list(checkpoints.folder.glob("*.writing"))
    saved(checkpoints, {}, step=5)
    assert step_of(checkpoints) == 5
    assert not capsys.readouterr().err


def test_on_a_disk_that_is_full_the_last_one_stays_until_there_is_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path / "disk") as disk:
        checkpoints = CheckpointStore(disk / "kept")
        two(checkpoints)
        filler = fill(disk)
        saved(checkpoints, {"weight": torch.ones(100_000)}, step=3)
        assert capsys.readouterr().err.count("No space left on device") == 1
        assert step_of(checkpoints) == 2
        assert not list(checkpoints.folder.glob("*.writing"))
        filler.unlink()
        saved(checkpoints, {"weight": torch.ones(100_000)}, step=4)
        assert step_of(checkpoints) == 4
        checkpoints.close()


def test_a_folder_that_cannot_be_made_is_warned_of_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    nowhere = CheckpointStore(tmp_path / "file" / "folder")
    assert nowhere.latest() is None
    for step in range(2):
        nowhere.save(TrainingState({}, {"step": step}))
    nowhere.flush()
    nowhere.close()
    said = capsys.readouterr().err
    assert said.count("punctual: warning") == 1
    assert str(tmp_path / "file" / "folder") in said


# One writer.


def test_a_second_training_is_refused(checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(checkpoints, {}, step=1)
    monkeypatch.setattr(checkpoint_store, "_CLAIM_WAIT_S", 0.1)
    second = CheckpointStore(checkpoints.folder)
    with pytest.raises(ValueError, match=f"one training: got one that process {os.getpid()} writes to.*checkpoint_dir"):
        second.latest()
    checkpoints.close()
    assert second.latest() == TrainingState({}, {"step": 1})
    saved(second, {}, step=2)
    second.close()
    assert step_of(checkpoints) == 2


def test_whoever_has_lost_its_folder_trains_on_without_writing(
    checkpoints: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(checkpoints, {}, step=1)
    second = CheckpointStore(checkpoints.folder)
    for step in (2, 3):
        second.save(TrainingState({}, {"step": step}))
    second.close()
    assert step_of(checkpoints) == 1
    assert capsys.readouterr().err.count("must belong to one training") == 1


def test_a_forked_child_does_not_keep_the_folder(checkpoints: CheckpointStore) -> None:
    saved(checkpoints, {}, step=1)
    hears, says = os.pipe()
    child = os.fork()
    if not child:
        os.close(says)
        os.read(hears, 1)
        os._exit(0)
    os.close(hears)
    try:
        checkpoints.close()
        second = CheckpointStore(checkpoints.folder)
        assert second.latest() is not None
        second.close()
    finally:
        os.close(says)
        os.waitpid(child, 0)


def test_the_folder_is_the_scripts_or_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKPOINT_VARIABLE, raising=False)
    assert checkpoint_store.chosen(None) is None
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tmp_path / "environment"))
    for folder, expected in ((None, tmp_path / "environment"), (tmp_path / "script", tmp_path / "script")):
        found = checkpoint_store.chosen(folder)
        assert found is not None
        assert found.folder == expected


# When.


def test_the_period_follows_from_the_cost(checkpoints: CheckpointStore) -> None:
    assert checkpoints.period_s == 10.0
    saved(checkpoints, {"weight": torch.zeros(1_000_000)}, step=1)
    assert checkpoints.cost_s >= checkpoints.stop_s > 0
    checkpoints.cost_s = 0.5
    assert checkpoints.period_s == 50.0


def test_a_given_period_is_kept(tmp_path: Path) -> None:
    now = CheckpointStore(tmp_path, every_s=1e-9)
    assert now.is_due()
    later = CheckpointStore(tmp_path, every_s=3600.0)
    assert not later.is_due()
    later._saved_at -= 3600
    assert later.is_due()
    later.save(TrainingState())
    assert not later.is_due()
    later.close()


@pytest.mark.parametrize("every_s", [0.0, -1.0, float("nan"), "10"])
def test_a_period_must_be_above_zero(tmp_path: Path, every_s: Any) -> None:
    with pytest.raises(ValueError, match="must be above zero"):
        CheckpointStore(tmp_path, every_s=every_s)
