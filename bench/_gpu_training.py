"""Train for bench/gpu.py, on a GPU (`cuda`, `cuda-narrow`) or on a device that is none (`stand-in`). A program of its own.

``calibrate KIND STEP_S``: how much work a step of that length is, and what it takes.
``train KIND WORK N_STEPS [--wait] [--bytes N]``: train; ask for each loss; take so much memory after a few steps.
``elastic KIND FOLDER``: workers share the device; the first epoch ends with a file `begun` and a wait for the file `go`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import punctual

#: Steps before the memory is taken.
_N_BEFORE_BYTES = 5


class Trainer(Protocol):
    """A training on one kind of device: a step is queued, waited for; memory is taken."""

    def step(self) -> None: ...
    def wait(self) -> None: ...
    def allocate(self, n_bytes: int) -> object: ...


class CudaTrainer:
    """A multilayer perceptron; a step has `work` passes before its update. Narrow layers do not fill a device."""

    def __init__(self, work: float, width: int) -> None:
        import torch

        torch.manual_seed(0)
        self._torch, self._n_passes = torch, round(work)
        layers = [torch.nn.Linear(width, width) for _ in range(4)]
        self._model = torch.nn.Sequential(*layers).to("cuda", dtype=torch.bfloat16)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), fused=True)
        self._inputs = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)

    def step(self) -> None:
        for _ in range(self._n_passes):
            self._model(self._inputs).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def allocate(self, n_bytes: int) -> object:
        return self._torch.empty(n_bytes, dtype=self._torch.uint8, device="cuda")


class StandInTrainer:
    """Work of `work` seconds a step."""

    def __init__(self, work: float) -> None:
        from punctual.testing.stand_in_device import StandInDevice

        self._device, self._work_s = StandInDevice(os.environ["PUNCTUAL_STAND_IN"]), work
        punctual.use_device(self._device)
        self._device.allocate(2**28)

    def step(self) -> None:
        for _ in range(2):
            self._device.launch(self._work_s / 2)

    def wait(self) -> None:
        self._device.synchronize()

    def allocate(self, n_bytes: int) -> object:
        self._device.allocate(n_bytes)
        return n_bytes


_TRAINERS: dict[str, Callable[[float], Trainer]] = {
    "cuda": partial(CudaTrainer, width=8192),
    "cuda-narrow": partial(CudaTrainer, width=1024),
    "stand-in": StandInTrainer,
}


def calibrate(kind: str, step_s: float) -> None:
    """Print the work of a step that takes about `step_s`, and what it takes."""
    if kind == "stand-in":
        print(json.dumps({"work": step_s, "step_s": step_s, "took_s": 0.0}))
        return
    trainer = _TRAINERS[kind](1)
    trainer.step()
    trainer.wait()
    begun = time.monotonic()
    once_s = _timed(trainer, 20)
    work = max(1, round(step_s / once_s))
    trainer = _TRAINERS[kind](work)
    step_s = _timed(trainer, max(5, round(1.0 / step_s)))
    print(json.dumps({"work": work, "step_s": step_s, "took_s": time.monotonic() - begun}))


def _timed(trainer: Trainer, n_steps: int) -> float:
    """Seconds a step, after as many that do not count."""
    seconds = 0.0
    for _ in range(2):
        trainer.wait()
        begun = time.perf_counter()
        for _ in range(n_steps):
            trainer.step()
        trainer.wait()
        seconds = (time.perf_counter() - begun) / n_steps
    return seconds


def train(kind: str, work: float, n_steps: int, *, waits: bool, n_bytes: int, ready: Path | None) -> None:
    """Train, and print when the first and the last step were done."""
    trainer = _TRAINERS[kind](work)
    held: list[object] = []
    trainer.step()
    trainer.wait()
    if ready is not None:  # several trainings begin together
        (ready / str(os.getpid())).touch()
        while not (ready / "go").exists():
            time.sleep(0.002)
    begun = time.monotonic()
    for i in punctual.track(range(n_steps), total_steps=n_steps):
        trainer.step()
        if waits:
            trainer.wait()
        if n_bytes and i == _N_BEFORE_BYTES:
            held.append(trainer.allocate(n_bytes))
    trainer.wait()
    print(json.dumps({"trained": n_steps, "wall_s": time.monotonic() - begun}), flush=True)


def train_elastically(context: Any) -> None:
    """Train in every worker; the weights' bits do not depend on their number."""
    import torch

    kind, folder = sys.argv[2], Path(sys.argv[3])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
    if kind == "cuda":
        model.to("cuda")
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    dataset = torch.utils.data.TensorDataset(torch.rand(256, 8, generator=generator), torch.ones(256, 1))
    with context.elastic(model=model, optimizer=optimizer, deterministic=True, virtual_ranks=4) as run:
        for _epoch in run.epochs(20):
            for inputs, targets in run.batches(dataset, global_batch_size=32, seed=0):
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
            (folder / "begun").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)
        bits = sum(int(param.detach().view(torch.int32).to(torch.int64).sum()) for param in model.parameters())
        run.print(json.dumps({"steps": run.step_number, "device": run.device.type, "bits": bits}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("calibrate", "train"))
    parser.add_argument("kind", choices=sorted(_TRAINERS))
    parser.add_argument("work", type=float)
    parser.add_argument("n_steps", type=int, nargs="?", default=0)
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--ready", type=Path)
    options = parser.parse_args()
    if options.what == "calibrate":
        calibrate(options.kind, options.work)
    else:
        train(
            options.kind, options.work, options.n_steps, waits=options.wait, n_bytes=options.bytes, ready=options.ready
        )


if __name__ == "__main__":
    if sys.argv[1] == "elastic":
        punctual.elastic(train_elastically)
    else:
        main()
