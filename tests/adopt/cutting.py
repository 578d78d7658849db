# SPDX-License-Identifier: Apache-2.0
"""A proxy before PostgreSQL that cuts a session at its n-th statement, as a kill of the program at that moment would."""
import os
import shutil
import socket
import tempfile
import threading


class CuttingProxy:
    """url('…') leads through it. after: the server gets the statement, and the program never gets the answer."""

    def __init__(self, place, number, after):
        self.place, self.number, self.after = place, number, after
        self.count, self.cut = 0, False
        self.home = tempfile.mkdtemp(prefix='postroom-cut.')
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.home, '.s.PGSQL.5432'))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(os.path.join(self.place.host, '.s.PGSQL.5432'))
            threading.Thread(target=self.pump_back, args=(server, client), daemon=True).start()
            threading.Thread(target=self.pump, args=(client, server), daemon=True).start()

    @staticmethod
    def end(*sockets):
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def pump_back(self, server, client):
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass
        self.end(server, client)

    def pump(self, client, server):
        """Statements end in a message Q or S. The start packet comes first."""
        buffer, started = b'', False
        try:
            while data := client.recv(65536):
                buffer += data
                while True:
                    header = 1 if started else 0
                    if len(buffer) < header + 4:
                        break
                    size = header + int.from_bytes(buffer[header:header + 4], 'big')
                    if len(buffer) < size:
                        break
                    message, buffer = buffer[:size], buffer[size:]
                    if started and message[:1] in (b'Q', b'S'):
                        self.count += 1
                        if self.count == self.number:
                            self.cut = True
                            if self.after:
                                self.end(client)
                                server.sendall(message)
                            self.end(client, server)
                            return
                    started = True
                    server.sendall(message)
        except OSError:
            pass
        self.end(client, server)

    def close(self):
        self.listener.close()
        shutil.rmtree(self.home)
