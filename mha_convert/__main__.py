"""``python -m mha_convert`` is ``mha-convert``."""

from .signals import interruptible


def main() -> None:
    """Run the command line; signals are taken care of before anything large is imported."""
    with interruptible():
        from .cli import main as run

        run()


if __name__ == "__main__":
    main()
