"""What the three programs share: the loop. Each adds its data and its model."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

import torch
from _application import Application, Example
from _batches import Batches, Split
from _checkpoint import load, save
from _elastic import train_elastically
from _options import parse
from torch import Tensor, nn

import punctual

#: Evaluation batches timed before training: from the first step on it is known what an evaluation will cost.
_N_REHEARSAL_BATCHES = 2


class Training:
    """A model, its optimiser, and what is done with a batch."""

    def __init__(self, application: Application, example: Example, options: Namespace) -> None:
        self._options = options
        self._example = example
        self.model = application.build_model(example)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=application.learning_rate)

    def step(self, batch: Split, cost_factor: float) -> float:
        """One training step; its loss."""
        self._repeat(batch, cost_factor - 1)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self._loss(batch)
        torch.autograd.backward(loss)
        self.optimiser.step()
        return loss.item()

    def _repeat(self, batch: Split, n_times: float) -> None:
        """Do the work of a step again without learning from it; the last part of it on a part of the rows."""
        while n_times > 0:
            n_rows = round(min(n_times, 1) * len(batch))
            if n_rows:
                torch.autograd.backward(self._loss(batch.rows(slice(n_rows))))
            n_times -= 1

    @torch.no_grad()
    def n_right(self, batch: Split) -> int:
        """Targets of the batch that the model predicts."""
        return int((self.model(batch.inputs).argmax(-1) == batch.targets).sum())

    def _loss(self, batch: Split) -> Tensor:
        scores = self.model(batch.inputs)
        return nn.functional.cross_entropy(scores.flatten(0, -2), batch.targets.flatten())

    def evaluate(self, *, is_rehearsal: bool = False) -> float:
        """Fraction of the held-out targets that the model predicts."""
        batches = self.held_out_batches()[: _N_REHEARSAL_BATCHES if is_rehearsal else None]
        self.model.eval()
        n_right = n_targets = 0
        with punctual.phase("evaluate", units=len(batches), rehearsal=is_rehearsal) as progress:
            for batch in batches:
                n_right += self.n_right(batch)
                n_targets += batch.targets.numel()
                progress.advance()
        self.model.train()
        return n_right / n_targets

    def held_out_batches(self) -> list[Split]:
        return self._example.held_out.batches(self._options.batch_size)

    def checkpoint(self, n_steps: int) -> None:
        """Save what is needed to go on after `n_steps` steps."""
        if self._options.checkpoint_dir:
            save(self._options.checkpoint_dir, self.model, self.optimiser, n_steps)


def train(application: Application, options: Namespace) -> nn.Module:
    """Train as the options say; the trained model."""
    torch.manual_seed(options.seed)
    example = application.load_example(options.data, options.seed)
    training = Training(application, example, options)
    start_step = load(options.checkpoint_dir, training.model, training.optimiser) if options.resume else 0
    training.evaluate(is_rehearsal=True)
    _run(training, Batches(example.train, options, start_step), options, start_step)
    return training.model


def _run(training: Training, batches: Batches, options: Namespace, start_step: int) -> None:
    phases = {"evaluate": punctual.Phase(units=len(training.held_out_batches())), "checkpoint": punctual.Phase()}
    run = punctual.track(batches, epochs=options.epochs, start_step=start_step, phases=phases)
    if options.checkpoint_dir:
        punctual.on_stop(lambda: training.checkpoint(run.step + 1))
    change_step = options.step_cost_change_at * options.epochs * len(batches)
    for batch in run:
        loss = training.step(batch, options.step_cost_factor if run.step >= change_step else 1.0)
        if run.epoch_ended:
            accuracy = training.evaluate()
            with punctual.phase("checkpoint"):
                training.checkpoint(run.step + 1)
            print(f"epoch {run.epoch + 1}/{options.epochs}  loss {loss:.3f}  accuracy {accuracy:.3f}", flush=True)


def main(application: Application, arguments: Sequence[str] | None = None) -> None:
    """Run as a program: train, then leave at once.

    Everything is saved by then, and the interpreter with torch in it takes a second and more to take itself apart.
    """
    options = parse(application.name, application.n_steps_per_epoch, application.n_rows_per_batch, arguments)
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    if options.elastic:
        train_elastically(application, options)
    else:
        train(application, options)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
