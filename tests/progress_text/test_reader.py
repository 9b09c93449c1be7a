"""Which numbers tell how far a training is, by what holds over time."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.progress_text.reader import Belief, ProgressReader

DEADLINE_S = 1000.0


def bar(i: int, n: int, before: str = "", after: str = "") -> str:
    """A redrawn bar."""
    return f"\r{before}{100 * i // n:3d}%|{'█' * (10 * i // n):10s}| {i}/{n} [00:01<00:09, 3.1it/s{after}]"


def bars(n: int, before: str = "", after: str = "", first: int = 0) -> Iterator[str]:
    """A bar from its first to its last state."""
    yield from (bar(i, n, before, after) for i in range(first, n + 1))
    yield "\n"


def read(
    pieces: Iterable[str], *, s: float = 1.0, reader: ProgressReader | None = None, at: float = 0.0
) -> ProgressReader:
    """A reader that was fed a piece every `s` seconds."""
    reader = reader or ProgressReader(deadline_s=DEADLINE_S)
    for i, piece in enumerate(pieces):
        reader.feed(piece.encode(), at + i * s)
    return reader


def sure(reader: ProgressReader) -> tuple[float, float | None] | None:
    """What is acted on."""
    belief = reader.belief
    return (belief.steps, belief.total) if belief is not None and belief.is_sure else None


def codes(reader: ProgressReader) -> list[str]:
    return [notice.code for notice in reader.new_notices()]


# What it takes to be acted on.


def test_a_count_of_steps_is_believed_when_it_has_grown() -> None:
    reader = read(["step 1/9\n"])
    assert reader.belief == Belief(steps=1, total=9, is_sure=False)
    assert sure(read(["step 2/9\n"], reader=reader)) == (2, 9)
    assert codes(reader) == ["progress-read"]


def test_a_line_with_a_measured_value_is_believed_at_once() -> None:
    assert sure(read(["step 30/100 loss 0.3\n"])) == (30, 100)


def test_a_line_that_stands_alone_is_not_the_training() -> None:
    reader = read(["Resuming from step 80\n", "using batch 64\n", "Loaded item 3/3\n", *bars(20, first=4)], s=20)
    assert sure(reader) == (20, 20)


def test_a_bar_that_takes_a_good_part_of_the_deadline_is_the_training_s() -> None:
    reader = read(bars(100), s=0.01 * DEADLINE_S / 2)
    assert sure(reader) == (100, 100)


def test_a_bar_that_might_be_one_of_many_is_not_acted_on_and_that_is_told() -> None:
    reader = read((bar(i, 100) for i in range(61)), s=1.0)  # ten of them fit before the deadline
    assert sure(reader) is None
    assert codes(reader) == ["no-total"]
    assert "`--steps 100`" in reader.doubt()


@pytest.mark.parametrize(
    "beside",
    [
        ["Total optimization steps = 50\n"],  # said before
        [bar(0, 50), bar(30, 50), bar(31, 50)],  # it goes on where an earlier run has ended
        [bar(1, 50), bar(2, 50), "\n{'loss': 0.3, 'epoch': 0.04}\n"],  # its trainer counts over all epochs
    ],
)
def test_a_bar_that_goes_over_everything_by_other_signs_is_acted_on(beside: list[str]) -> None:
    assert sure(read([*beside, *(bar(i, 50) for i in range(32, 41))], s=0.1)) == (39, 50) or sure(
        read([*beside, *(bar(i, 50) for i in range(32, 41))], s=0.1)
    ) == (40, 50)


def test_a_number_with_which_a_count_begins_is_how_often_it_is_told() -> None:
    lines = [f"Epoch: 0, Step: {i}, loss 0.{i}\n" for i in (10, 20, 30)]
    assert sure(read(["Namespace(debug_steps=10, lr=0.1)\n", *lines[:2]])) == (20, None)
    assert sure(read(["Namespace(train_steps=30, lr=0.1)\n", *lines[:2]])) == (20, 30)


def test_a_bar_behind_another_that_only_then_is_told_to_have_been_an_epoch_is_not_the_training() -> None:
    bars = [f"\r{i}/50 [00:0{i // 10}<00:01, 10it/s]" for i in range(0, 51, 5)]
    others = [f"\r{i}/10 [00:00<00:00, 10it/s]" for i in range(11)]
    said = '"num_epochs": 20\n'
    assert sure(read([said, *bars, "\n", "Train Epoch 1\n", *others])) is None
    again = read([said, *bars, "\n", "Train Epoch 1\n", *others, "\n", "Validation Epoch 1\n", *bars[:5]])
    assert sure(again) == (70, 1000)


def test_headings_of_stages_are_not_the_training() -> None:
    """The last stage is the training, and takes longer than the others."""
    stages = [
        f"Step {i}/4: {what}\n" for i, what in enumerate(["download data", "tokenize", "build the model", "train"], 1)
    ]
    assert sure(read(stages, s=20)) is None
    assert sure(read(["Step 1/6 : FROM ubuntu:22.04\n"])) is None
    assert sure(read(["Step 1/6 : FROM ubuntu:22.04\n", "Step 2/6 : RUN pip install x==python3.10\n"])) is None
    builds = ["FROM python:3.11-slim", "RUN pip install torch", "RUN pip install numpy", "COPY src ."]
    assert sure(read([f"Step {i}/4 : {what}\n" for i, what in enumerate(builds, 1)], s=20)) is None
    assert sure(read(["step 1/4 cat.png\n", "step 2/4 dog.png loss 0.3\n"])) == (2, 4), "a measured value is a step's"


def test_of_totals_that_are_said_the_one_of_the_whole_training_is_believed() -> None:
    epochs = ["Epoch 1: loss=0.4\n", "Epoch 2: loss=0.3\n"]
    assert sure(read(["epochs: 20\n", "freeze_epochs: 5\n", *epochs])) == (2, 20)
    assert sure(read(["pretrain_epochs: 5\n", "finetune_epochs: 10\n", *epochs])) == (2, None), "they contradict"
    assert sure(read(["adam epochs: 20\n", *epochs])) == (2, 20)


@pytest.mark.parametrize(
    ("said", "counted", "right"),
    [
        ("Budget: 50 optimization steps", "step {}: loss=0.3", (9, 50)),
        ("Running for 50 training iterations", "iter {}: loss=0.3", (9, 50)),
        ("Training until step 50", "step {}: loss=0.3", (9, 50)),
        ("Will train to epoch 50", "epoch {}: loss=0.3", (9, 50)),
        ("Will run 50 updates of 2048 environment steps each", "update {}: reward=0.3", (9, 50)),
        ("Training 5 epochs of 50 steps", "epoch 1 step {}: loss=0.3", (9, 250)),
        ("Evaluation until step 50", "step {}: loss=0.3", (9, None)),
        ("Attack budget: 50 steps", "step {}: loss=0.3", (9, None)),
    ],
)
def test_a_total_is_announced_in_many_words(said: str, counted: str, right: tuple[float, float | None]) -> None:
    assert sure(read([f"{said}\n", *(f"{counted.format(i)}\n" for i in range(1, 10))])) == right


def test_a_count_of_something_that_each_holds_so_many_of_is_no_count_up_to_that_number() -> None:
    reader = read(f"epoch {e}/3: 12 batches of 64 samples, loss=0.3\n" for e in (1, 2))
    assert sure(reader) == (2, 3)


def test_bars_that_look_alike_and_take_turns_are_the_training_s_and_the_evaluation_s_behind_it() -> None:
    said = ["num_epochs: 6\n"]
    epochs = (
        piece for e in (1, 2, 3) for piece in (*bars(40), f"Train Epoch {e}\n", *bars(50), f"Validation Epoch {e}\n")
    )
    assert sure(read([*said, *epochs])) == (120, 240)


@pytest.mark.parametrize(
    ("line", "end"), [("epoch {}/3: {}% done, loss 0.3\n", 300), ("Epoch {}/3 [=====>----] {}% loss: 0.3\r", 290)]
)
def test_a_share_beside_an_epoch_is_one_of_that_epoch(line: str, end: int) -> None:
    shares = [(epoch, share) for epoch in range(1, 4) for share in range(10, 101, 10)]
    reader = read(line.format(*each) for each in shares[:15])
    assert sure(reader) == (150, 300)
    assert sure(read((line.format(*each) for each in shares[15:]), reader=reader, at=15.0)) == (end, 300)
    assert codes(reader) == ["progress-read"]
    assert reader.shortfall() is None


def test_a_share_of_right_answers_beside_an_epoch_is_none_of_it() -> None:
    assert sure(read(f"Epoch {i}/9 train {60 + i}% val 5{i}%\n" for i in range(1, 5))) == (3, 9)
    assert sure(read(f"Epoch {i}/9 ({10 * i}%) loss 0.3\n" for i in range(1, 5))) == (4, 9)


def test_without_a_deadline_there_is_nothing_to_be_careful_for() -> None:
    reader = read((bar(i, 100) for i in range(11)), s=0.01, reader=ProgressReader())
    assert sure(reader) == (10, 100)


# Nesting.


@pytest.mark.parametrize(
    ("line", "first_epoch"),
    [
        ("Epoch [{e}/3], Step [{i}/8], Loss: 0.1\n", 1),
        ("[{e}/3][{i}/8] Loss_D: 0.1\n", 0),
        ("epoch={e} epochs=3 batch={i} num_batches=8\n", 1),
        ('{{"epoch": {e}, "num_epochs": 3, "step": {i}, "total": 8, "loss": 0.1}}\n', 1),
        ("step {i}/8 of epoch {e}/3: loss 0.1\n", 1),
        ("Epoch {e}/3, task {i}/8: loss 0.1\n", 1),
        ("00:10:00.123 | INFO | __main__:train_one_epoch:88 - Epoch {e}/3 | Batch {i}/8 | loss 0.1\n", 1),
        ("train_one_epoch:88 Epoch {e}/3 Batch {i}/8 loss 0.1\n", 1),
        ("\rEpochs {e}/3. Loss: 0.1:  40%|████      | {i}/8 [00:12<00:18, 10.00it/s]", 1),
    ],
)
def test_steps_in_epochs_are_counted_over_all_epochs(line: str, first_epoch: int) -> None:
    pieces = [line.format(e=e, i=i) for e in range(first_epoch, first_epoch + 3) for i in range(1, 9)]
    reader = read([*pieces[:5], "\n"])
    assert sure(reader) == (5, 24)
    assert sure(read([*pieces[5:], "\n"], reader=reader, at=9.0)) == (24, 24)


@pytest.mark.parametrize("name", ["{e}/3 * Epoch (train)", "Epoch {e}/3", "{e}/3"])
def test_the_name_of_a_bar_tells_the_epoch(name: str) -> None:
    pieces = [piece for e in (1, 2, 3) for piece in bars(8, name.format(e=e) + ": ")]
    assert sure(read(pieces[:6])) == (5, 24)
    assert sure(read(pieces)) == (24, 24)


def test_a_bar_of_epochs_that_names_the_epoch_counts_once() -> None:
    pieces = [bar(i, 40, f"Epoch {max(i, 1)}/40: ", ", train_loss_step=309, train_loss_epoch=306") for i in range(41)]
    for n in range(1, 41):
        assert (sure(read(pieces[:n], s=5)) or (0, 40))[1] == 40


def test_a_value_in_the_name_of_a_bar_is_no_epoch() -> None:
    pieces = [bar(i, 150, f"loss 2.8 acc {i}/128: ") for i in range(9)]
    assert sure(read(pieces[:3], s=20)) == (2, None)
    assert sure(read(pieces, s=20)) == (8, 150)


def test_an_epoch_behind_a_bar_lies_around_it() -> None:
    """Also where a line before tells the epoch by its index."""
    pieces: list[str] = []
    for e in (1, 2, 3):
        pieces += [f"INFO:Epoch[{e - 1}] Learning rate is 0.001\n", bar(0, 20)]
        pieces += [*(bar(i, 20, after=f", epoch={e}/3") for i in range(1, 21)), "\n"]
    assert sure(read(pieces[:30])) == (25, 60)
    assert sure(read(pieces)) == (60, 60)


def test_several_trainings_that_count_nothing_within_are_counted_themselves() -> None:
    assert sure(read([f"run {i}/9 score 0.3\n" for i in range(1, 6)], s=50)) == (5, 9)


def test_of_numbered_stages_with_different_headings_only_some_may_be_trainings() -> None:
    steps = [f"step {i}/10 loss 0.3\n" for i in range(1, 11)]
    headings = ["Stage 1/3: preparing data\n", "Stage 2/3: training\n"]
    assert sure(read([*headings, *steps])) == (20, None)
    assert sure(read([*headings, "Stage 3/3: training\n", *steps])) == (10, 10), "none is left"


def test_epochs_of_different_lengths_are_laps_of_one_count() -> None:
    pieces = [f"epoch {e}/3 step {i}/{n} loss 0.3\n" for e, n in ((1, 10), (2, 12), (3, 9)) for i in range(1, n + 1)]
    assert sure(read(pieces[:11])) == (13, 36)
    assert sure(read(pieces)) == (27, 27)


@pytest.mark.parametrize("name", ["seed", "run", "stage", "Task", "=== Dataset"])
def test_several_trainings_that_are_numbered_are_counted_over_all(name: str) -> None:
    pieces = [text for k in (1, 2) for text in (f"{name} {k}/2\n", *(f"step {i}/10 loss 0.3\n" for i in range(1, 11)))]
    assert sure(read(pieces[:6])) == (5, 20)
    assert sure(read(pieces)) == (20, 20)


def test_what_was_over_before_a_count_began_is_not_around_it() -> None:
    tuning = [f"run {i}/30: 0.{i} ms\n" for i in range(1, 31)]
    assert sure(read([*tuning, "step 1/9 loss 0.3\n", "step 2/9 loss 0.3\n"])) == (2, 9)


def test_great_numbers_are_told_to_the_last_digit() -> None:
    reader = read([f"step {i}/1234567 loss 0.3\n" for i in (1_000_001, 1_000_002)])
    (notice,) = reader.new_notices()
    assert "1234567 steps in all" in notice.text
    missing = reader.shortfall()
    assert missing is not None
    assert "counted to 1000002 of 1234567 steps" in missing.text


def test_a_count_that_goes_down_is_not_counted() -> None:
    reader = read([f"t={i}/9\n" for i in range(9, 0, -1)], s=50)
    belief = reader.belief
    assert belief is not None
    assert belief.total is None
    assert belief.steps < 18, "what was counted before it was known to go down"


def test_epochs_that_begin_anew_are_counted_on() -> None:
    epochs = [f"epoch {e}/5 loss 0.3\n" for _ in range(2) for e in range(1, 6)]
    assert sure(read(epochs)) == (10, None)


def test_a_bar_within_an_epoch_that_takes_longer_than_the_epoch_is_not_the_training() -> None:
    epochs = [[f"Epoch {e}/2 iter {i}/10 loss 0.3\n" for i in range(1, 11)] for e in (1, 2)]
    reader = read([*epochs[0], *bars(50, "FID: "), *epochs[1][:5]])
    assert sure(reader) == (15, 20)
    assert codes(reader) == ["progress-read"]


def test_a_length_that_is_known_after_the_first_epoch_is_of_all() -> None:
    pieces = []
    for e in (1, 2, 3):
        n = "Unknown" if e == 1 else "8"
        pieces += [f"Epoch {e}/3\n", *(f"\r{i}/{n} 1s 90ms/step" for i in range(1, 9)), "\r8/8 1s 90ms/step\n"]
    assert sure(read(pieces)) == (24, 24)


def test_rows_count_up_to_the_only_number_that_was_said() -> None:
    rows = [f"{i}, train_loss={1 / (1 + i):.4f}\n" for i in range(0, 60, 10)]
    assert sure(read([">>> n_epochs=200, n_train=40\n", *rows], s=10)) == (50, 200)
    assert sure(read([">>> n_epochs=200, n_train=40\n", *rows])) == (50, None), "so few take no time: it may be more"


@pytest.mark.parametrize("header", ["Epoch {e}/3\n", "=== epoch {e} of 3 ===\n"])
def test_a_header_tells_the_epoch_of_what_follows(header: str) -> None:
    reader = read(piece for e in (1, 2, 3) for piece in [header.format(e=e), *bars(8)])
    assert sure(reader) == (24, 24)


@pytest.mark.parametrize("step", ["\r{i}/8 ━━━━ 0s 5ms/step - loss: 0.5", "Step {i}/8 loss 0.5\n"])
def test_a_line_that_tells_an_epoch_again_between_its_steps_changes_nothing(step: str) -> None:
    """Keras draws its bar once more below the line of a checkpoint."""
    reader, done = ProgressReader(deadline_s=DEADLINE_S), []
    for e in range(1, 8):
        steps = [step.format(i=i) for i in range(1, 9)]
        saved = f"\nEpoch {e}: val_loss improved from 0.5 to 0.4, saving model to best.keras\n"
        pieces = [f"Epoch {e}/7\n", *steps[:4], saved, *steps[4:], saved, steps[-1], "\n"]
        read(pieces, reader=reader, at=20.0 * e)
        done.append(sure(reader))
    assert done == [(8 * e, 56) for e in range(1, 8)]


def test_an_epoch_that_is_told_again_behind_a_bar_changes_nothing() -> None:
    """An early Keras writes the line of a checkpoint behind its bar, and counts its epochs from 0 there."""
    reader, done = ProgressReader(deadline_s=DEADLINE_S), []
    for e in range(1, 6):
        pieces = [f"Epoch {e}/5\n", *(f"\r{i}/8 [==>.] - ETA: 0s" for i in range(1, 8))]
        pieces += [f"Epoch {e - 1:05d}: val_loss improved\n", "\r8/8 [====] - 1s\n"]
        done.append(sure(read(pieces, reader=reader, at=100.0 * e)))
    assert done == [(8 * e, 40) for e in range(1, 6)]
    assert codes(reader) == ["progress-read"]


def test_an_epoch_that_is_first_told_alone_when_its_steps_begin_anew_counts_once() -> None:
    pieces = ["Epoch 1/3 (global step 0)\n", *bars(8), "Epoch 2/3\n", *bars(8)]
    assert sure(read(pieces)) == (16, 24)
    assert sure(read([*pieces, "Epoch 3/3\n", *bars(8)])) == (24, 24)


def test_a_line_after_each_epoch_tells_it_as_well() -> None:
    pieces = ["Namespace(epochs=3)\n", *(p for e in (1, 2, 3) for p in [*bars(8, "train: "), f"epoch {e} loss 0.3\n"])]
    assert sure(read(pieces)) == (24, 24)


def test_one_line_an_epoch_is_counted() -> None:
    pieces = [piece for e in (1, 2, 3) for piece in (f"Epoch {e}/3\n", "5/5 - 1s - 240ms/step - loss: 2.3\n")]
    assert sure(read(pieces[:2])) == (5, 15)
    assert sure(read(pieces)) == (15, 15)


def test_epochs_alone_are_counted() -> None:
    assert sure(read([f"Epoch {e}/9 - loss: 0.3\n" for e in (1, 2, 3)])) == (3, 9)
    assert sure(read([f"Epoch {e}/9\n" for e in (1, 2, 3)])) == (2, 9), "the third one has begun"
    headed = [line for e in (1, 2, 3) for line in (f"Epoch {e}/9\n", f"Epoch {e}/9 - loss: 0.3\n")]
    assert sure(read(headed)) == (3, 9)
    assert sure(read(headed[:-1])) == (2, 9), "the third one has begun here too"


@pytest.mark.parametrize(
    ("line", "n_epochs"),
    [
        ("Epoch {e}/9\n----------\ntrain Loss: 0.3\n", 10),
        ("Epoch {e}/9 loss: 0.3\n", 9),
        ("Epoch [{e}/9]\nLoss: 0.3\n", 9),
        ("Epoch {e}/10\nLoss: 0.3\n", 10),
        ("Epoch {e}/299 loss: 0.3\n", 300),
    ],
)
def test_epochs_from_zero_are_as_many_as_their_notation_means(line: str, n_epochs: int) -> None:
    belief = sure(read([line.format(e=e) for e in range(3)]))
    assert belief is not None
    assert belief[1] == n_epochs


def test_a_second_fit_is_counted_beside_the_first_one() -> None:
    fits = [(epoch, n_epochs) for n_epochs in (2, 3) for epoch in range(1, n_epochs + 1)]
    pieces = [piece for epoch, n in fits for piece in (f"Epoch {epoch}/{n}\n", *bars(20, first=1))]
    reader = read(pieces[: 2 * 22])
    assert sure(reader) == (40, 40)
    assert sure(read(pieces[2 * 22 : 2 * 22 + 11], reader=reader, at=44.0)) == (50, 100)
    assert sure(read(pieces[2 * 22 + 11 :], reader=reader, at=55.0)) == (100, 100)


def test_phases_of_other_lengths_are_counted_one_after_the_other() -> None:
    frozen = [f"Phase 1/2 (frozen) - step {i}/30 - loss 0.3\n" for i in range(1, 31)]
    reader = read([*frozen, *(f"Phase 2/2 (all) - step {i}/60 - loss 0.3\n" for i in range(1, 41))])
    assert sure(reader) == (70, 90)


@pytest.mark.parametrize(
    ("said", "name", "total"),
    [
        ("Namespace(epochs=9, runs=2)\n", "Run: {run}, ", 18),
        ("epochs: 9\n", "Run: {run}, ", None),  # nobody knows how many runs
        ("epochs: 9\n", "run 17, ", 9),
    ],
)
def test_epochs_of_numbered_runs_are_counted_over_all(said: str, name: str, total: int | None) -> None:
    reader = read([said, *(f"{name.format(run=1)}Epoch: {epoch}, loss 0.3\n" for epoch in range(1, 6))])
    assert sure(reader) == (5, total)


def test_a_total_of_a_part_of_the_settings_is_not_the_training_s() -> None:
    settings = "max_iterations: 60\nlinesearch.max_iterations: 20\ntrainer.max_epochs: 5\n"
    assert sure(read([settings, *(f"Iteration {i} loss 0.3\n" for i in range(1, 5))])) == (4, 60)
    assert sure(read([settings, *(f"Epoch {i} loss 0.3\n" for i in range(1, 4))])) == (3, 5)


def test_rows_of_a_training_may_begin_with_its_name() -> None:
    rows = [f"Train {i}, loss: 0.3, train acc: 0.5\nTest {i}, loss: 0.4, test acc: 0.5\n" for i in range(5)]
    assert sure(read(["Namespace(epochs=20, lr=0.1)\n", *rows], s=20)) == (5, 20)


def test_a_bar_of_epochs_lies_around_a_bar_of_steps() -> None:
    pieces = [bar(0, 3, "epochs: ") + "\n"]
    for e in range(3):
        pieces += [*bars(20, "batches: "), bar(e + 1, 3, "epochs: ") + "\n"]
    assert sure(read(pieces[:8])) == (6, 60)
    assert sure(read(pieces)) == (60, 60)


def test_a_bar_without_a_name_lies_around_another_once_both_were_seen_to_move() -> None:
    pieces = [bar(0, 3) + "\n"]
    for e in range(3):
        pieces += [*bars(20), bar(e + 1, 3) + "\n"]
    reader = read(pieces[:30])
    assert sure(reader) == (25, 60)
    assert sure(read(pieces[30:], reader=reader, at=30)) == (60, 60)


def test_a_bar_in_which_others_are_drawn_is_not_multiplied_by_them() -> None:
    pieces: list[str] = []
    for e in range(3):
        pieces += [*(bar(i, 90) for i in range(30 * e, 30 * e + 31)), "\n", *bars(6)]
    assert sure(read(pieces, s=3)) == (90, 90)


@pytest.mark.parametrize("outer", ["Trial {t}/5", "=== Round {t} of 5 ===", "Generation [{t}/5]", "Stage {t}/5"])
@pytest.mark.parametrize("inner", ["step {i}/20 loss 0.3", "Epoch {i}/20 loss 0.3"])
def test_rounds_of_any_kind_lie_around_what_is_counted_in_them(outer: str, inner: str) -> None:
    pieces = []
    for t in range(1, 6):
        pieces += [outer.format(t=t) + "\n", *(inner.format(i=i) + "\n" for i in range(1, 21))]
    reader = read(pieces[:30])
    assert sure(reader) == (28, 100)
    assert sure(read(pieces[30:], reader=reader, at=30)) == (100, 100)


def test_an_epoch_within_which_something_is_counted_is_not_done() -> None:
    said, line = "{'num_epochs': 3}\n", "Epoch {e}, batch {i}, loss 0.3\n"
    lines = [line.format(e=e, i=i) for e in (1, 2) for i in range(0, 401, 50)]
    assert sure(read([said, *lines[:-4]])) == (1, 3)


def test_right_answers_of_an_epoch_are_no_steps_of_it() -> None:
    line = "Epoch {e}/9\nTrain Loss: 0.81, Train Accuracy: 71.20% ({n}/60000)\n"
    assert sure(read((line.format(e=e, n=40_000 + 2_000 * e) for e in (1, 2, 3)), s=50)) == (2, 9)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {}: {} / 1000\n",
        "After epoch {}: {} correct out of 1000\n",
        "Epoch {}, {}/1000 correct\n",
        "Epoch {}\nTraining accuracy of cat: 50% ({}/1000)\n",
    ],
)
def test_right_answers_are_no_steps_also_once_all_are_right(line: str) -> None:
    belief = read((line.format(i, 800 + 10 * i) for i in range(21)), s=10).belief
    assert belief is None or belief.total is None


def test_the_patience_of_a_booster_is_no_number_of_its_rounds() -> None:
    rows = [f"[{i}]\ttrain-auc:0.8{i:02d}\n" for i in range(0, 60, 5)]
    assert sure(read(["num_boost_round=200, early_stopping_rounds=20\n", *rows])) == (55, 200)


def test_predictions_in_an_episode_are_not_the_training() -> None:
    prediction = "\r1/1 ━━━━━━━━━━━━━━━━━━━━ 0s 20ms/step\n"
    episodes = [piece for i in range(1, 6) for piece in (prediction, prediction, f"episode: {i}/90, score: 23\n")]
    assert sure(read(episodes)) == (5, 90)
    headed = [piece for i in range(1, 6) for piece in (f"Episode {i}/90\n", prediction, prediction)]
    assert sure(read(headed)) == (5, 90)


def test_epochs_of_one_batch_are_counted() -> None:
    batch = "1/1 ━━━━━━━━━━━━━━━━━━━━ 0s 20ms/step - loss: 0.3\n"
    assert sure(read(piece for e in range(1, 6) for piece in (f"Epoch {e}/9\n", batch))) == (4, 9)
    assert sure(read(f"Epoch {e}/9 {batch}" for e in range(1, 6))) == (5, 9)


def test_the_heading_of_an_epoch_is_kept_beside_many_numbers_that_are_seen_once() -> None:
    lines = [
        f"Batch {i}/100 | Loss: 1.2 | hit ({60 * i}/{128 * i})\n" if i else f"Epoch {e}/3\n"
        for e in (1, 2, 3)
        for i in range(101)
    ]
    assert sure(read(lines[:253])) == (250, 300)
    assert sure(read(lines)) == (300, 300)


def test_values_of_a_round_that_stay_as_they_are_count_nothing() -> None:
    lines = [f"[ROUND {t}]\nsampled 5 clients (out of 10)\n" for t in range(1, 6)]
    assert sure(read(["config: num_rounds=20\n", *lines])) == (5, 20)


def test_rounds_alone_are_counted() -> None:
    assert sure(read([f"Round {t}/9 reward 0.3\n" for t in range(1, 6)])) == (5, 9)


def test_the_steps_of_an_epoch_are_no_total_of_all() -> None:
    line = '{{"epoch": {e}, "num_epochs": 3, "step": {i}, "steps_per_epoch": 20, "loss": 0.3}}\n'
    assert sure(read([line.format(e=e, i=i) for e in (1, 2) for i in range(1, 21)])) == (40, 60)
    said = "training for 3 epochs, 20 batches each\n"
    assert sure(read([said, *(f"epoch {e} batch {i}/20 loss 1\n" for e in (1, 2) for i in range(1, 21))])) == (40, 60)


def test_a_total_that_turns_out_another_is_told() -> None:
    reader = read([f"epoch {1 + g // 20}/3 step {g + 1}/60 loss 0.3\n" for g in range(60)])
    assert sure(reader) == (60, 60)
    assert codes(reader) == ["progress-read", "progress-changed"]


def test_after_several_changes_no_total_is_believed_unless_it_is_declared() -> None:
    lines = [f"step {i}/30 loss {k}.5 of model {'abcdefgh'[k]}\n" for k in range(8) for i in range(1, 31)]
    loops = [line.replace("step", f"fit {'abcdefgh'[i // 30]} step") for i, line in enumerate(lines)]
    reader = read(loops)
    assert sure(reader) == (240, None)
    told = codes(reader)
    assert sum(code.startswith("progress-changed") for code in told) == 5
    assert told[-1] == "no-total"
    assert sure(read(loops, reader=ProgressReader(deadline_s=DEADLINE_S, steps_total=240))) == (240, 240)


def test_folds_lie_around_epochs() -> None:
    lines = [
        f"Epoch {e}/2 step {i}/5 loss 0.3\n" if i else f"Fold {f}/3\n"
        for f in (1, 2, 3)
        for e in (1, 2)
        for i in ([0, 1, 2, 3, 4, 5] if e == 1 else [1, 2, 3, 4, 5])
    ]
    assert sure(read(lines)) == (30, 30)


def test_a_global_count_beside_epochs_is_not_multiplied() -> None:
    lines = [f"epoch {1 + i // 10}: step {i}, loss 0.3, total_steps 40\n" for i in range(1, 31)]
    assert sure(read(lines)) == (30, 40)


def test_where_nobody_says_how_many_epochs_there_are_nothing_is_planned() -> None:
    reader = read([f"Train Epoch: {e} [{i}/600] Loss: 0.3\n" for e in (1, 2) for i in range(0, 600, 60)], s=10)
    assert sure(reader) == (1140, None)
    assert codes(reader) == ["no-total"]
    assert "an epoch has 600 steps" in reader.doubt()


# What begins anew, goes on, ends early, is said by others.


def test_a_bar_that_begins_again_is_told_and_counted() -> None:
    reader = read([*bars(20), *bars(20)])
    assert sure(reader) == (40, None)
    assert codes(reader) == ["no-total"]


def test_a_bar_for_each_of_so_many_epochs_is_planned_where_their_number_was_said() -> None:
    pieces = [*bars(20, after=", loss=0.3"), *bars(20, after=", loss=0.3")]
    assert sure(read(["epochs: 4\n", *pieces])) == (40, 80)
    assert sure(read(["Namespace(batch_size=64, epoch=4, lr=0.1)\n", *pieces])) == (40, 80)


@pytest.mark.parametrize("name", ["[CV {i}/5]", "[CV {i}/5; {c}/8]", "fit {i}/5"])
def test_a_count_that_begins_anew_goes_up_to_the_only_total_that_was_said(name: str) -> None:
    fits = [(c, i) for c in range(1, 9) for i in range(1, 6)]
    pieces = [f"{name.format(i=i, c=c)} END ...C=0.1;, score=0.8{c} total time=   2.0s\n" for c, i in fits]
    reader = read(["Fitting 5 folds for each of 8 candidates, totalling 40 fits\n", *pieces[:12]])
    assert sure(reader) == (12, 40)
    assert sure(read(pieces[12:], reader=reader, at=13)) == (40, 40)


def test_evaluations_between_are_not_counted() -> None:
    pieces: list[str] = []
    for e in range(3):
        pieces += [bar(i, 90) for i in range(30 * e, 30 * e + 31)]
        pieces += ["\n", *bars(6), "{'eval_loss': 0.3, 'epoch': 1.0}\n"]
    assert sure(read(pieces, s=3)) == (90, 90)


def test_two_loops_after_one_another_are_both_counted() -> None:
    pretrain = [f"pretrain step {i}/30 loss 0.3\n" for i in range(1, 31)]
    finetune = [f"finetune step {i}/20 loss 0.3\n" for i in range(1, 21)]
    reader = read(pretrain)
    assert sure(reader) == (30, 30)
    read(finetune[:10], reader=reader, at=30)
    assert sure(reader) == (40, 50)
    assert codes(reader) == ["progress-read", "progress-changed"]
    assert sure(read(finetune[10:], reader=reader, at=40)) == (50, 50)


def test_the_bar_of_the_next_loop_is_counted_from_its_beginning() -> None:
    reader = read([*bars(20, "pretrain: "), *(bar(i, 10, "finetune: ") for i in range(5))], s=20)
    assert (sure(reader) or (0, None))[0] == 24
    assert "progress-changed" in codes(reader)


def test_the_steps_of_each_epoch_are_counted_by_a_name_that_could_be_of_all() -> None:
    lines = [f"\rEpoch {e} | Training | Steps: {i} | Loss: 12.345678" for e in (0, 1, 2) for i in range(0, 51, 10)]
    assert sure(read([*lines, "\n"], s=5)) == (150, None)


def test_a_loop_without_a_total_before_another_is_counted_as_well() -> None:
    lines = [
        *(f"pretrain iter {i} loss 0.3\n" for i in range(1, 31)),
        *(f"step {i}/20 loss 0.3\n" for i in range(1, 11)),
    ]
    assert sure(read(lines)) == (40, 50)


def test_a_choice_that_was_wrong_is_corrected_and_told() -> None:
    reader = read(bars(100, "building: "), s=4)  # it lasted, so it was taken for the training
    assert sure(reader) is None, "it is called by an activity"
    reader = read(bars(100, "corpus: "), s=4)
    assert sure(reader) == (100, 100)
    read((f"step {i}/50 loss 0.3\n" for i in range(1, 6)), reader=reader, at=404.0)
    assert sure(reader) == (5, 50)
    assert codes(reader) == ["progress-read", "progress-changed"]


def test_a_count_beyond_its_total_is_not_believed_any_more() -> None:
    reader = read([f"step {i}/30 loss 0.3\n" for i in range(1, 40)], s=10)
    assert sure(reader) == (39, None)
    assert codes(reader) == ["progress-read", "no-total"]


def test_a_total_that_only_keeps_up_with_the_count_is_none() -> None:
    reader = read(f"step {i}/{max(i, 2)}\n" for i in range(1, 9))
    assert sure(reader) == (8, None)


@pytest.mark.parametrize("beside", ["speed step: {speed}", "step {global_step}"])
def test_epochs_are_read_beside_numbers_that_say_less(beside: str) -> None:
    """A speed, and steps of which nobody knows how many there are."""
    speeds = [917, 922, 903, 915, 980, 911, 899, 903]
    lines = [
        f"{beside.format(speed=speed, global_step=40 * i)} epoch: {i}/9 loss: 0.3\n"
        for i, speed in enumerate(speeds, 1)
    ]
    assert sure(read(lines)) == (8, 9)


def test_processes_that_overtake_each_other_begin_nothing_anew() -> None:
    lines = [f"[rank{r}] step {i // (1 + 2 * r)}/90\n" for i in range(1, 91) for r in (1, 0)]
    assert sure(read(lines)) == (90, 90)
    assert sure(read([f"step {i // (1 + 2 * r)}/90 loss 1\n" for i in range(1, 91) for r in (1, 0)]))[0] == 90  # type: ignore[index]


def test_a_total_that_grows_is_followed() -> None:
    assert sure(read([*(bar(i, 50) for i in range(31)), *(bar(i, 80) for i in range(31, 71))], s=10)) == (70, 80)


@pytest.mark.parametrize("n", [7, 30, 60, 100])
def test_every_so_manieth_line_is_enough(n: int) -> None:
    lines = [f"epoch {e}/3 step {i}/100 loss 1\n" for e in (1, 2, 3) for i in range(1, 101) if i % n == 0]
    assert sure(read(lines)) == (200 + 100 // n * n, 300)


def test_a_program_that_ends_before_its_last_step_is_told_of() -> None:
    assert read([f"step {i}/90 loss 1\n" for i in range(0, 90, 10)]).shortfall() is None, "it prints every tenth"
    notice = read([f"step {i}/90 loss 1\n" for i in range(1, 40)]).shortfall()
    assert notice is not None
    assert "39 of 90" in notice.text


# What the user says.


@pytest.mark.parametrize(
    ("pieces", "steps", "expected"),
    [
        ([*bars(20), *(bar(i, 20) for i in range(8))], 80, (26, 80)),
        ([f"iter {i}: loss 0.3\n" for i in range(5)], 80, (5, 80)),
        ([f"Epoch {e}/10 - loss: 0.3\n" for e in (1, 2, 3)], 200, (60, 200)),
        ([*bars(57, "items: "), "done\n"], 100, None),
        ([bar(i, 100) for i in range(10)], 100, (8, 100)),
        (["epoch: 100\n", *(bar(i, 50) for i in range(10))], 5000, (8, 5000)),
        (["epochs: 10\n", "Epoch 6\n", *(bar(i, 50) for i in range(10))], 500, (258, 500)),
    ],
)
def test_the_number_of_steps_may_be_declared(
    pieces: list[str], steps: int, expected: tuple[float, float] | None
) -> None:
    reader = read(pieces, reader=ProgressReader(deadline_s=DEADLINE_S, steps_total=steps))
    found = sure(reader)
    assert found == expected or (expected is not None and found == (expected[0] + 1, expected[1]))


@pytest.mark.parametrize("line", ["Epoch {i}/10 loss 0.31", "step {i}/10 loss 0.31", "[{i}/10] loss 0.31"])
def test_what_is_declared_of_trainings_in_a_row_counts_through_all_of_them(line: str) -> None:
    reader, done = ProgressReader(deadline_s=DEADLINE_S, steps_total=30), []
    for i in range(30):
        read([line.format(i=i % 10 + 1) + "\n"], reader=reader, at=i)
        done.append(sure(reader))
    assert done[9:] == [(i, 30) for i in range(10, 31)]


def test_epochs_that_begin_again_after_all_declared_steps_have_no_total() -> None:
    reader = ProgressReader(deadline_s=DEADLINE_S, steps_total=3000)
    assert sure(read([f"Epoch {i}/10 loss 0.31\n" for i in range(1, 11)], reader=reader)) == (3000, 3000)
    assert sure(read(["Epoch 1/10 loss 0.31\n"], reader=reader, at=20.0)) == (3300, None)


def test_a_declared_number_in_another_unit_is_told() -> None:
    reader = ProgressReader(deadline_s=DEADLINE_S, steps_total=50)
    read((f"Train Epoch: 1 [{i}/600] Loss: 0.3\n" for i in range(0, 600, 60)), s=10, reader=reader)
    assert sure(reader) == (540, None)
    assert "`--steps 50` cannot be right" in reader.doubt()


def test_another_reader_goes_on_with_what_one_has_counted() -> None:
    reader = read(bars(20), reader=ProgressReader(deadline_s=DEADLINE_S, steps_total=80, steps_before=40))
    assert sure(reader) == (60, 80)


def test_nothing_is_counted_in_a_program_that_counts_nothing() -> None:
    reader = read(["a line with 3 words\n"] * 49)
    assert codes(reader) == []
    read(["the fiftieth line, at 12:00\n"], reader=reader)
    (notice,) = reader.new_notices()
    assert notice.code == "no-progress"
    assert "the fiftieth line" in notice.text


def test_streams_are_lines_of_their_own() -> None:
    reader = ProgressReader(deadline_s=DEADLINE_S)
    for i in range(1, 9):
        reader.feed(f"step {i}/".encode(), float(i), 1)
        reader.feed(b"a warning\n", float(i), 2)
        reader.feed(b"9\n", float(i), 1)
    assert sure(reader) == (8, 9)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_no_output_whatever_is_too_much(garbage: bytes, size: int) -> None:
    reader = ProgressReader(deadline_s=DEADLINE_S)
    for start in range(0, len(garbage), size):
        reader.feed(garbage[start : start + size], float(start))
    reader.feed(b"\nstep 1/9 loss 0.1\nstep 2/9 loss 0.1\n", 300.0)
    assert reader.belief is not None


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(2, 30))
def test_it_does_not_matter_where_output_is_cut(cuts: list[int], n_steps: int) -> None:
    output = "".join(f"\rtrain: {bar(i, n_steps)[1:]}" for i in range(n_steps + 1)).encode() + b"\n"
    places = sorted({min(cut * 40, len(output)) for cut in cuts} | {0, len(output)})
    reader = ProgressReader()
    for start, end in pairwise(places):
        reader.feed(output[start:end], float(start))
    belief = reader.belief
    assert belief is not None
    assert (belief.steps, belief.total) == (n_steps, n_steps)


# Numbers beside an epoch, and around it.


def test_fractions_of_an_epoch_count_where_their_number_was_said() -> None:
    lines = [f"{{'loss': 0.5, 'epoch': {i / 50:.2f}}}\n" for i in range(1, 60)]
    assert sure(read(["  Num Epochs = 3\n", *lines])) == (118, 300)
    assert sure(read(["  Num Epochs = 1\n", *lines[:40]])) == (80, 100)
    assert read(lines).belief is None


def test_a_value_that_goes_up_and_down_by_any_amount_is_no_count_though_a_total_is_declared() -> None:
    lengths = [157, 33, 41, 120, 18, 95, 110, 27, 64, 181, 12, 77, 90, 143, 52, 19, 88, 171, 60, 23, 134, 151, 45, 99]
    lines = [f"Ep: {i + 1}, reward: 21.3, avg100: 31.2, steps: {length}\n" for i, length in enumerate(lengths)]
    assert sure(read(lines, reader=ProgressReader(deadline_s=DEADLINE_S, steps_total=100))) == (len(lengths), 100)


def test_a_value_that_moves_with_its_epoch_only_is_no_part_of_it() -> None:
    lines = [f"epoch {e}/50 loss 0.3 wait: {e % 5}/5\n" for e in range(1, 30)]
    reader = ProgressReader(deadline_s=DEADLINE_S)
    for i in range(1, len(lines)):
        assert sure(read(lines[i : i + 1], reader=reader, at=float(i))) in (None, (i + 1, 50))


def test_the_first_epoch_of_a_line_is_the_present_one() -> None:
    lines = [
        f"epoch {e}/9 batch {b}/4 loss 0.3 (best: epoch {max(1, e - 2)})\n" for e in (1, 2, 3) for b in (1, 2, 3, 4)
    ]
    assert sure(read(lines)) == (12, 36)


def test_a_bar_that_has_not_moved_yet_may_lie_around_another() -> None:
    reader = read([bar(0, 20, "games: ") + "\n", *bars(50, "fit: ")], s=20.0)
    assert sure(reader) == (50, None)
    read([bar(1, 20, "games: ") + "\n", *bars(50, "fit: ")], s=20.0, reader=reader, at=1100.0)
    assert sure(reader) == (100, 1000)


def test_steps_of_each_epoch_and_epochs_make_a_total() -> None:
    lines = [f"train epoch={1 + i // 50} step={i} loss=0.3\n" for i in range(1, 60)]
    assert sure(read(["epochs=4 steps_per_epoch=50\n", *lines])) == (59, 200)


def test_time_steps_of_a_model_are_no_number_of_steps() -> None:
    steps = ["Step 100 Loss 0.0312\n", "Step 200 Loss 0.0298\n"]
    assert sure(read(["Namespace(epochs=100, lr=0.0002, timesteps=1000)\n", *steps])) == (200, None)
    assert sure(read(["Namespace(total_timesteps=1000)\n", *steps])) == (200, 1000)
    assert sure(read(["Namespace(total_timesteps=1000)\n", *(f"time{step.lower()}" for step in steps)])) == (200, 1000)


def test_a_number_amid_a_long_line_of_settings_is_read() -> None:
    options = "'an_option': None, " * 220
    settings = f"{{{options}'max_epoch': 9, {options}'seed': 1}}\n"
    assert sure(read([settings, *(f"| epoch {e} | loss 0.3\n" for e in (1, 2, 3))])) == (3, 9)


def test_scaled_numbers_are_followed() -> None:
    counts = [*range(200, 1000, 200), *range(1000, 6000, 1000)]
    lines = [f"step:{n if n < 1000 else f'{n // 1000}K'} loss:0.3\n" for n in counts]
    assert sure(read(["cfg.steps=40000 (40K)\n", *lines])) == (5000, 40000)


@pytest.mark.parametrize(
    "line", ["[E{e:02d}/04 B{b:03d}/100] loss=0.3\n", "Epoche {e} von 4, Batch {b} von 100, Verlust 0.3\n"]
)
def test_letters_and_other_languages_name_counts(line: str) -> None:
    assert sure(read(line.format(e=e, b=b) for e in (1, 2) for b in range(20, 101, 20))) == (200, 400)


def test_local_epochs_of_several_clients_are_counted_in_each_round() -> None:
    lines = [
        line
        for r in range(1, 4)
        for line in (f"== Round {r}/8 ==\n", *(f"client {c} epoch {e}/2 loss 0.3\n" for c in (1, 2, 3) for e in (1, 2)))
    ]
    assert sure(read(lines)) == (18, 48)


def test_episodes_may_be_called_by_the_word_for_epochs() -> None:
    assert sure(
        read(["Training for 900 episodes\n", *(f"| Ep {i:4d} | R {i / 9:.2f} |\n" for i in range(20, 200, 20))])
    ) == (180, 900)


def test_a_batch_that_was_reached_is_counted() -> None:
    lines = (f"In epoch {e} of 3, after batch {b} of 90, the loss is 0.3\n" for e in (1, 2) for b in range(30, 91, 30))
    assert sure(read(lines)) == (180, 270)


def test_steps_that_are_done_are_no_total() -> None:
    assert sure(read(f"0:00:{i:02d} elapsed, {20 * i} steps done, loss 0.3\n" for i in range(1, 9))) == (160, None)


def test_a_single_step_of_one_is_no_training() -> None:
    assert sure(read(["Iteration 1/1 loss 0.3\n"])) is None


def test_why_nothing_was_planned_is_told_at_the_end_unless_it_was_before() -> None:
    notice = read([*bars(9)]).shortfall()
    assert notice is not None
    assert "`--steps 9`" in notice.text
    assert read([*bars(9)] * 12).shortfall() is None


@pytest.mark.parametrize("noise", ["x" * 30 + "\n", "value 3\n"])
def test_of_a_flood_of_lines_the_last_count_is_read(noise: str) -> None:
    reader = ProgressReader(deadline_s=DEADLINE_S)
    for i in range(1, 101):
        reader.feed((noise * 1000 + f"step {i}/100 loss 0.3\n").encode(), 0.001 * i)
    assert sure(reader) == (100, 100)


def test_counts_of_one_line_are_compared_in_their_order_wherever_they_lie_in_memory() -> None:
    readers = [read(["epoch 1/9 step 2/8 batch 3/7 sample 4/6\n"]) for _ in range(50)]
    assert {tuple(series.last for series, _ in reader.assessed()) for reader in readers} == {(1, 2, 3, 4)}
