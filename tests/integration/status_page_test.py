"""The page of a server for people, in a browser: its plots show what clients have done, without scripts or other files."""

import base64
import os
import pathlib
import shutil
import tempfile
import time
import unittest

import support
import wire_client
from farheapd_test import Server
from web_driver import Browser

# title -> [how many points, the highest above the axis, the lowest, the rightmost], one list for each line; in pixels.
PLOTS = """
return [...document.querySelectorAll('svg.plot')].map(plot => {
  const box = plot.getBoundingClientRect();
  const axis = plot.querySelector('.axis').getBoundingClientRect();
  return [plot.querySelector('title').textContent, box.width, box.height,
          [...plot.querySelectorAll('polyline')].map(line => {
            const drawn = line.getBoundingClientRect();
            return [line.points.length, axis.bottom - drawn.top, axis.bottom - drawn.bottom, axis.right - drawn.right,
                    getComputedStyle(line).stroke];
          })];
});"""


@unittest.skipUnless(shutil.which("chromium") and shutil.which("chromedriver"),
                     "needs chromium and chromedriver (scripts/packages.txt)")
class StatusPage(unittest.TestCase):
    def test_plots(self):
        with tempfile.TemporaryDirectory() as disk, \
                Server("--metrics", "127.0.0.1:0", "--spill", disk, "--spill-size", "64M") as server, \
                server.welcome() as client, Browser() as browser:
            address = server.metrics_url()
            self.assertEqual(client.allocate(0, 16), wire_client.OK)

            def plots():
                browser.open(address)
                return browser.run(PLOTS)

            def is_drawn():
                # So much more, that it shows in any second: it may have one more of the others.
                self.assertEqual(client.write(5, bytes(400_000)), wire_client.OK)
                self.assertEqual(len(client.read((5, 0, 50_000)).payload), 50_000)
                time.sleep(0.2)
                found = plots()
                return len(found) == 3 and all(line[0] >= 3 for plot in found for line in plot[3]) and \
                    found[0][3][0][1] > 20
            support.wait_until(is_drawn, "plots of three seconds")
            requests, transferred, lent = plots()
            for title, width, height, _ in (requests, transferred, lent):
                self.assertRegex(title, r"^(Requests a second|Bytes a second|Lent): at most \S.* in the last 5 minutes$")
                self.assertGreater(width, 300)
                self.assertGreater(height, 50)
            self.assertEqual([len(plot[3]) for plot in (requests, transferred, lent)], [1, 2, 2])
            # Lines lie on the axis or above it, and end now: the last second is at most a few pixels wide.
            for _, _, height, lines in (requests, transferred, lent):
                for _, top, bottom, right, colour in lines:
                    self.assertGreaterEqual(bottom, -2)
                    self.assertLess(top, height)
                    self.assertTrue(-2 <= right < 30, right)
                    self.assertRegex(colour, "^rgb")
            # More was written than read.
            self.assertGreater(transferred[3][1][1], transferred[3][0][1])
            # 32 of 96 MiB are lent.
            self.assertAlmostEqual(lent[3][0][1] / lent[2], 0.3, delta=0.1)

            self.assertEqual(browser.run("return document.querySelectorAll('script, link, img, iframe').length"), 0)
            asked = {one for one in browser.requests() if not one.startswith(("data:", "chrome:"))}
            self.assertLessEqual(asked, {address, address + "favicon.ico"})
            shot = os.environ.get("FARHEAP_SCREENSHOTS")
            if shot:
                pathlib.Path(shot, "status-page.png").write_bytes(base64.b64decode(browser.screenshot()))


if __name__ == "__main__":
    support.main()
