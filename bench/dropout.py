"""Measure what it gains that an elastic training draws the masks of dropout itself, on models of a usual size.

Ways of taking a step, in one process and step by step in turns, so that all see the same machine:

- *plain*: a loop with torch's dropout, the whole batch in one pass;
- *default*: elastic, with masks that belong to the virtual ranks, so that all eight go through the model in one pass;
- *fuse=False*: elastic with torch's dropout, so that virtual ranks go one by one: eight, and as few as two workers need.

Processor time counts, of one thread, as the ratio of a step to the step of another way in the same turn.
"""

import statistics
import sys
from typing import Any

from _common import Results, conclude, markdown_table, parser, print_table, stamp_text, write_results

#: Below this gain on all models torch's functions would not be replaced by default.
GAIN_MIN = 0.05
WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "default": {},
    "fuse=False": {"fuse": False},
    "fuse=False, 2 ranks": {"fuse": False, "virtual_ranks": 2},
}
HEADS = [
    "model", "default, ms", "fuse=False / default", "the same with 2 ranks", "default / plain", "fuse=False / plain",
]  # fmt: skip
PAIRS = (("fuse=False", "default"), ("fuse=False, 2 ranks", "default"), ("default", "plain"), ("fuse=False", "plain"))


def ratio(turns: list[list[float]], way: str, over: str) -> tuple[float, str]:
    """The median, and how it is written with the quartiles."""
    i, j = list(WAYS).index(way), list(WAYS).index(over)
    low, middle, high = statistics.quantiles([turn[i] / turn[j] for turn in turns], n=4)
    return middle, f"{middle:.2f} ({low:.2f}–{high:.2f})"


def rows_of(results: Results) -> list[list[str]]:
    return [
        [
            name, f"{statistics.median(turn[1] for turn in turns) * 1e3:.0f}",
            *(ratio(turns, *pair)[1] for pair in PAIRS),
        ]
        for name, turns in results["turns"].items()
    ]  # fmt: skip


def most_gain(results: Results) -> float:
    """Return the largest gain of the default over two virtual ranks one by one, among all models."""
    return max(ratio(turns, "fuse=False, 2 ranks", "default")[0] - 1 for turns in results["turns"].values())


def figures(results: Results) -> str:
    return f"gain of the default, at most {most_gain(results):.0%} over two virtual ranks one by one (kept from {GAIN_MIN:.0%} on)"


def page(results: Results) -> str:
    n_turns = min(map(len, results["turns"].values()))
    text = ["<!-- made by bench/dropout.py -->", "", figures(results), "", *markdown_table(HEADS, rows_of(results)), ""]
    return "\n".join([*text, f"Medians and quartiles of {n_turns} turns. {stamp_text(results)}", ""])


def main() -> int:
    options = parser(__doc__.splitlines()[0]).parse_args()
    import torch
    from _dropout_steps import CASES, N_TURNS, measured

    torch.set_num_threads(1)
    n_turns = 2 if options.quick else N_TURNS
    cases = list(CASES.items())[-2 if options.quick else 0 :]  # the others take seconds a step
    turns = {name: measured(case, WAYS.values(), n_turns) for name, case in cases}
    results = write_results("dropout", {"ways": list(WAYS), "turns": turns}, page, quick=options.quick)
    print_table(HEADS, rows_of(results))
    gain = most_gain(results)
    return conclude(figures(results), [f"gain of the default: {gain:.1%}"] if gain < GAIN_MIN else [])


if __name__ == "__main__":
    sys.exit(main())
