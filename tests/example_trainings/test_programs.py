import os
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from _elastic import train_elastically
from _options import parse
from _training import Application, train
from language import LANGUAGE
from speech import SPEECH
from torch import nn
from vision import VISION

from punctual.channel import BLOCK_VARIABLE, Directives, ProgramState, SharedBlock

EXAMPLES = Path(__file__).parents[2] / "examples"
APPLICATIONS = pytest.mark.parametrize("application", [VISION, LANGUAGE, SPEECH], ids=lambda found: found.name)
SHORT = ("--epochs", "2", "--steps-per-epoch", "3", "--batch-size", "8")


def trained(application: Application, *arguments: str) -> nn.Module:
    return train(application, parse(application.name, 3, 8, [*SHORT, *arguments]))


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


@APPLICATIONS
def test_a_resumed_training_ends_with_the_same_weights(application: Application, tmp_path: Path) -> None:
    whole = trained(application)
    first = trained(application, "--epochs", "1", "--checkpoint-dir", str(tmp_path))
    resumed = trained(application, "--checkpoint-dir", str(tmp_path), "--resume")
    assert equal(resumed, whole)
    assert not equal(first, whole)


@APPLICATIONS
def test_it_learns(application: Application, capsys: pytest.CaptureFixture[str]) -> None:
    trained(application, "--steps-per-epoch", "40", "--batch-size", "16")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    accuracy = float(lines[-1].rsplit(" ", 1)[1])
    assert accuracy > {"vision": 0.5, "language": 0.12, "speech": 0.2}[application.name], "chance or a constant answer"


def test_a_training_stopped_in_an_epoch_resumes_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_process: Callable[[], None]
) -> None:
    whole = trained(VISION)
    start_process()
    page = SharedBlock.create(str(tmp_path / "page"))
    monkeypatch.setenv(BLOCK_VARIABLE, str(tmp_path / "page"))
    page.send(Directives(stop=True))
    for n_steps in (1, 2):  # each process is asked to stop after its first step
        with pytest.raises(SystemExit):
            trained(VISION, "--checkpoint-dir", str(tmp_path), "--resume")
        assert page.progress().n_steps == n_steps
        start_process()
    page.send(Directives())
    assert equal(trained(VISION, "--checkpoint-dir", str(tmp_path), "--resume"), whole)
    assert (page.progress().n_steps, page.declaration().state) == (6, ProgramState.LANDED)
    page.close()


def test_a_program_says_all_that_punctual_wants_to_know(tmp_path: Path) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    command = [sys.executable, str(EXAMPLES / "vision.py"), *SHORT, "--checkpoint-dir", str(tmp_path / "saved")]
    done = subprocess.run(
        command, env={**os.environ, BLOCK_VARIABLE: str(tmp_path / "page")}, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("epoch ") == 2
    assert (page.declaration().state, page.declaration().total_steps, page.progress().n_steps) == (
        ProgramState.LANDED,
        6,
        6,
    )
    evaluate, checkpoint = page.phases()
    assert (evaluate.name, evaluate.n_units_done, evaluate.units_planned) == ("evaluate", 2 * 68, 2 * 68)
    assert evaluate.n_units_measured == 2 * 68 + 2
    assert (checkpoint.name, checkpoint.n_units_done, checkpoint.units_planned) == ("checkpoint", 2, 2)
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["checkpoint.pt"]
    page.close()


@APPLICATIONS
def test_an_elastic_program_says_as_much(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    monkeypatch.setenv(BLOCK_VARIABLE, str(tmp_path / "page"))
    train_elastically(application, parse(application.name, 3, 8, [*SHORT, "--batch-size", "64", "--elastic"]))
    assert (page.declaration().state, page.declaration().total_steps, page.progress().n_steps) == (
        ProgramState.LANDED,
        6,
        6,
    )
    (evaluate,) = page.phases()
    assert evaluate.name == "evaluate"
    assert evaluate.n_units_done == evaluate.units_planned >= 2 * 8
    assert evaluate.n_units_measured == evaluate.n_units_done + 2, "a rehearsal is measured only"
    page.close()


def test_extra_cost_does_not_change_what_is_learned_from() -> None:
    model = trained(VISION, "--step-cost-factor", "1.5", "--step-cost-change-at", "1.0")
    assert equal(model, trained(VISION)), "the change comes after the last step"
    assert len(list(trained(VISION, "--step-cost-factor", "2.5").parameters())) == len(list(model.parameters()))


def test_extra_cost_repeats_work(monkeypatch: pytest.MonkeyPatch) -> None:
    n_rows: list[int] = []
    loss = nn.functional.cross_entropy

    def spy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        n_rows.append(len(targets))
        return loss(scores, targets)

    monkeypatch.setattr(nn.functional, "cross_entropy", spy)
    trained(VISION, "--step-cost-factor", "2.5", "--step-cost-change-at", "0.5")
    assert n_rows == [8, 8, 8, 8, 4, 8, 8, 4, 8, 8, 4, 8]


def test_resuming_without_a_folder_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("vision", 3, 8, ["--resume"])
    assert caught.value.code == 2
    assert "--resume needs --checkpoint-dir" in capsys.readouterr().err


def test_cifar_in_a_folder(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"):
        rows = draw.integers(256, size=(10, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (tmp_path / name).write_bytes(rows.tobytes())
    example = VISION.load_example(tmp_path, 0)
    assert (example.train.inputs.shape, example.held_out.inputs.shape) == ((20, 3, 32, 32), (10, 3, 32, 32))
    assert example.train.inputs.max() <= 1
    trained(VISION, "--data", str(tmp_path))


def test_text_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "wiki.train.tokens").write_text("A quick text. " * 2000)
    example = LANGUAGE.load_example(tmp_path, 0)
    assert torch.equal(example.train.inputs[0, 1:], example.train.targets[0, :-1]), "a target is the next byte"
    trained(LANGUAGE, "--data", str(tmp_path))


def test_words_in_a_folder(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("no", "yes", "_background_noise_"):
        (tmp_path / name).mkdir()
        for i in range(10):
            with wave.open(str(tmp_path / name / f"{i}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(16000)
                file.writeframes(draw.integers(-9999, 9999, size=draw.integers(200, 16000), dtype=np.int16).tobytes())
    example = SPEECH.load_example(tmp_path, 0)
    assert (len(example.train), len(example.held_out), example.n_classes) == (16, 4, 2)
    assert example.train.inputs.shape[1:] == (40, 64)
    trained(SPEECH, "--data", str(tmp_path))


@APPLICATIONS
def test_an_empty_folder_is_told(application: Application, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="must hold"):
        application.load_example(tmp_path, 0)
