"""The command line: one thin module per command, each imported only when it is used."""


def main() -> None:
    """Run the command named in `sys.argv`; ends by `SystemExit`."""
    # Imported here, so that `import punctual.cli` costs nothing to whoever looks for a constant in it.
    from punctual.cli._app import run_command_line

    run_command_line()
