# SPDX-License-Identifier: Apache-2.0
# Drives a headless Chromium through its debugging pipe: JSON messages that end in a NUL byte, on file
# descriptors 3 and 4. Standard library only; no driver, no socket.
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def program():
    """The browser, or None where there is none."""
    named = os.environ.get("RAPT_CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))),
                None)


class Browser:
    def __init__(self, path, timeout=120):  # seconds; only what hangs takes so long
        self.timeout = timeout
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        there_read, self.out = os.pipe()
        self.into, there_write = os.pipe()
        # Above 10, so that neither is overwritten by the other on its way to 3 and 4.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (there_read, there_write)]

        def place():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [path, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-extensions",
             "--disable-background-networking", "--disable-dev-shm-usage", "--force-device-scale-factor=1",
             "--hide-scrollbars",
             "--user-data-dir=" + self.folder.name, "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        for fd in (there_read, there_write, *ends):
            os.close(fd)
        self.buffer, self.next_id, self.events = b"", 0, []

    def close(self):
        try:
            self.call("Browser.close", wait=False)
            self.process.wait(10)
        except Exception:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def receive(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.into, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, params=None, session=None, wait=True):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout
        while wait:
            answer = self.receive(until)
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)


class Tab:
    """One page of a browser: everything it complains about and asks for is kept."""

    def __init__(self, browser, offline=True):
        self.browser = browser
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = browser.call("Target.attachToTarget",
                                    {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        if offline:
            self.network(offline=True)

    def call(self, method, params=None):
        return self.browser.call(method, params, self.session)

    def network(self, offline=False, bytes_per_second=-1):
        self.call("Network.emulateNetworkConditions", {
            "offline": offline, "latency": 0, "uploadThroughput": -1, "downloadThroughput": bytes_per_second})

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def run(self, script):
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", {"expression": script, "returnByValue": True,
                                                "awaitPromise": True})
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, script):
        until = time.monotonic() + self.browser.timeout
        while not self.run(script):
            if time.monotonic() > until:
                raise TimeoutError("waiting for " + script)
            time.sleep(0.01)

    def open(self, address):
        self.call("Page.navigate", {"url": "about:blank"})
        self.call("Page.navigate", {"url": address})
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left",
                                                   "clickCount": 1})

    def key(self, name, shift=False, control=False):
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Enter": 13,
                 "Home": 36, "End": 35, "Escape": 27, "Space": 32, "[": 219, "]": 221}
        event = {"key": " " if name == "Space" else name, "code": name, "windowsVirtualKeyCode": codes[name],
                 "modifiers": 8 * shift + 2 * control}
        text = {"Enter": "\r", "Space": " "}.get(name) if not control else None
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        for kind in (down, {"type": "keyUp"}):
            self.call("Input.dispatchKeyEvent", {**event, **kind})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def seen(self, method):
        return [e["params"] for e in self.browser.events if e.get("method") == method
                and e.get("sessionId") == self.session]

    def complaints(self):
        thrown = [e["exceptionDetails"] for e in self.seen("Runtime.exceptionThrown")]
        found = [t.get("exception", {}).get("description") or t["text"] for t in thrown]
        found += [str([a.get("value") for a in e["args"]]) for e in self.seen("Runtime.consoleAPICalled")]
        return found + [e["entry"]["text"] for e in self.seen("Log.entryAdded")]

    def picture(self, path, whole=True):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        params = {"format": "png", "captureBeyondViewport": True,
                  "clip": clip} if whole else {"format": "png"}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", params)["data"]))
