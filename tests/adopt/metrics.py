# SPDX-License-Identifier: Apache-2.0
"""The metric of rejected rows, as a relay serves it."""
import re
import subprocess
import urllib.error
import urllib.request

from conftest import wait_until
from servers.launch import free_port


def count_rejected(postroom):
    """Once the relay has collected it."""
    port = free_port()
    relay = postroom.start('relay', '--to', 'null:', '--admin', f'127.0.0.1:{port}', stderr=subprocess.DEVNULL)

    def read():
        assert relay.poll() is None, 'the relay has ended'
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics') as answer:
                found = re.search(r'^postroom_adopt_rejected_rows (\d+)$', answer.read().decode(), re.MULTILINE)
        except (urllib.error.URLError, ConnectionError):
            return None
        return found
    number = int(wait_until(read, 'the metric')[1])
    relay.terminate()
    assert relay.wait() == 0
    return number
