# SPDX-License-Identifier: Apache-2.0
"""A relay or consumer with an admin server, and what its /metrics says."""
import re
import subprocess
import urllib.error
import urllib.request

from conftest import PATIENCE, wait_until
from servers.launch import free_port

SAMPLE = re.compile(r'^([a-z_]+)(\{.*\})? (\S+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class Scraped:
    """The samples of one scrape: a list of (name, labels, value)."""

    def __init__(self, text):
        self.text, self.samples = text, []
        for line in text.splitlines():
            if not line.startswith('#'):
                name, labels, value = SAMPLE.match(line).groups()
                self.samples.append((name, dict(LABEL.findall(labels or '')), float(value)))

    def all(self, name, **labels):
        return [value for sample, has, value in self.samples
                if sample == name and labels.items() <= has.items()]

    def sum(self, name, **labels):
        return sum(self.all(name, **labels))

    def names(self):
        return {name for name, _, _ in self.samples}


class Watched:
    """A process with --admin on a port of its own."""

    def __init__(self, postroom, *args, **options):
        self.port = free_port()
        self.url = f'http://127.0.0.1:{self.port}'
        options.setdefault('stderr', subprocess.DEVNULL)  # a pipe without a reader would fill up
        self.process = postroom.start(*args, '--admin', f'127.0.0.1:{self.port}', **options)

    def wait(self):
        """Waits until it answers."""
        wait_until(self.scrape, 'the admin server')
        return self

    def get(self, path='/metrics', **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def scrape(self):
        """None while it does not answer yet."""
        try:
            return Scraped(self.get())
        except (urllib.error.URLError, ConnectionError):
            assert self.process.poll() is None, 'it has ended'
            return None

    def wait_for(self, condition, what='the metrics'):
        """Scrapes until the condition holds, and returns that scrape."""
        last = []

        def check():
            scraped = self.scrape()
            last[:] = [scraped]
            return scraped is not None and condition(scraped)
        wait_until(check, what)
        return last[0]

    def collected(self):
        """A scrape that has store gauges."""
        return self.wait_for(lambda metrics: metrics.all('postroom_outbox_backlog_messages'),
                             'the first collection')
