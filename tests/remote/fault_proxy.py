"""A proxy in front of a server that counts requests, and answers some wrongly, slowly or not at all.

``python -m tests.remote.fault_proxy PORT`` runs one in a process of its own and prints its port. Each line of its input
is the next fault; the answer is a line with the requests since the last one.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import threading
from typing import Any

FAULTS = ("hang", "503", "429", "reset", "drip", "1 MB/s", "cut", "flip", "foreign", "delay", "every other 503")


class FaultProxy:
    """Forwards to ``upstream``, another port of this host, with the current ``fault``.

    ``requests`` has the method and the path of each request. A fault of ``random`` is another one for each.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream, self.fault, self.delay_s = upstream, "", 0.7
        self.requests: list[tuple[str, str]] = []
        self._running: set[Any] = set()  # asyncio itself keeps no task alive
        self._random, self._loop = random.Random(20), asyncio.new_event_loop()
        self._server: Any = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""

        async def stop() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def count(self, *methods: str) -> int:
        """Return how many requests there were, of these methods or of all."""
        return sum(not methods or method in methods for method, _ in self.requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._running.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            method, path = head.split(b" ", 2)[:2]
            self.requests.append((method.decode(), path.decode()))
            fault = self._random.choice(("", "", *FAULTS[1:])) if self.fault == "random" else self.fault
            if fault == "every other 503":
                fault = "503" if len(self.requests) % 2 else ""
            await self._answer(writer, fault, head, body)
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._running.discard(task)

    async def _answer(self, writer: asyncio.StreamWriter, fault: str, head: bytes, body: bytes) -> None:
        if fault == "reset":
            writer.transport.abort()
        elif fault == "hang":
            await asyncio.sleep(60)
        elif fault in ("503", "429", "403"):
            writer.write(b"HTTP/1.1 %s No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % fault.encode())
        elif fault == "foreign":
            page = b"<html>Please log in to the network.</html>" * 9
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(page), page))
        else:
            answer = await self._ask(head, body)
            if fault == "delay":
                await asyncio.sleep(self.delay_s)
            start = answer.find(b"\r\n\r\n") + 4
            if fault == "cut":
                answer = answer[: start + (len(answer) - start) // 2]
            elif fault == "flip" and len(answer) > start:
                place = self._random.randrange(start, len(answer))
                answer = answer[:place] + bytes([answer[place] ^ 1]) + answer[place + 1 :]
            step = {"drip": 1, "1 MB/s": 10_000}.get(fault, len(answer))
            first = start if fault == "drip" else 0
            writer.write(answer[:first])
            for offset in range(first, len(answer), step):
                writer.write(answer[offset : offset + step])
                await writer.drain()
                await asyncio.sleep({"drip": 0.1, "1 MB/s": 0.01}.get(fault, 0))
        await writer.drain()

    async def _ask(self, head: bytes, body: bytes) -> bytes:
        head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)[:-2] + b"Connection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            writer.write(head + body)
            answer = await reader.read()
        finally:
            writer.close()
        return re.sub(rb"(?i)\r\nconnection:[^\r]*", b"\r\nConnection: close", answer, count=1)


def main(upstream: int) -> None:
    """Serve until the input ends."""
    proxy = FaultProxy(upstream)
    sys.stdout.write(f"{proxy.port}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        found, proxy.requests = proxy.requests, []
        proxy.fault = line.strip()
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
