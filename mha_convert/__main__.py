"""``python -m mha_convert`` is ``mha-convert``."""

from .cli import main

main()
