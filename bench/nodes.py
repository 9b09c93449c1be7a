"""Measure what it costs that the workers of an elastic job are on two nodes: a step, and a change from one node to two and back.

Three trainings of the same program, one after the other in each round: two workers on one node, which share memory; one on
each of two nodes, which are connected over the loopback interface by TLS, as always; and the same by plain TCP. Both nodes
are this machine, so there is no network between them, and they share its cores, on which encryption is done too.

A change lasts from the last step before it to the end of the first step after it, that step included. When a worker joins,
the state of the training, weights and AdamW's moments, is sent to it.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _agent import Agent
from _common import Results, conclude, markdown_table, parser, print_table, stamp_text, write_results

from punctual.channel import GROUP_KEY_VARIABLE, GROUP_VARIABLE, NODE_ADDRESS_VARIABLE

WAYS = {"one node": "tls", "two nodes, TLS": "tls", "two nodes, plain TCP": "open"}
ADDRESS = "127.0.0.1"
SCRIPT = str(Path(__file__).with_name("_two_nodes_training.py"))
#: Most that a change may take.
STOP_S_MAX = 1.0
N_STEPS = 30


class Training:
    """A training of one worker, whose others are on the same node, or each on another: one agent on each node."""

    def __init__(self, folder: Path, words: Sequence[str], *, spans_nodes: bool) -> None:
        self.first = self.other = self._node(folder / "first", words, {})
        self.n_alone = 1
        if spans_nodes:
            group = self.first.page.group()
            assert group is not None
            port, key = group
            variables = {GROUP_VARIABLE: f"{ADDRESS}:{port}", GROUP_KEY_VARIABLE: key.hex()}
            self.other, self.n_alone = self._node(folder / "other", words, variables), 0
            self.resize(self.n_alone)

    def _node(self, path: Path, words: Sequence[str], variables: dict[str, str]) -> Agent:
        variables = {NODE_ADDRESS_VARIABLE: ADDRESS, **variables}
        agent = Agent(path, [sys.executable, *words], target={"spans_nodes": True}, variables=variables)
        agent.await_answer()
        return agent

    def resize(self, n_workers: int) -> float:
        """Change the number of workers of the other node; return for how many seconds training stood still."""
        before_ns = self.first.page.worker_status().last_stop_ns
        self.other.send_target(n_workers)
        self.other.await_answer(lambda _: self.first.page.worker_status().last_stop_ns != before_ns)
        return self.first.page.worker_status().last_stop_ns / 1e9

    def step_s(self, n_steps: int) -> float:
        """Return how long a step takes."""
        begun_at = self.first.train_on(3)
        return (self.first.train_on(n_steps) - begun_at) / n_steps

    def close(self) -> None:
        for node in {self.other, self.first}:
            node.close()


def measure(n_rounds: int, n_changes: int) -> dict[str, dict[str, list[float]]]:
    seen: dict[str, dict[str, list[float]]] = {name: {"grow": [], "shrink": [], "step": []} for name in WAYS}
    for _ in range(n_rounds):
        for name, way in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                training = Training(Path(folder), [SCRIPT, way], spans_nodes=name != "one node")
                try:
                    for _ in range(n_changes):
                        seen[name]["grow"].append(training.resize(training.n_alone + 1))
                        seen[name]["step"].append(training.step_s(N_STEPS))
                        seen[name]["shrink"].append(training.resize(training.n_alone))
                finally:
                    training.close()
    return seen


HEADS = ["40 MB, 2 workers", "grow, s (most)", "shrink, s (most)", "step, ms"]


def rows_of(results: Results) -> list[list[str]]:
    return [
        [
            name,
            f"{statistics.median(times['grow']):.3f} ({max(times['grow']):.3f})",
            f"{statistics.median(times['shrink']):.3f} ({max(times['shrink']):.3f})",
            f"{1e3 * statistics.median(times['step']):.0f}",
        ]
        for name, times in results["seconds"].items()
    ]


def page(results: Results) -> str:
    lines = markdown_table(HEADS, rows_of(results))
    return "\n".join([*lines, "", f"Medians, and the largest in brackets. {stamp_text(results)}", ""])


def main() -> int:
    quick = parser(__doc__ or "").parse_args().quick
    seen = measure(1 if quick else 2, 2 if quick else 4)
    results = write_results("nodes", {"seconds": seen}, page, quick=quick)
    print_table(HEADS, rows_of(results))
    longest = {f"{name}, {kind}": max(times[kind]) for name, times in seen.items() for kind in ("grow", "shrink")}
    on_two = {what: stop_s for what, stop_s in longest.items() if what.startswith("two nodes, TLS")}
    return conclude(
        f"longest stop by a change on two nodes: {max(on_two.values()):.2f} s (target: at most {STOP_S_MAX} s)",
        [f"{what}: {stop_s:.2f} s" for what, stop_s in on_two.items() if stop_s > STOP_S_MAX],
    )


if __name__ == "__main__":
    sys.exit(main())
