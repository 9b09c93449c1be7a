"""From a journal's messages to numbers; the same functions for live and for simulated runs."""
