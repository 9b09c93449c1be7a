"""What one line counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.progress_text.lines import LineSplitter
from punctual.progress_text.mentions import Mention, Role, Unit, read_line
from punctual.progress_text.reader import ProgressReader

#: Lines of programs that are in use -> what the training's count in them is; None: there is none.
LINES: dict[str, tuple[bytes, tuple[int, int | None] | None]] = {
    "tqdm": (b"\r 40%|####      | 120/300 [00:12<00:18, 10.00it/s]", (120, 300)),
    "tqdm with slow steps": (b"\r 40%|####      | 120/300 [10:12<08:18, 2.77s/it]", (120, 300)),
    "tqdm after hours": (b"\r 40%|####      | 120/300 [1:10:12<2:08:18, 42.77s/it, loss=0.3]", (120, 300)),
    "tqdm's first line": (b"\r  0%|          | 0/300 [00:00<?, ?it/s]", (0, 300)),
    "tqdm with unit_scale": (b"\r 40%|####      | 1.20k/3.00k [00:12<00:18, 100it/s]", (1200, 3000)),
    "tqdm without a total": (b"\r120it [00:12, 10.00it/s]", (120, None)),
    "tqdm in colours": (b"\r 40%|\x1b[32m####      \x1b[0m| 120/300 [00:12<00:18, 10.00it/s]", (120, 300)),
    "Lightning without a length": (b"\rEpoch 1: |          | 43/? [00:26<00:00,  1.64it/s, v_num=0]", (43, None)),
    "a bar in a format of its own": (b"\r120/300 (40%) 00:12 left 00:18", (120, 300)),
    "Rich": (
        "\r\x1b[35m 40%\x1b[0m ━━ \x1b[32m120/300 \x1b[0m [ \x1b[33m0:00:12\x1b[0m < 0:00:18 ]".encode(),
        (120, 300),
    ),
    "Epoch [1/5], Step [100/600]": (b"Epoch [1/5], Step [100/600], Loss: 0.4\n", (100, 600)),
    "MNIST": (b"Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3\n", (640, 60000)),
    "ImageNet": (b"Epoch: [0][ 10/5005]\tTime 0.1 ( 0.2)\tLoss 6.9\n", (10, 5005)),
    "torchvision": (b"Epoch: [0]  [ 10/500]  eta: 0:01:00  lr: 0.01  loss: 6.9\n", (10, 500)),
    "MMEngine": (b"2026/01/01 00:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/500]  lr: 1e-2  loss: 1\n", (50, 500)),
    "MMEngine by iterations": (
        b"2026/01/01 00:00:00 - mmengine - INFO - Iter(train) [  100/40000]  lr: 1e-2\n",
        (100, 40000),
    ),
    "Detectron2": (
        b"[01/01 00:00:00 d2.utils.events]:  eta: 1:00:00  iter: 19  total_loss: 1.2  time: 0.3\n",
        (19, None),
    ),
    "nanoGPT": (b"iter 100: loss 2.5231, time 45.12ms, mfu 1.2%\n", (100, None)),
    "Megatron": (
        b" iteration       10/  500000 | consumed samples:  320 | elapsed time per iteration (ms): 100.0 |\n",
        (10, 500000),
    ),
    "fairseq": (b'2026-01-01 | INFO | train_inner | {"epoch": 1, "update": 0.1, "num_updates": "100"}\n', (100, None)),
    "JSON": (b'{"step": 100, "total_steps": 3000, "loss": 0.3}\n', (100, 3000)),
    "JSON without a total": (b'{"global_step": 100, "loss": 0.3}\n', (100, None)),
    "a trainer's dict": (b"{'loss': 0.9431, 'grad_norm': 1.0, 'learning_rate': 4.9e-05, 'epoch': 0.29}\n", None),
    "Keras 2": (b" 12/300 [>.............................] - ETA: 12s - loss: 0.3\n", (12, 300)),
    "Keras 3": ("\x1b[1m 12/300\x1b[0m \x1b[37m━━\x1b[0m \x1b[1m12s\x1b[0m 5ms/step - loss: 0.3\n".encode(), (12, 300)),
    "XGBoost": (b"[12]\ttrain-rmse:0.5\teval-rmse:0.6\n", (12, None)),
    "CatBoost": (b"12:\tlearn: 0.5\ttotal: 123ms\tremaining: 1s\n", (12, None)),
    "Ultralytics": (
        b"\r      1/100      2.1G      1.2      3.4      1.1   640:  40%|##  | 120/300 [00:12<00:18, 10.00it/s]",
        (120, 300),
    ),
    "done (%)": (b"train - INFO - step: 000010 - done (%): 3.3 - loss: 1.203\n", (3, 100)),
    "Steps:": (b"Steps: 120/3000\n", (120, 3000)),
    "steps of": (b"120 steps of 3000 done\n", (120, 3000)),
    "global_step=": (b"global_step=120 total=3000\n", (120, None)),
    "Batch of": (b"Batch 120 of 3000 loss 0.3\n", (120, 3000)),
    "Batch: [": (b"Batch: [120/3000]\n", (120, 3000)),
    "thousands": (b"step 1,200/30,000 loss 0.3\n", (1200, 30000)),
    "Swiss thousands": (b"step 12'000 / 30'000 loss 0.3\n", (12000, 30000)),
    "French thousands": ("step 12\u202f000 / 30\u202f000 loss 0.3\n".encode(), (12000, 30000)),
    "an optimization": (b"\rOptimizing:  40%|####      | 120/300 [00:12<00:18, 10.00it/s]", (120, 300)),
    "the time that is left": (b"step 3/100 time left 5 s\n", (3, 100)),
    "while it trains": (b"during training 3/100 loss 0.3\n", (3, 100)),
    "a value called as a measure is": (b"3/100 m 0.91 s 0.2\n", (3, 100)),
    "a pipe between": (b"Batch: [12 | 300] loss 0.3\n", (12, 300)),
    "how many are done": (b"12 batches done out of 300\n", (12, 300)),
    "at most so many": (b"step 12 of at most 300: loss 0.3\n", (12, 300)),
    "words with no blank": (b"ep3/9 it12/300 loss0.3\n", (12, 300)),
    "a bar of thin lines": ("\r\x1b[K40% ━━━─────── 120/300 1.3it/s 2.3s<1.2s".encode(), (120, 300)),
    "a test before": (b"Last test reward: 20.00. Training step: 120/3000. Loss: 3.1\n", (120, 3000)),
    "a buffer": (b"Filling up shuffle buffer (this may take a while): 120 of 1000\n", None),
    "a sampler": (b"\rDDIM Sampler:  40%|####      | 20/50 [00:12<00:18, 10.00it/s]", None),
    "prompts": (b"\rProcessed prompts:  40%|####      | 20/50 [00:12<00:18, 10.00it/s]", None),
    "files": (b"Processed 30/100 files\n", None),
    "an activity in a line": (b"INFO Compiling layer 3/48\n", None),
    "torchrun --tee": (b"[default0]:step 120/3000 loss 0.3\n", (120, 3000)),
    "a rank": (b"[rank0]: 40%|####      | 120/300 [00:12<00:18, 10.00it/s]\r", (120, 300)),
    "a colour inside": (b"step \x1b[1m120\x1b[0m/3000\n", (120, 3000)),
    "another step before": (b"sampling step 5 done; step 120/3000\n", (120, 3000)),
    "LightGBM": (b"[12]\ttraining's l2: 0.5\tvalid_1's l2: 0.6\n", (12, None)),
    "nanoGPT's evaluation": (b"step 250: train loss 2.4, val loss 2.5\n", (250, None)),
    "units behind both numbers": (b"Progress on:train 1.20kit/10.0kit rate:9.8it/s elapsed:02:00\n", (1200, 10_000)),
    "a value at a step": (b"Training loss (for one batch) at step 200: 0.4312\n", (200, None)),
    "L-BFGS": (b"At iterate    5    f=  8.35160D+01    |proj g|=  2.12870D-01\n", (5, None)),
    "a score": (b"12:00:50.123 [main] INFO a.b.ScoreListener - Score at iteration 50 is 0.3141\n", (50, None)),
    "a value with a name of two words": (b"   3 train loss:  0.31 test acc: 90.12%\n", (3, None)),
    "a value by training": (b"word train=39.1%, skip ratio=0%\n", None),
    "a share in front of a value": (b"[ 12.3%] loss=1.4758 lr=1e-3\n", (12, 100)),
    "a share behind a count": (b"0m 10s (- 2m 30s) (5 6%) 2.8512\n", (6, 100)),
    "chains": (b"\rSampling 2 chains, 0 divergences:  11%|# | 450/4000 [00:09<01:11, 50.0draws/s]", (450, 4000)),
    "glog": (b"I1126 12:00:02.000000 140 logging_writer.py:48] [20] accuracy=0.018, loss=2.9\n", (20, None)),
    "a test accuracy": (b"\rloss:   2.31 test_accuracy:  9.80%:   7%|7 | 5/70 [00:05<01:05,  1.00it/s]", (5, 70)),
    "numbers behind": (b"step 13/100 loss 0.1 (250 ms per step, batch 64)\n", (13, 100)),
    "a duration behind": (b"step 13/100 time per step 250 ms\n", (13, 100)),
    "batches behind": (b"step 13/100 batch 3/10\n", (13, 100)),
    "batches before": (b"epoch 1 batch 3/10 step 13/100\n", (13, 100)),
    "a time behind": (b"step 5/12 12:30:45 loss 0.3\n", (5, 12)),
    "a start": (b"Start step 13/100\n", (13, 100)),
    "capitals": (b"STEP 13 OF 100\n", (13, 100)),
    "an iteration behind": (b"step 13/100 loss 0.1 (last iter 5)\n", (13, 100)),
    "an epoch alone": (b"Epoch 3/10 - loss 0.3\n", None),
    "a download": (b"\rDownloading:  40%|####      | 120M/300M [00:12<00:18, 10.0MB/s]", None),
    "bytes": (b"\rmodel.bin:  40%|####      | 120M/300M [00:12<00:18, 10.0MB/s]", None),
    "examples": (b"\rMap:  40%|####      | 1200/3000 [00:01<00:02, 1000.0 examples/s]", None),
    "examples of no training": (b"\rnum_proc=4:  40%|####   | 1200/3000 [00:01<00:02, 1000.0 examples/s]", None),
    "an activity": (b"\rTokenizing texts:  40%|####      | 120/300 [00:12<00:18, 10.00it/s]", None),
    "an evaluation": (b"val step 3/20 loss 0.3\n", None),
    "a checkpoint": (b"Restoring states from lightning_logs/version_0/checkpoints/epoch=1-step=600.ckpt\n", None),
    "where it goes on": (b"Continuing training from global step 60\n", None),
    "a share of right answers": (b"Test set: Accuracy: 9700/10000 (97%)\n", None),
    "UTF-16": ("\nstep 120/3000\n".encode("utf-16-le"), None),
}


@pytest.mark.parametrize("name", LINES)
def test_the_training_s_count_in_a_line_is_found(name: str) -> None:
    output, expected = LINES[name]
    reader = ProgressReader(deadline_s=1000.0)
    for start in range(0, len(output), 7):
        reader.feed(output[start : start + 7], 0.0)
    reader.feed(b"\n", 0.0)
    chosen = reader.chosen
    assert (None if chosen is None else (chosen.series.last, chosen.series.known_total)) == expected


def only(text: str) -> Mention:
    mention, *others = read_line(text).mentions
    assert not others or others[0].unit > mention.unit
    return mention


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("epoch 3", Unit.EPOCH),
        ("Epoch: [3]", Unit.EPOCH),
        ("step: 3", Unit.STEP),
        ("globalStep=3", Unit.STEP),
        ("n_iter 3", Unit.STEP),
        ("batch_idx=3", Unit.BATCH),
        ("batch number 3", Unit.BATCH),
        ("Fold 3", Unit.FOLD),
        ("seed 3/5", Unit.FOLD),
        ("Task 3/5", Unit.FOLD),
        ("[rank0]: dataset 3/5", Unit.FOLD),
        ("fold3", Unit.FOLD),
        ("Start of epoch 3", Unit.EPOCH),
        ("Start epoch 3/9", Unit.EPOCH),
        ("Begin training epoch [3/9]", Unit.EPOCH),
        ("EPOCH 3 OF 9", Unit.EPOCH),
        ("Epoch 3/9 00:01:23 loss 0.3", Unit.EPOCH),
        ("step_in_epoch: 3", Unit.BATCH),
        ("it 3/9 of epoch 1", Unit.BATCH),
        ("--- Época 3/9 ---", Unit.EPOCH),
        ("Эпоха 3 из 9", Unit.EPOCH),
        ("Dönem 3/9", Unit.EPOCH),
        ("Εποχή 3 από 9", Unit.EPOCH),
        ("Ep.3/9 - Loss:0.3", Unit.EPOCH),
        ("Passo 3", Unit.STEP),
        ("Шаг 3", Unit.STEP),
        ("Lote 3/9", Unit.BATCH),
        ("[CV 3/5] END", Unit.FOLD),
        ("3/9", Unit.UNKNOWN),
    ],
)
def test_a_number_counts_what_is_named_before_it(text: str, unit: Unit) -> None:
    assert only(text).unit is unit


@pytest.mark.parametrize(
    "text",
    [
        "warmup_steps=100", "save every 100 steps", "eval_iters = 200", "time per step 250", "best epoch: 7", "batch size 64",
        "learning rate 1", "12:30:00", "2026-11-26 12:30", "v1.2.3", "lr 3e-4", "layer1", "0.5",
        "worker 3/8", "node 1/2 joined", "EarlyStopping counter: 3 out of 7", "no improvement for 2/8 epochs", "elapsed 12/3600 s", "3/24 GB used", "attempt 3/5", "30/100 steps left", "step 30/100 remaining", "wins 12/20", "1764241200 loss=0.31", '{"ts": 1764241200, "loss": 0.31}', "25 steps each", "EM sub_iter=3", "inner step 3/5", "g/total: 50", "runs/step_100/model.pt", "solver.cpp:239] done", "250 ms", "10.5it/s", "gpu 3", "train_loss_epoch=306", "Train Accuracy: 71.20% (42720/60000)", "top-1 0.712 (427/600)", "on 3/12 10:00:00", 'INFO: 127.0.0.1:50412 - "GET / HTTP/1.1" 200 OK', "(1): LeakyReLU(slope=0.1)",
    ],
)  # fmt: skip
def test_what_is_no_count_is_left_alone(text: str) -> None:
    assert read_line(text).mentions == ()


@pytest.mark.parametrize(
    ("text", "family", "n"),
    [
        ("max_iters = 5000", "iteration", 5000),
        ("MAX_ITER: 600", "iteration", 600),
        ("Namespace(lr=0.1, epochs=90)", "epoch", 90),
        ("  Total optimization steps = 240", "step", 240),
        ("Starting training for 6 epochs...", "epoch", 6),
        ("workflow: [('train')], max: 12 epochs", "epoch", 12),
        ('- max_epochs: "4"', "epoch", 4),
        ("Max_iters overwritten as 20000", "iteration", 20_000),
        ("Total 300 iterations for training", "iteration", 300),
        ("Training for at most 200 epochs (patience 10)", "epoch", 200),
        ("Training for 200 epochs with early stopping", "epoch", 200),
        ("Namespace(batch_size=64, epoch=100, lr=0.001)", "epoch", 100),
        ("{'lr': 0.001, 'batch_size': 64, 'epoch': 100}", "epoch", 100),
        ("Namespace(total_timesteps=1000)", "step", 1000),
        ("Performing 100 iterations.", "iteration", 100),
        ("Namespace(runs=3)", "run", 3),
        ("totalling 40 fits", "fit", 40),
        ("Iniciando treinamento por 500 passos", "step", 500),
    ],
)
def test_how_many_there_are_may_be_said_elsewhere(text: str, family: str, n: int) -> None:
    mention = only(text)
    assert (mention.family, mention.step, mention.is_total) == (family, n, True)


def test_a_heading_that_tells_its_number_twice_counts_once() -> None:
    mention = only("Epoch 3 (3/20):")
    assert (mention.unit, mention.step, mention.total) == (Unit.EPOCH, 3, 20)
    epoch, batch = read_line("Epoch 3 (3/20): loss 0.3").mentions  # the third batch
    assert (epoch.unit, batch.unit) == (Unit.EPOCH, Unit.UNKNOWN)


def test_a_learning_rate_is_no_result() -> None:
    assert not read_line("Epoch 3, LR=0.1000").is_result
    assert not read_line("Epoch 3: learning rate to 0.01").is_measured
    assert read_line("Epoch 3, LR=0.1000, loss 0.3").is_measured


@pytest.mark.parametrize(
    "text",
    [
        "Training until scores don't improve for 50 rounds",
        "early stopping after 5 epochs",
        "training stops after 50 rounds without improvement",
    ],
)
def test_patience_is_no_number_of_steps(text: str) -> None:
    assert not any(mention.is_total for mention in read_line(text).mentions)


def test_the_number_of_a_process_tells_counts_apart() -> None:
    assert only("[rank0] step 3/9").template != only("[rank1] step 3/9").template
    assert only("12:00:01 step 3/9").template == only("12:00:02 step 4/9").template


@pytest.mark.parametrize("text", ["第3/12轮 训练损失: 2.05", "エポック3/12 損失 2.05", "에폭3/12 손실 2.05"])
def test_scripts_without_blanks_have_counts_as_well(text: str) -> None:
    assert (only(text).step, only(text).total) == (3, 12)


def test_a_number_that_may_be_cut_off_is_left_out() -> None:
    assert read_line("step 12", is_complete=False).mentions == ()
    assert read_line("step 12/3", is_complete=False).mentions == ()
    assert read_line("step 12/30 ", is_complete=False).mentions[0].total == 30


def test_what_stands_before_a_number_says_whose_it_is() -> None:
    assert only("train step 3/9").role is Role.TRAINING
    assert only("step 3/9").role is Role.NEUTRAL
    assert only("[validation] 3/9").role is Role.OTHER
    assert only("val_loss=0.3 step 3/9").role is Role.NEUTRAL, "a measured value says nothing of it"


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("INFO:test_run:Epoch 3/9 loss 0.3", Role.NEUTRAL),
        ("dev-gpu-1: step 3/9 loss 0.3", Role.NEUTRAL),
        ("[TabularPredictor] Epoch 3/9", Role.NEUTRAL),
        ("[12:00:00 dev](main.py 226): INFO Train: [3/9]", Role.TRAINING),
        ("[12:00:00 dev](main.py 226): INFO Test: [3/9]", Role.OTHER),
        ("INFO:test:step 3/9", Role.OTHER),
        ("[test] train step 3/9", Role.OTHER),
    ],
)
def test_the_name_of_a_log_or_of_a_computer_is_no_evaluation(text: str, role: Role) -> None:
    assert only(text).role is role


LONG = {
    "digits": "7" * 8000,
    "counts": "1/2" * 2700,
    "words": "step" * 2000,
    "a word and spaces": "step" + " " * 8000,
    "a count and spaces": "step 1" + " " * 8000 + "/",
    "bars without an end": "1/2 [" * 1600,
    "values": "a=1.5 " * 1300,
    "letters": "a" * 8000,
    "drawings": "#" * 8000 + "1/2",
    "shares": "1% " * 2700,
    "thousands": "1,111," * 1400,
    "colours": "\x1b[31m1" * 1400,
    "an escape without an end": "\x1b]0;" * 2000,
    "columns": "1 | " * 2000,
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("size", [97, 4096, 1 << 20])
def test_progress_is_read_after_a_line_of_any_length(name: str, size: int) -> None:
    """Patterns whose time grows with the square of a length take minutes for these."""
    reader, line = ProgressReader(), LONG[name].encode() * 4
    for start in range(0, len(line), size):
        reader.feed(line[start : start + size], 0.0)
    reader.feed(b"\nstep 500/600\nstep 501/600\n", 1.0)
    belief = reader.belief
    assert belief is not None
    assert (belief.steps, belief.total) == (501, 600)


@given(st.text(max_size=200))
def test_no_line_whatever_is_too_much(text: str) -> None:
    for mention in read_line(text).mentions:
        assert mention.step >= 0
    for line in LineSplitter(8192).feed(text.encode("utf-8", "surrogatepass") + b"\n"):
        read_line(line.text)
