"""What a step is made of: every sample in one virtual rank, every virtual rank with one worker, one sum for all."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from punctual.channel import WORKERS_VARIABLE
from punctual.elastic_training.prefetcher import SampleOrder
from punctual.elastic_training.random_state import mixed
from punctual.elastic_training.replica import put_together, take_apart
from punctual.elastic_training.virtual_ranks import RankNumber, TreeSum, cut, places_of, roots_of, share


@given(st.integers(1, 300), st.integers(1, 64), st.integers(0, 5))
def test_an_epoch_is_every_sample_once(n_samples: int, batch_size: int, epoch: int) -> None:
    order = SampleOrder(n_samples, batch_size, seed=3)
    steps = [order.samples(epoch, i) for i in range(order.n_steps)]
    assert sorted(torch.cat(steps).tolist()) == list(range(n_samples))
    assert all(len(step) == batch_size for step in steps[:-1])


def test_orders_differ_by_seed_and_epoch_and_not_by_what_was_asked_before() -> None:
    order = SampleOrder(100, 10, seed=3)
    first = order.samples(0, 0)
    assert not torch.equal(first, order.samples(1, 0))
    assert torch.equal(first, order.samples(0, 0))
    assert not torch.equal(first, SampleOrder(100, 10, seed=4).samples(0, 0))
    assert SampleOrder(5, 3, seed=0, shuffles=False).samples(7, 1).tolist() == [3, 4]


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_shares_make_up_the_step_whoever_has_them(n_samples: int, n_ranks: int, data: st.DataObject) -> None:
    batch_size = data.draw(st.integers(max(n_samples, n_ranks), 60))
    n_workers = data.draw(st.integers(1, n_ranks))
    is_fused, n_max = data.draw(st.booleans()), data.draw(st.none() | st.integers(1, 20))
    places = places_of(n_samples, batch_size, n_ranks)
    shares = [share(places, ranks, is_fused=is_fused, n_samples_max=n_max) for ranks in cut(n_ranks, n_workers)]
    parts = [part for parts in shares for part in parts if part.weight]
    assert [i for part in parts for piece in part.pieces for i in piece.places] == list(range(n_samples))
    assert sum(part.weight for part in parts) == pytest.approx(1)
    assert all(part.weight == pytest.approx(part.n_samples / n_samples) for part in parts)
    assert all(part.n_samples <= (n_max or n_samples) for part in parts)
    assert all([part.is_last for part in parts] == [False] * (len(parts) - 1) + [True] for parts in shares)
    largest = max(len(ranks) for ranks in places)
    assert largest <= -(-batch_size // n_ranks), "no virtual rank is ever larger than in a whole batch"


def test_a_virtual_ranks_pieces_do_not_depend_on_who_has_it() -> None:
    places = places_of(50, 50, 5)
    by_workers = [
        {
            piece
            for ranks in cut(5, n)
            for part in share(places, ranks, is_fused=True, n_samples_max=7)
            for piece in part.pieces
        }
        for n in (1, 2, 3, 5)
    ]
    assert all(pieces == by_workers[0] for pieces in by_workers)


@pytest.mark.parametrize("n_leaves", range(1, 14))
def test_the_tree_adds_in_the_same_order_for_any_number_of_workers(n_leaves: int) -> None:
    def order(n_workers: int) -> str:
        whole: TreeSum[str] = TreeSum(n_leaves, lambda left, right: f"({left}+{right})")
        for leaves in cut(n_leaves, n_workers):
            own: TreeSum[str] = TreeSum(n_leaves, lambda left, right: f"({left}+{right})")
            for i in leaves:
                own.put_leaf(i, str(i))
            assert [(root.level, root.index) for root in own.roots] == roots_of(leaves, n_leaves)
            for root in own.roots:
                whole.put(root)
        return whole.total

    orders = {order(n_workers) for n_workers in range(1, n_leaves + 1)}
    assert len(orders) == 1
    assert orders.pop().count("+") == n_leaves - 1


@pytest.mark.parametrize(
    ("most", "is_deterministic", "n"),
    [(None, True, 8), (None, False, 8), ("2", True, 2), ("2", False, 8), ("12", True, 12), ("12", False, 12)],
)
def test_there_are_virtual_ranks_for_all_workers_and_no_more_than_need_be_where_they_cost(
    monkeypatch: pytest.MonkeyPatch, most: str | None, is_deterministic: bool, n: int
) -> None:
    monkeypatch.delenv(WORKERS_VARIABLE, raising=False)
    if most:
        monkeypatch.setenv(WORKERS_VARIABLE, most)
    assert RankNumber.chosen(None, is_deterministic=is_deterministic).n == n
    assert RankNumber.chosen(12, is_deterministic=is_deterministic) == RankNumber(12)


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_fewer_virtual_ranks_than_there_may_be_workers_are_refused_before_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, is_deterministic: bool
) -> None:
    monkeypatch.setenv(WORKERS_VARIABLE, "4")
    with pytest.raises(ValueError, match="got 3 for a training of up to 4 workers"):
        RankNumber.chosen(3, is_deterministic=is_deterministic)


def test_a_training_keeps_the_number_it_began_with_if_that_is_enough() -> None:
    assert RankNumber(5).after(8) == 5
    assert RankNumber(4, n_least=4).after(8) == 8
    assert RankNumber(4, n_least=4).after(2) == 4
    assert RankNumber(8, n_least=0).after(2) == 2


def test_seeds_have_nothing_in_common() -> None:
    seeds = {mixed(*numbers) for numbers in itertools.product(range(8), repeat=4)}
    assert len(seeds) == 8**4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_nested_values_come_back_as_they_went() -> None:
    from collections import Counter

    value = {"a": [1, (2.5, None, "x")], 3: {"b": torch.arange(3)}, "c": Counter({5: 2}), "d": torch.tensor(1.0)}
    tensors: dict[str, torch.Tensor] = {}
    plain = take_apart(value, "v", tensors)
    back = put_together(plain, tensors)
    assert sorted(tensors) == ["v/3/b", "v/d"]
    assert back[3].pop("b").tolist() == [0, 1, 2]
    assert back.pop("d") == 1
    assert back == {"a": [1, (2.5, None, "x")], 3: {}, "c": Counter({5: 2})}
    with pytest.raises(
        ValueError, match="must be made of tensors, numbers, texts, lists and mappings: got set for 'v/a'"
    ):
        take_apart({"a": {1}}, "v", {})
