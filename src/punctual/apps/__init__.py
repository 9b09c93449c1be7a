"""Three real PyTorch training programs, for the demo, the benchmarks and the documentation.

``python -m punctual.apps.vision``, ``language`` and ``speech``. They train on data that needs no download, or on a
real data set in a folder given with ``--data``. Needs the extra ``torch``.
"""
