"""Writes what the project writes of the models of this folder into ``sources``: read the difference before it is kept.

PYTHONPATH=tests/support python tests/golden/models/make_sources.py
"""

import tempfile
from pathlib import Path

from whole_models import written

HERE = Path(__file__).parent
NAMES = ("mlp", "time_series_transformer", "text_transformer", "translator", "lstm_classifier")


def main() -> None:
    """Write every source."""
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            source = written(HERE / f"{name}.keras", Path(folder)).source
        (HERE / "sources" / f"{name}.py").write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
