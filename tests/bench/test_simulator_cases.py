"""The hash of a simulation tells two that differ in any message, and is the same for the same one."""

from _simulator_cases import digest, rigid


def test_a_digest_is_that_of_the_messages() -> None:
    found = [digest(rigid(policy, "30", seed)) for policy, seed in (("fifo", "0"), ("fifo", "0"), ("fifo", "1"))]
    assert found[0] == found[1]
    assert found[0]["sha256"] != found[2]["sha256"]
    assert found[0]["n_messages"] > 30 * 5  # submission, launch, start, progress and end of each job
    assert digest(rigid("shortest-remaining", "30", "0"))["sha256"] != found[0]["sha256"]
