"""What a conversion costs beside a copy, and a module beside plain attention: ``python -m benchmarks``."""
