"""Lines of a plain loop that are left in an elastic one: errors where they would spoil it, and nothing where they do not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.elastic_training.test_one_worker import mean_loss, run_of
from tests.elastic_training.trainings import tensors
from torch import Tensor, nn

from punctual.elastic_training.run import ElasticRun

#: What the body of the loop is given: the run, its optimizer, and a batch.
Body = Callable[[ElasticRun, torch.optim.Optimizer, Tensor, Tensor], object]


pytestmark = pytest.mark.usefixtures("one_thread")


def learn(run: ElasticRun, inputs: Tensor, targets: Tensor) -> bool:
    run.backward(mean_loss(run.model, inputs, targets))
    return run.step()


def trained(body: Body, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with run_of(model, optimizer=optimizer, **options) as run:
        for _ in run.epochs(2):
            for inputs, targets in run.batches(tensors(), global_batch_size=32):
                body(run, optimizer, inputs, targets)
    return model


def clear_by_hand(model: nn.Module) -> None:
    for param in model.parameters():
        param.grad = None


def zero_data(model: nn.Module) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.data.zero_()


CLEARINGS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], object]] = {
    "optimizer.zero_grad()": lambda model, optimizer: optimizer.zero_grad(),
    "optimizer.zero_grad(set_to_none=False)": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "model.zero_grad()": lambda model, optimizer: model.zero_grad(),
    "param.grad = None": lambda model, optimizer: clear_by_hand(model),
}


def before(clear: Any) -> Body:
    """Where most loops have it."""

    def body(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        clear(run.model, optimizer)
        learn(run, inputs, targets)

    return body


def between(clear: Any) -> Body:
    def body(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        run.backward(mean_loss(run.model, inputs, targets))
        clear(run.model, optimizer)
        run.step()

    return body


def after(clear: Any) -> Body:
    def body(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        learn(run, inputs, targets)
        clear(run.model, optimizer)

    return body


@pytest.mark.parametrize("name", CLEARINGS)
@pytest.mark.parametrize(("where", "i_part"), [(before, 2), (between, 1), (after, 2)])
def test_gradients_that_are_cleared_between_the_parts_of_a_step_are_an_error_in_the_first_one(
    name: str, where: Callable[[Any], Body], i_part: int
) -> None:
    with pytest.raises(
        ValueError, match=rf"a cleared one of '0.weight' for part {i_part} of 8 of step 1\. Delete"
    ) as caught:
        trained(where(CLEARINGS[name]))
    assert "optimizer.zero_grad()" in str(caught.value)


@pytest.mark.parametrize("options", [{"deterministic": True}, {"virtual_ranks": 1}, {"fuse": False}])
def test_gradients_that_are_cleared_before_a_step_are_an_error_however_it_is_cut(options: dict[str, Any]) -> None:
    for clear in (*CLEARINGS.values(), lambda model, _: zero_data(model)):
        with pytest.raises(ValueError, match=r"a cleared one of '.*' for part 1 of . of step 1"):
            trained(between(clear), **options)


@pytest.mark.parametrize("name", CLEARINGS)
@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"virtual_ranks": 1}])
def test_to_clear_what_is_not_there_is_no_error(name: str, options: dict[str, Any]) -> None:
    clear = CLEARINGS[name]

    def at_the_top(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        if not seen or seen[-1]:
            clear(run.model, optimizer)
        seen.append(learn(run, inputs, targets))

    def at_the_bottom(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        if learn(run, inputs, targets):
            clear(run.model, optimizer)

    seen: list[bool] = []
    expected = trained(lambda run, _, inputs, targets: learn(run, inputs, targets), **options)
    for body in (at_the_top, at_the_bottom):
        model = trained(body, **options)
        assert all(
            torch.equal(mine, other) for mine, other in zip(model.parameters(), expected.parameters(), strict=True)
        )


def test_where_each_virtual_rank_is_summed_up_by_itself_clearing_between_them_is_none_either() -> None:
    for clear in CLEARINGS.values():
        for where in (before, after):
            trained(where(clear), deterministic=True)


def clip(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    run.backward(mean_loss(run.model, inputs, targets))
    nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
    run.step()


def add_another_loss(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    torch.autograd.backward(run.model(inputs).square().mean())
    learn(run, inputs, targets)


def replace(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    run.backward(mean_loss(run.model, inputs, targets))
    for param in run.model.parameters():
        assert param.grad is not None
        param.grad = param.grad.sign()
    run.step()


@pytest.mark.parametrize("body", [clip, add_another_loss, replace])
@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"virtual_ranks": 1}])
def test_gradients_that_are_changed_are_an_error_too(body: Body, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"another one of '0\.weight' .* run\.step\(clip_norm=\.\.\.\)"):
        trained(body, **options)


def step_before(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    run.backward(mean_loss(run.model, inputs, targets))
    optimizer.step()
    run.step()


def step_after(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    learn(run, inputs, targets)
    optimizer.step()


@pytest.mark.parametrize("body", [step_before, step_after])
def test_a_step_by_the_script_is_an_error(body: Body) -> None:
    with pytest.raises(ValueError, match=r"stepped by `run\.step`.* Delete `optimizer\.step\(\)`"):
        trained(body)


def test_gradients_are_not_scaled_and_a_scaler_that_is_switched_off_does_nothing() -> None:
    def body(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        run.backward(scaler.scale(mean_loss(run.model, inputs, targets)))
        run.step()

    scaler = torch.amp.GradScaler("cpu", enabled=False)
    trained(body)
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(ValueError, match=r"must not scale its gradients: .* Train in bfloat16 or float32"):
        trained(body)
    assert float(scaler.scale(torch.ones(()))) == 65536.0, "afterwards it does again"


def test_afterwards_gradients_and_optimizers_are_the_scripts_again() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with run_of(model, optimizer=optimizer) as run:
        for inputs, targets in run.batches(tensors(), global_batch_size=32):
            learn(run, inputs, targets)
    before_it = model.weight.detach().clone()
    torch.autograd.backward(model(torch.ones(1, 6)).sum())
    optimizer.step()
    assert not torch.equal(model.weight, before_it)


def test_parameters_that_come_later_are_refused() -> None:
    def body(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        if learn(run, inputs, targets):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})

    with pytest.raises(ValueError, match=r"before `context\.elastic`: got 5 instead of 4"):
        trained(body)


def test_gradients_that_the_script_looks_at_before_a_step_are_no_part_of_it() -> None:
    def body(run: ElasticRun, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
        if learn(run, inputs, targets):
            torch.autograd.backward(mean_loss(run.model, inputs, targets))
            assert run.model.get_parameter("0.weight").grad is not None

    expected = trained(lambda run, _, inputs, targets: learn(run, inputs, targets))
    assert all(
        torch.equal(mine, other) for mine, other in zip(trained(body).parameters(), expected.parameters(), strict=True)
    )
