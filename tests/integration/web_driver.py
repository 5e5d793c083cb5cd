"""A browser for tests: Chromium, driven through chromedriver by the WebDriver protocol (W3C), with urllib alone."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import support

# The browser keeps to itself: no first-run pages, no updates, no background requests.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
         "--window-size=1400,1600")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for references to elements


class Browser:
    """Use as a context. `log()` has what the page said on its console, `requests()` what it asked the network for."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        self.output = open(os.path.join(self.folder, "driver.log"), "w+")
        self.driver = support.start([shutil.which("chromedriver"), "--port=0"], stdin=subprocess.DEVNULL,
                                    stdout=self.output, stderr=subprocess.STDOUT,
                                    env=dict(os.environ, HOME=self.folder, TMPDIR=self.folder))
        try:
            self.address = f"http://127.0.0.1:{self.find_port()}"
            options = {"args": [*FLAGS, f"--user-data-dir={self.folder}/profile"],
                       "binary": shutil.which("chromium")}
            capabilities = {"browserName": "chrome", "goog:chromeOptions": options,
                            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            created = self.request("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
            self.session = f"/session/{created['sessionId']}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        support.end(self.driver)
        self.driver.wait()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def find_port(self):
        """chromedriver chooses a free port, and says which."""
        limit = time.monotonic() + support.DEADLINE_S
        while time.monotonic() < limit:
            with open(self.output.name) as said:
                text = said.read()
            found = re.search(r"started successfully on port (\d+)", text)
            if found:
                return int(found.group(1))
            if self.driver.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"chromedriver did not start: {text}")

    def request(self, method, path, body=None):
        request = urllib.request.Request(self.address + path, method=method,
                                         data=json.dumps(body).encode() if body is not None else None,
                                         headers={"Content-Type": "application/json"})
        # This stays on the machine, whatever proxy the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=support.DEADLINE_S) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as failure:
            raise RuntimeError(f"{method} {path}: {failure.read().decode(errors='replace')[:1000]}") from None

    def ask(self, path, **body):
        return self.request("POST", self.session + path, body)

    def open(self, address):
        self.ask("/url", url=address)

    def run(self, script, *arguments):
        """The result of the JavaScript."""
        return self.ask("/execute/sync", script=script, args=list(arguments))

    def click(self, selector):
        """Scrolls to the element, which must not be covered, as a person would."""
        found = self.ask("/element", using="css selector", value=selector)
        self.ask(f"/element/{found[ELEMENT]}/click")

    def type(self, selector, text):
        found = self.ask("/element", using="css selector", value=selector)
        self.ask(f"/element/{found[ELEMENT]}/value", text=text)

    def press(self, key):
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.ask("/actions", actions=[{"type": "key", "id": "keyboard", "actions": keys}])

    def log(self):
        return [f"{entry['level']}: {entry['message']}" for entry in self.ask("/se/log", type="browser")]

    def requests(self):
        """Addresses of all requests since the last call."""
        addresses = []
        for entry in self.ask("/se/log", type="performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                addresses.append(event["params"]["request"]["url"])
        return addresses

    def screenshot(self):
        """A PNG, in base64."""
        return self.request("GET", self.session + "/screenshot")
