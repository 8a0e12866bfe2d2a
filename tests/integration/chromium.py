"""A page in headless Chromium, driven as a person would: real mouse and key events, over the DevTools protocol on a pair of pipes.

    with Browser(directory) as browser:
        page = browser.page("file:///tmp/run.html", 1280, 900)
        page.click("#invert")
        page.key("ArrowRight", shift=True)
        page.value("document.title")
        page.screenshot("shot.png")

No port is opened, and only the standard library is used. What the page's scripts throw is in page.errors.
"""
import base64
import fcntl
import json
import os
import select
import subprocess
import time

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio", "--force-color-profile=srgb")
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Escape": 27, "Home": 36, "End": 35, "Tab": 9, "Backspace": 8}


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, directory, timeout=60):
        self.timeout, self.number, self.sessions, self.unread = timeout, 0, {}, b""
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; first both go where neither can be in the other's way.
        far = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_browser, from_browser)]

        def place():
            os.dup2(far[0], 3)
            os.dup2(far[1], 4)

        command = ["chromium", *FLAGS, f"--user-data-dir={os.path.join(directory, 'profile')}", "about:blank"]
        self.child = subprocess.Popen(command, env={**os.environ, "HOME": directory}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, pass_fds=(3, 4), preexec_fn=place, start_new_session=True)
        for fd in (to_browser, from_browser, *far):
            os.close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.child.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.child.kill()
            self.child.wait()
        os.close(self.output)
        os.close(self.input)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.output, json.dumps(message).encode() + b"\0")
        number, end = self.number, time.monotonic() + self.timeout
        while True:
            answer = self.receive(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    def receive(self, end):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.input], [], [], max(0, end - time.monotonic()))
            data = os.read(self.input, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("chromium does not answer" if not ready else "chromium ended")
            self.unread += data
        line, self.unread = self.unread.split(b"\0", 1)
        message = json.loads(line)
        page = self.sessions.get(message.get("sessionId"))
        if page and message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            page.errors.append(details.get("exception", {}).get("description") or details["text"])
        if page and message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            page.errors.append(message["params"]["entry"]["text"])
        if page and message.get("method") == "Network.requestWillBeSent":
            page.requests.append(message["params"]["request"]["url"])
        return message

    def page(self, url, width=1280, height=900, dark=False, ready="document.documentElement?.dataset.ready === '1'"):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self.sessions[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.media("screen", dark)
        page.call("Page.navigate", url=url)
        if ready:
            page.wait(ready)
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target, self.errors, self.requests = browser, session, target, [], []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def media(self, media, dark=False):
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def value(self, expression):
        """Of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description', answer['exceptionDetails']['text'])}")
        return answer["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + self.browser.timeout
        while not self.value(expression):
            if time.monotonic() > end:
                raise BrowserError(f"still not: {expression}; errors: {self.errors}")
            time.sleep(0.02)

    def settle(self):
        """Until what was asked for is drawn, the table below the flame graph included."""
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(() => setTimeout(done, 100)), 80)))")

    def box(self, selector):
        """x, y, width, height in the window, the element being scrolled into it."""
        found = self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: 'center'}});"
                           " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
        if not found:
            raise BrowserError(f"no element {selector}")
        return found

    def mouse(self, kind, x, y, pressed=True):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if pressed else "none", buttons=1 if pressed and kind != "mouseReleased" else 0,
                  clickCount=1 if kind != "mouseMoved" else 0)

    def click(self, selector, x=0.5, y=0.5):
        left, top, width, height = self.box(selector)
        self.click_at(left + x * width, top + y * height)

    def click_at(self, x, y):
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)
        self.settle()

    def drag(self, selector, from_x, to_x, y=0.5, steps=8):
        left, top, width, height = self.box(selector)
        level = top + y * height
        self.mouse("mousePressed", left + from_x * width, level)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", left + (from_x + (to_x - from_x) * i / steps) * width, level)
        self.mouse("mouseReleased", left + to_x * width, level)
        self.settle()

    def key(self, key, shift=False):
        code = KEYS.get(key, ord(key[0].upper()))
        text = {} if key in KEYS and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0,
                      **(text if kind == "keyDown" else {}))
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent.trim()")

    def number(self, selector):
        return self.value(f"Number(document.querySelector({json.dumps(selector)}).dataset.v)")

    def screenshot(self, path, height=None, top=0, scale=1):
        options = {}
        if height:
            width = self.call("Page.getLayoutMetrics")["cssLayoutViewport"]["clientWidth"]
            options = {"captureBeyondViewport": True, "clip": {"x": 0, "y": top, "width": width, "height": height, "scale": scale}}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))

    def print(self, path):
        """As paper shows it: the media that was pretended is given up."""
        self.call("Emulation.setEmulatedMedia", media="", features=[])
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
