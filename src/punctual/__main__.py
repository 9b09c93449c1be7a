"""`python -m punctual` is the command `punctual`."""

from punctual.cli import main

if __name__ == "__main__":
    main()
