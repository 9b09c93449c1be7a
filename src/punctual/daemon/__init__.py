"""The engine (events, timers, planner) of live and simulated runs, and the folders of runs on this machine."""
