"""Headless Chromium over its debugging pipe: a page's requests, console messages, screenshots and values."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a browser with a profile of its own.

    Attributes:
        requests: URLs that were requested.
        messages: errors and warnings on the console, of the page and of the browser about it.
    """

    def __init__(self, profile: Path) -> None:
        """Start the browser."""
        assert CHROMIUM is not None
        self.requests: list[str] = []
        self.messages: list[str] = []
        self._number = 0
        self._raw = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        quiet = ("--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}")
        # It reads commands from descriptor 3 and writes to 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        command = ["bash", "-c", shell, "bash", CHROMIUM, *flags, *quiet, "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result; events that come before it are noted."""
        self._number += 1
        number = self._number
        session = {"sessionId": self._session} if self._session else {}
        message = json.dumps({"id": number, "method": method, "params": params, **session})
        os.write(self._out, message.encode() + b"\0")
        while True:
            received = self._receive()
            if received.get("id") == number:
                assert "error" not in received, received
                result: dict[str, Any] = received["result"]
                return result

    def open(self, url: str, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Open a page in a window of this size with this colour scheme, and wait until it is loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features: Sequence[dict[str, str]] = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.requests.clear()
        self.send("Page.navigate", url=url)
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def print(self, path: Path) -> None:
        """Write the page as it is printed, as PDF."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._raw:
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._raw += data
        line, _, self._raw = self._raw.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(params["exceptionDetails"]))
