"""Runs a page's blocks in order: Python in one namespace, commands in bash, each with its output in a file.

Steps come as JSON through standard input: ``["python", code]`` and ``["console", command, file]``.
"""

import json
import subprocess
import sys
from pathlib import Path

namespace = {"__name__": "__main__"}
for number, (language, text, *places) in enumerate(json.load(sys.stdin)):
    if language == "python":
        exec(compile(text, f"<step {number}>", "exec"), namespace)
        continue
    command = ["bash", "-c", text]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    Path(places[0]).write_bytes(done.stdout)
    if done.returncode:
        sys.exit(f"$ {text}\n{done.stdout.decode()}")
