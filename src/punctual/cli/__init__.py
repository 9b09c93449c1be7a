"""The command line: one thin module per command, each imported only when it is used."""

#: Commands that jobs must not hold up.
_PROMPT = {"run", "attach", "ps", "deadline", "stop"}


def main() -> None:
    """Run the command named in `sys.argv`; ends by `SystemExit`."""
    # Imported here, so that `import punctual.cli` costs nothing to whoever looks for a constant in it.
    import sys
    from contextlib import nullcontext

    from punctual.executors.local.command_group import command_group

    with command_group() if sys.argv[1:2] and sys.argv[1] in _PROMPT else nullcontext():
        # Only now: beside jobs that hold all cores, outside of that group the imports take many seconds.
        from punctual.cli._app import run_command_line

        run_command_line()
