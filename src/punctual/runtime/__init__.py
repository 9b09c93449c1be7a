"""The live loop: mailbox, timers, clock, planner; and where runs are kept on this machine."""
