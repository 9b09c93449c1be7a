"""An elastic training whose speed is measured: it leaves its steps a second, watched in each worker, in a file of it."""

import json
import sys
import time
from pathlib import Path

import torch
from _speed_runs import GLOBAL_BATCH, LOCAL_BATCH, N_WARM, WIDTH, Effort, Watch, enter, make_model
from torch import Tensor

import punctual
from punctual.elastic_training.context import Context


class SameSamples:
    """As many samples as are asked for, of which all are the same tensor's rows."""

    def __init__(self) -> None:
        self._rows = torch.randn(GLOBAL_BATCH, WIDTH)

    def __len__(self) -> int:
        return 1_000_000

    def __getitems__(self, numbers: list[int]) -> list[Tensor]:
        return list(self._rows[: len(numbers)])


def train(context: Context) -> None:
    torch.set_num_threads(1)
    options = json.loads(sys.argv[1])
    folder, is_synchronous, n_workers = Path(options["folder"]), options["is_synchronous"], options["n_workers"]
    model, watch = make_model(), Watch(Effort(**options["effort"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    batch = GLOBAL_BATCH if is_synchronous else LOCAL_BATCH * n_workers
    with context.elastic(model=model, optimizer=optimizer, synchronous=is_synchronous, virtual_ranks=n_workers) as run:
        for inputs in run.batches(SameSamples(), global_batch_size=batch, shuffle=False, collate=torch.stack):
            run.backward(run.model(inputs).square().mean())
            run.step()
            if run.step_number == N_WARM:  # all are there, and nobody is imported at a tenth of a core
                (folder / f"ready-{run.rank}").touch()
                while not (folder / "go").exists():
                    time.sleep(0.01)
                enter(options["entrances"][run.rank])
            if watch.is_over() and not (folder / f"{run.rank}.json").exists():
                (folder / "new").write_text(json.dumps(watch.rate_sps))
                (folder / "new").rename(folder / f"{run.rank}.json")


if __name__ == "__main__":
    punctual.elastic(train)
