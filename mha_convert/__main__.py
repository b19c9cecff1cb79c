"""``python -m mha_convert`` is ``mha-convert``."""

from .signals import interruptible
from .streams import opened, until_closed


def main() -> None:
    """Run the command line; streams and signals are taken care of before anything large is imported."""
    opened()
    with interruptible(), until_closed():
        from .cli import main as run

        run()


if __name__ == "__main__":
    main()
