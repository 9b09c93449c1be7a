"""The journal: everything that happened, in order, kept in memory or in a file."""
