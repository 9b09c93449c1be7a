"""Limits of a trace's size, against mistakes and against files made to fill the reader's memory."""

#: Jobs of one trace, read or generated; the largest published one has 3.4 million.
N_JOBS_MAX = 10_000_000

#: Characters of one line; the widest published tables have some hundred.
N_LINE_CHARACTERS_MAX = 4_000_000

#: Default limit of a compressed file's contents, in GiB; the largest published table has one.
UNPACKED_GIB_MAX = 4.0
