"""Spoken words: a convolution and a recurrent layer on spectrograms, of words we make up or of Speech Commands.

The words made up are paths of three formants over time, as vowels have them, spoken by throats of different lengths,
at different speeds, in noise. ``--data DIR``: a folder with one sub-folder of ``.wav`` files for each word.
"""

import wave
from pathlib import Path

import numpy as np
import torch
from _application import Application, Example
from _batches import Split
from _training import main
from numpy.typing import NDArray
from torch import Tensor, nn

_N_BANDS = 40
_N_FRAMES = 64
_BAND_HZ_MAX = 4000.0
_N_SPOKEN = 2560
_N_HELD_OUT = 512
_N_FILES_PER_WORD_MAX = 200
_FRAME_SAMPLES = 512
_WIDTH = 112

#: First, second and third formant in Hz of the vowels in "father", "bee", "boot", "bed" and "bought".
_VOWELS_HZ = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]])

#: Each word glides through three vowels.
_WORDS = np.array(
    [[0, 1, 1], [1, 0, 0], [2, 1, 3], [3, 2, 2], [4, 0, 1], [1, 2, 4], [0, 3, 0], [2, 4, 2], [3, 1, 0], [4, 3, 4]]
)

Floats = NDArray[np.float32]


def load_example(folder: Path | None, seed: int) -> Example:
    """Spectrograms, shape (n, bands, frames) of mean 0 and deviation 1, and the words spoken."""
    draw = np.random.default_rng(seed)
    spectra, words = _recorded(folder, draw) if folder else _spoken(draw)
    spectra = (spectra - spectra.mean()) / spectra.std()
    spoken = Split(torch.from_numpy(spectra.astype(np.float32)), torch.from_numpy(words.astype(np.int64)))
    n_held_out = min(_N_HELD_OUT, len(spoken) // 5)
    return Example(spoken.rows(slice(n_held_out, None)), spoken.rows(slice(n_held_out)), int(words.max()) + 1)


def _spoken(draw: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    words = draw.integers(len(_WORDS), size=_N_SPOKEN)
    formants_hz = _formants_hz(words, draw)
    bands_hz = np.linspace(100, _BAND_HZ_MAX, _N_BANDS)[None, :, None]
    energy = np.zeros((_N_SPOKEN, _N_BANDS, _N_FRAMES), dtype=np.float32)
    for i, (width_hz, loudness) in enumerate([(120, 1.0), (180, 0.7), (250, 0.4)]):
        energy += loudness * np.exp(-(((bands_hz - formants_hz[:, i, None, :]) / width_hz) ** 2))
    noise = draw.exponential(0.25, size=energy.shape)
    return np.log(energy + noise + 1e-3), words


def _formants_hz(words: NDArray[np.int64], draw: np.random.Generator) -> Floats:
    """Shape (word, formant, frame): from vowel to vowel, with a speed and a throat of each speaker's own."""
    n = len(words)
    vowels_hz = _VOWELS_HZ[_WORDS[words]] * draw.normal(1, 0.12, size=(n, 1, 1)).clip(0.7, 1.4)
    speed, delay = draw.uniform(0.8, 1.4, size=(n, 1)), draw.uniform(-0.15, 0.15, size=(n, 1))
    place = (np.linspace(0, 2, _N_FRAMES)[None, :] * speed + delay).clip(0, 2)
    before = np.minimum(place.astype(int), 1)
    part = (place - before)[:, :, None]
    rows = np.arange(n)[:, None]
    path_hz = vowels_hz[rows, before] * (1 - part) + vowels_hz[rows, before + 1] * part
    by_formant: Floats = path_hz.transpose(0, 2, 1).astype(np.float32)
    return by_formant


def _recorded(folder: Path, draw: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    names = sorted(path.parent.name for path in folder.glob("*/*.wav") if not path.parent.name.startswith("_"))
    files = [
        (path, i)
        for i, name in enumerate(dict.fromkeys(names))
        for path in sorted((folder / name).glob("*.wav"))[:_N_FILES_PER_WORD_MAX]
    ]
    if not files:
        raise FileNotFoundError(f"{folder} must hold a sub-folder of .wav files for each word")
    order = draw.permutation(len(files))
    spectra = np.stack([_spectrum(_samples(files[i][0])) for i in order])
    return spectra, np.array([files[i][1] for i in order])


def _samples(path: Path) -> Floats:
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2 or file.getnchannels() != 1:
            raise ValueError(f"{path} must be one channel of 16 bits per sample")
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)
    return (samples / 2**15).astype(np.float32)


def _spectrum(samples: Floats) -> Floats:
    """Logarithm of the energy in `_N_BANDS` bands at `_N_FRAMES` instants spread over the recording."""
    padded = np.pad(samples, (0, max(0, 2 * _FRAME_SAMPLES - len(samples))))
    starts = np.linspace(0, len(padded) - _FRAME_SAMPLES, _N_FRAMES).astype(int)
    frames = padded[starts[:, None] + np.arange(_FRAME_SAMPLES)] * np.hanning(_FRAME_SAMPLES)
    power = np.abs(np.fft.rfft(frames))[:, 1 : 1 + _FRAME_SAMPLES // 4] ** 2
    bands = np.stack([part.mean(axis=1) for part in np.array_split(power, _N_BANDS, axis=1)])
    return np.log(bands + 1e-6).astype(np.float32)


class Recogniser(nn.Module):
    """Looks at a few frames at a time, then remembers."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv1d(_N_BANDS, _WIDTH, 5, padding=2), nn.ReLU(), nn.Dropout(0.1))
        self.remember = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
        self.scores = nn.Linear(_WIDTH, n_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        seen = self.look(inputs).transpose(1, 2)
        _, last = self.remember(seen)
        scores: Tensor = self.scores(last[0])
        return scores


def build_model(example: Example) -> nn.Module:
    return Recogniser(example.n_classes)


SPEECH = Application("speech", load_example, build_model, n_steps_per_epoch=300, n_rows_per_batch=32)

if __name__ == "__main__":
    main(SPEECH)
