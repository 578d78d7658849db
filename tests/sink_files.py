# SPDX-License-Identifier: Apache-2.0
"""What file: sinks and commands have written."""
import json
import os
import pathlib


def messages_in(path):
    """The messages of a file: sink, in the order they were written."""
    if not os.path.exists(path):
        return []
    with open(path, encoding='utf-8') as file:
        return [json.loads(line) for line in file if line.endswith('\n')]


def words_in(path):
    """What children have appended, one word a line."""
    if not os.path.exists(path):
        return []
    return pathlib.Path(path).read_text(encoding='utf-8').split()
