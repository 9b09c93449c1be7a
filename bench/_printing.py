"""A training that cannot be changed: it prints "step 12/300" and knows nothing of Punctual. Usage: N_STEPS."""

import sys

import torch


def main(n_steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(128, 512)
    for i in range(n_steps):
        for _ in range(4):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch), batch).backward()
            optimizer.step()
        print(f"step {i + 1}/{n_steps}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
