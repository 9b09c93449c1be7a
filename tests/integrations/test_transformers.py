"""Transformers; it is loaded where a test needs it: each worker of xdist collects all tests."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from punctual.channel import GOAL_VARIABLE, Directives, Fault, ProgramState, SharedBlock

MISSING = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed (extra `adapters`): {', '.join(MISSING)}"),
    pytest.mark.filterwarnings("ignore"),  # the library's own
]

N_STEPS, N_EPOCHS, N_EVALUATION = 4, 3, 2


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.weight * x).mean(), "logits": x}


def examples(n: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.ones(1), "labels": torch.ones(1)} for _ in range(n)]


def train(folder: Path, at_step: Callable[[int], None] = lambda n: None, **options: Any) -> Any:
    """Train, and call `at_step` with the number of each step before it; the library's trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from punctual.integrations.transformers import TransformersCallback, last_checkpoint

    class At(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            at_step(state.global_step + 1)

    settings: dict[str, Any] = {
        "num_train_epochs": N_EPOCHS, "per_device_train_batch_size": 2, "per_device_eval_batch_size": 1,
        "eval_strategy": "epoch", "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True,
        "logging_strategy": "no", **options,
    }  # fmt: skip
    dataset = settings.pop("train_dataset", None) or examples(2 * N_STEPS)
    evaluated = settings.pop("eval_dataset", None) or examples(N_EVALUATION)
    trainer = Trainer(
        Model(), TrainingArguments(str(folder), **settings), train_dataset=dataset,
        eval_dataset=evaluated, callbacks=[TransformersCallback(), At()],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    return trainer


class Stream(torch.utils.data.IterableDataset[dict[str, torch.Tensor]]):
    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return iter(examples(2 * N_STEPS))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"eval_delay": 2}, 2),
        ({"eval_strategy": "steps", "eval_steps": 2, "eval_delay": 7}, 3),
        ({"train_dataset": Stream(), "max_steps": N_STEPS * N_EPOCHS}, 3),
    ],
    ids=["late", "late-by-steps", "a-stream"],
)
def test_no_evaluation_is_planned_that_does_not_come(
    options: dict[str, Any], expected: int, page: SharedBlock, tmp_path: Path
) -> None:
    planned: list[float] = []
    train(tmp_path, lambda n: planned.append(page.phases()[0].units_planned), **options)
    assert all(units <= expected * N_EVALUATION for units in planned)
    assert planned[-1] == page.phases()[0].n_units_done == expected * N_EVALUATION
    assert landed_after(page, N_STEPS * N_EPOCHS)


def landed_after(page: SharedBlock, n_steps: int) -> bool:
    declared = page.declaration()
    return (declared.state, declared.fault, declared.total_steps, page.progress().n_steps) == (
        ProgramState.LANDED, Fault.NONE, n_steps, n_steps,
    )  # fmt: skip


def test_steps_evaluations_and_checkpoints_are_told(page: SharedBlock, tmp_path: Path) -> None:
    planned: list[dict[str, float]] = []

    def note(n: int) -> None:
        assert page.declaration().can_stop
        planned.append({phase.name: phase.units_planned for phase in page.phases()})

    train(tmp_path, note, save_strategy="epoch")
    assert landed_after(page, 12)
    assert planned[0] == {
        "evaluate": N_EPOCHS,
        "checkpoint": N_EPOCHS,
    }  # how many batches an evaluation has is not known yet
    assert planned[N_STEPS] == {"evaluate": N_EPOCHS * N_EVALUATION, "checkpoint": N_EPOCHS}
    assert [(phase.n_units_done, phase.units_planned) for phase in page.phases()] == [(6, 6), (3, 3)]


@pytest.mark.parametrize("save_strategy", ["epoch", "no", "best"])
def test_several_sets_are_one_evaluation(save_strategy: str, page: SharedBlock, tmp_path: Path) -> None:
    planned: list[dict[str, float]] = []

    def note(n: int) -> None:
        planned.append({phase.name: phase.units_planned for phase in page.phases()})

    sets = {"small": examples(1), "middle": examples(2), "large": examples(3)}
    train(
        tmp_path, note, eval_dataset=sets, save_strategy=save_strategy, metric_for_best_model="small_loss",
        greater_is_better=True,
    )  # fmt: skip
    n_kept = {"epoch": N_EPOCHS, "no": 0, "best": len(list(tmp_path.glob("checkpoint-*")))}[save_strategy]
    assert landed_after(page, 12)
    assert [(phase.n_units_done, phase.units_planned) for phase in page.phases()] == [(18, 18), (n_kept, n_kept)]
    assert [phase.n_units_measured for phase in page.phases()] == [18, n_kept]
    assert planned[N_STEPS]["evaluate"] == 18


def test_they_may_come_every_few_steps(page: SharedBlock, tmp_path: Path) -> None:
    train(tmp_path, eval_strategy="steps", eval_steps=5, save_strategy="steps", save_steps=6)
    assert landed_after(page, 12)
    evaluate, checkpoint = page.phases()
    assert evaluate.n_units_done in {4, 6}  # older versions do not evaluate after the last step
    assert (evaluate.units_planned, checkpoint.units_planned) == (evaluate.n_units_done, checkpoint.n_units_done)
    assert checkpoint.n_units_done == 2


@pytest.mark.parametrize("n_before", [1, 4, 6, 11, 12])
def test_a_training_that_is_stopped_goes_on_where_it_was(
    n_before: int, page: SharedBlock, restart: Callable[[], None], tmp_path: Path
) -> None:
    seen: list[int] = []

    def stop_at(n: int) -> None:
        seen.append(n)
        if n == n_before:
            page.send(Directives(stop=True))

    with pytest.raises(SystemExit) as stopped:
        train(tmp_path, stop_at)
    assert (stopped.value.code, page.progress().n_steps) == (143, n_before)
    n_evaluated = page.phases()[0].n_units_done
    restart()
    trainer = train(tmp_path, seen.append)
    assert seen == [*range(1, 13)]
    assert trainer.state.global_step == 12
    assert landed_after(page, 12)
    assert n_evaluated + page.phases()[0].n_units_done == N_EPOCHS * N_EVALUATION


def test_a_training_that_makes_room_says_so(page: SharedBlock, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        train(tmp_path, lambda n: page.send(Directives(leave=True)))
    assert (left.value.code, page.declaration().state) == (79, ProgramState.LEFT)


def test_a_loss_that_is_reached_ends_the_training(
    page: SharedBlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "1.5")
    train(tmp_path, logging_strategy="steps", logging_steps=1)
    assert page.declaration().state == ProgramState.LANDED
    assert page.progress().n_steps == 4  # told after the third step, it ends after the next


def test_an_evaluation_of_the_script_is_a_phase_too(page: SharedBlock, tmp_path: Path) -> None:
    train(tmp_path, eval_strategy="no").evaluate()
    assert page.phases()[0].n_units_done == N_EVALUATION
    assert page.declaration().state == ProgramState.LANDED


def test_without_punctual_nothing_changes(tmp_path: Path) -> None:
    from punctual.integrations.transformers import last_checkpoint

    assert train(tmp_path).state.global_step == 12
    assert last_checkpoint(tmp_path / "missing") is None
