# SPDX-License-Identifier: Apache-2.0
"""http.py PORT: a web server that keeps every message in the file "arrived", one JSON
object a line, before it acknowledges it. It wants the password "the-secret", and
refuses the topic "bad" once there is a file "spoiled"."""
import asyncio
import base64
import json
import os
import sys

ARRIVED = os.open('arrived', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
AUTHORIZATION = 'Basic ' + base64.b64encode(b'me:the-secret').decode()


def status_of(headers):
    if headers.get('authorization') != AUTHORIZATION:
        return '401 Who are you'
    if headers['ce-type'] == 'bad' and os.path.exists('spoiled'):
        return '500 It is spoiled'
    return '200 OK'


class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b''

    def data_received(self, data):
        self.data += data
        while self.take_request():
            pass

    def take_request(self):
        head, found, rest = self.data.partition(b'\r\n\r\n')
        if not found:
            return False
        lines = head.decode('latin-1').split('\r\n')[1:]
        headers = {name.lower(): value.strip() for name, _, value in
                   (line.partition(':') for line in lines)}
        length = int(headers['content-length'])
        if len(rest) < length:
            return False
        body, self.data = rest[:length], rest[length:]
        status = status_of(headers)
        if status.startswith('200'):
            row = {'id': headers['ce-id'], 'headers': headers,
                   'body_base64': base64.b64encode(body).decode()}
            os.write(ARRIVED, json.dumps(row).encode() + b'\n')
        self.transport.write(f'HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nso\n'.encode())
        return True


async def main():
    server = await asyncio.get_running_loop().create_server(
        Connection, '127.0.0.1', int(sys.argv[1]), backlog=200)
    await server.serve_forever()

asyncio.run(main())
