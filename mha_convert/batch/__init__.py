"""Many sources at once.

    sources ─▶ plan ─▶ an executor ─▶ converting (its process: worker) ─▶ record ─▶ journal ─▶ summary

Whatever executor is used, it calls ``converting.convert_source``, which has the file converted by a process of its own.
"""
