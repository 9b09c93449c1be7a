"""The command line of the three programs."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path


def parse(name: str, n_steps_per_epoch: int, n_rows_per_batch: int, arguments: Sequence[str] | None) -> Namespace:
    """The options, of a program with these defaults."""
    parser = ArgumentParser(prog=f"python examples/{name}.py", description=f"Train the {name} example.")
    add = parser.add_argument
    add("--epochs", type=_above_zero, default=4, metavar="N")
    add("--steps-per-epoch", type=_above_zero, default=n_steps_per_epoch, metavar="N", help="default: %(default)s")
    add("--batch-size", type=_above_zero, default=n_rows_per_batch, metavar="N", help="default: %(default)s")
    add("--threads", type=_above_zero, default=1, metavar="N", help="threads of PyTorch; default: %(default)s")
    add("--seed", type=int, default=0, help="of data, model and order; default: %(default)s")
    add("--data", type=Path, metavar="DIR", help="folder of a real data set; default: data that needs no download")
    add("--checkpoint-dir", type=Path, metavar="DIR", help="where to save after each epoch")
    add("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    add(
        "--elastic",
        action="store_true",
        help="train with a number of workers that may change; see --workers of Punctual",
    )
    add(
        "--deterministic",
        action="store_true",
        help="with --elastic: the same to the last bit for any number of workers",
    )
    costs = parser.add_argument_group("for benchmarks, unknown to Punctual")
    costs.add_argument("--step-cost-factor", type=float, default=1.0, metavar="F", help="a step does F times the work")
    costs.add_argument("--step-cost-change-at", type=float, default=0.0, metavar="FRAC", help="from here on (0..1)")
    options = parser.parse_args(arguments)
    if options.resume and not options.checkpoint_dir:
        parser.error("--resume needs --checkpoint-dir: where the checkpoint is")
    if options.deterministic and not options.elastic:
        parser.error("--deterministic needs --elastic: one worker is deterministic in any case")
    return options


def _above_zero(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"must be 1 or more: got {number}")
    return number
