"""How large a trace may be: what is larger is a slip, or a file made to fill the memory of who reads it."""

#: Jobs of one trace, read or generated; the largest published one has 3.4 million.
N_JOBS_MAX = 10_000_000

#: Characters of one line; the widest published tables have some hundred.
N_LINE_CHARACTERS_MAX = 4_000_000

#: What a compressed file may hold, if nothing else is said, in GiB; the largest published table has one.
UNPACKED_GIB_MAX = 4.0
