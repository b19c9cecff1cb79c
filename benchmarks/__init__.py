"""What a conversion costs compared with a copy, and a module with plain attention: ``python -m benchmarks``."""
