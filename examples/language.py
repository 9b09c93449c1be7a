"""Language model: a small transformer that predicts the next byte of Python's own library, or of WikiText.

``--data DIR``: a folder with text files (``*.tokens``, ``*.raw``, ``*.txt``); a tenth of the text is held out.
"""

import sysconfig
from pathlib import Path

import torch
from _application import Application, Example
from _batches import Split
from _training import main
from torch import Tensor, nn

_N_BYTES = 256
_WINDOW_BYTES = 64
_TEXT_BYTES_MAX = 4_000_000
_N_HELD_OUT_MAX = 256
_WIDTH = 64


def load_example(folder: Path | None, _seed: int) -> Example:
    """Windows of text, each byte a class; a target is the byte that follows."""
    text = torch.frombuffer(bytearray(_text(folder)), dtype=torch.uint8)
    n_windows = (len(text) - 1) // _WINDOW_BYTES
    inputs = text[: n_windows * _WINDOW_BYTES].view(n_windows, _WINDOW_BYTES).long()
    targets = text[1 : n_windows * _WINDOW_BYTES + 1].view(n_windows, _WINDOW_BYTES).long()
    windows = Split(inputs, targets)
    # The held-out windows are one stretch at the end: neighbours of training windows would make it look too easy.
    n_train = n_windows - n_windows // 10
    held_out = windows.rows(slice(n_train, n_train + _N_HELD_OUT_MAX))
    return Example(windows.rows(slice(n_train)), held_out, _N_BYTES)


def _text(folder: Path | None) -> bytes:
    if folder is None:
        paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    else:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in {".tokens", ".raw", ".txt"})
    text = b"".join(path.read_bytes() for path in paths)[:_TEXT_BYTES_MAX]
    if len(text) < 100 * _WINDOW_BYTES:
        raise FileNotFoundError(f"{folder} must hold text files (*.tokens, *.raw, *.txt) with some kilobytes of text")
    return text


class Transformer(nn.Module):
    """Causal, two layers."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(n_classes, _WIDTH)
        self.places = nn.Parameter(torch.randn(_WINDOW_BYTES, _WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(_WIDTH, n_classes)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(_WINDOW_BYTES), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.layers(self.bytes(inputs) + self.places, mask=self.mask, is_causal=True)
        scores: Tensor = self.scores(hidden)
        return scores


def build_model(example: Example) -> nn.Module:
    return Transformer(example.n_classes)


LANGUAGE = Application("language", load_example, build_model, n_steps_per_epoch=300, n_rows_per_batch=16)

if __name__ == "__main__":
    main(LANGUAGE)
