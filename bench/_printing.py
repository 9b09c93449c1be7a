"""A training that cannot be changed: it prints "step 12/300" and knows nothing of Punctual. Usage: N_STEPS [STEP_MS]."""

import sys
import time


def main(n_steps: int, step_ms: float) -> None:
    for i in range(n_steps):
        until_s = time.process_time() + step_ms / 1000
        while time.process_time() < until_s:
            pass
        print(f"step {i + 1}/{n_steps}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 16.0)
