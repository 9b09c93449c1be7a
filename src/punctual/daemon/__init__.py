"""The engine, live or not: events, timers, planner; and where runs are kept on this machine."""
