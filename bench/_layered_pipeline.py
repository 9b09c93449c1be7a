"""How long one step takes when layers are pushed to parameter servers while others still compute."""

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Layers:
    """Seconds of each layer, the first one first: forward, backward, and one transfer (push and pull are equal)."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    transfer_s: tuple[float, ...]

    def scaled(self, forward: float, backward: float, transfer: float) -> "Layers":
        """Each kind of time multiplied by a factor."""
        return Layers(
            tuple(forward * one for one in self.forward_s),
            tuple(backward * one for one in self.backward_s),
            tuple(transfer * one for one in self.transfer_s),
        )


def sequential_s(layers: Layers) -> float:
    """Backward pass, all pushes, all pulls, forward pass: nothing overlaps."""
    return sum(layers.backward_s) + 2 * sum(layers.transfer_s) + sum(layers.forward_s)


def wait_free_s(layers: Layers) -> float:
    """A layer is pushed once its gradient is there, and pulled once it has been pushed; both directions in that order.

    The recursion of wait-free back-propagation, [smd2021] Lemma 1. The last layer's gradient is there first, so the
    first layer is pulled last, and the forward pass can only start after it.
    """
    ready_s = push_s = pull_s = 0.0
    for backward_s, transfer_s in zip(reversed(layers.backward_s), reversed(layers.transfer_s), strict=True):
        ready_s += backward_s
        push_s = max(ready_s, push_s) + transfer_s
        pull_s = max(push_s, pull_s) + transfer_s
    return pull_s + sum(layers.forward_s)


def priority_s(layers: Layers, slice_s: float = 0.0) -> float:
    """Layers are cut in slices, of which the link always takes one of the lowest layer that has one.

    Pulling a slice follows pushing it, so a layer arrives `slice_s` after its push has ended, and the forward pass
    waits for each layer by itself.
    """
    now_s = 0.0
    for forward_s, pushed_s in zip(layers.forward_s, _pushed_by_priority(layers), strict=True):
        now_s = max(now_s, pushed_s + slice_s) + forward_s
    return now_s


def _pushed_by_priority(layers: Layers) -> list[float]:
    """When each layer's push ends.

    Lower layers become ready later and go first. So a layer's push ends when the link, busy with it and with lower
    layers since it was ready, first runs out of both.
    """
    ready = list(accumulate(reversed(layers.backward_s)))[::-1]
    ended = []
    for i_layer, ready_s in enumerate(ready):
        busy_s = ready_s + layers.transfer_s[i_layer]
        for i_lower in reversed(range(i_layer)):
            if busy_s <= ready[i_lower]:
                break
            busy_s += layers.transfer_s[i_lower]
        ended.append(busy_s)
    return ended
