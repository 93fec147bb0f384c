"""A page in Chromium, operated like a user would, and the browser's reports: errors, requests, violations."""
import json
import shutil
import time

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
    from selenium.webdriver.common.keys import Keys  # noqa: F401
    MISSING = None
except ImportError:
    MISSING = "python3-selenium is not installed"

if not MISSING and not (shutil.which("chromium") and shutil.which("chromedriver")):
    MISSING = "chromium and chromium-driver are not installed"

SECONDS = 60  # long, so that a busy machine does not fail the test


def start():
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb",
                     "--disable-background-networking", "--no-first-run", "--disable-component-update"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    driver.set_page_load_timeout(SECONDS)
    driver.set_script_timeout(SECONDS)
    return driver


class Page:
    def __init__(self, driver, path):
        self.driver, self.path = driver, path
        self.js("return 1")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def screen(self, width=1280, height=900, dark=False, touch=False):
        cdp = self.driver.execute_cdp_cmd
        cdp("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch})
        cdp("Emulation.setTouchEmulationEnabled", {"enabled": touch})
        cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def open(self, fragment="", **screen):
        self.driver.get("about:blank")
        self.screen(**screen)
        self.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        self.quiet()  # earlier messages are not this page's
        self.driver.get(f"file://{self.path}" + (f"#{fragment}" if fragment else ""))
        self.wait("return Boolean(window.gpuspyPage && gpuspyPage.ready)")
        return self.settle()

    def settle(self):
        """Waits until the page has drawn a change."""
        self.driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));")
        return self

    def wait(self, condition, what=None):
        end = time.monotonic() + SECONDS
        while not self.js(condition):
            assert time.monotonic() < end, what or condition
            time.sleep(0.02)

    # ---- what a user does
    def find(self, selector):
        found = self.driver.find_elements("css selector", selector)
        assert found, selector
        return found[0]

    def click(self, selector, shift=False):
        node = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", node)
        actions = ActionChains(self.driver, duration=20)
        if shift:
            actions.key_down(Keys.SHIFT)
        actions.move_to_element(node).click()
        if shift:
            actions.key_up(Keys.SHIFT)
        actions.perform()
        return self.settle()

    def keys(self, *keys):
        ActionChains(self.driver, duration=20).send_keys(*keys).perform()
        return self.settle()

    def at(self, selector, x, y=0.5):
        """Moves to a point of a node, given as shares of its width and height, as ActionChains needs it."""
        node = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", node)
        width, height = self.js("const r = arguments[0].getBoundingClientRect(); return [r.width, r.height]", node)
        return node, round((x - 0.5) * width), round((y - 0.5) * height)

    def point(self, selector, x, y=0.5, shift=False, double=False):
        actions = ActionChains(self.driver, duration=20)
        if shift:
            actions.key_down(Keys.SHIFT)
        actions.move_to_element_with_offset(*self.at(selector, x, y))
        actions = actions.double_click() if double else actions.click()
        if shift:
            actions.key_up(Keys.SHIFT)
        actions.perform()
        if double:  # on a busy machine two clicks may be too far apart for a double click
            self.js("const n = document.querySelector(arguments[0]); n.dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))",
                    selector)
        return self.settle()

    def hover(self, selector, x, y=0.5):
        ActionChains(self.driver, duration=20).move_to_element_with_offset(*self.at(selector, x, y)).perform()
        return self.settle()

    def drag(self, selector, start, end, y=0.5):
        node, x, high = self.at(selector, start, y)
        width = self.js("return arguments[0].getBoundingClientRect().width", node)
        actions = ActionChains(self.driver, duration=20).move_to_element_with_offset(node, x, high).click_and_hold()
        for _ in range(4):
            actions.move_by_offset(round((end - start) * width / 4), 0)
        actions.release().perform()
        return self.settle()

    def wheel(self, selector, x, down):
        ActionChains(self.driver, duration=20).scroll_from_origin(ScrollOrigin.from_element(*self.at(selector, x)), 0, down).perform()
        return self.settle()

    # ---- what a user reads
    def text(self, selector):
        return (self.js("const n = document.querySelector(arguments[0]); return n ? n.textContent : null", selector) or "").replace("\u00a0", " ")

    def texts(self, selector):
        return [t.replace("\u00a0", " ") for t in self.js("return Array.from(document.querySelectorAll(arguments[0]), n => n.textContent)", selector)]

    def state(self, name):
        return self.js("return gpuspyPage.state[arguments[0]]", name)

    def rows(self, table):
        """The cells of a table's rows as texts."""
        return [[cell.replace("\u00a0", " ") for cell in row] for row in
                self.js("return Array.from(document.querySelectorAll(`table[data-table=${arguments[0]}] tbody tr`), r => Array.from(r.cells, c => c.textContent))", table)]

    # ---- what the browser reports
    def quiet(self):
        self.driver.get_log("browser")
        self.driver.get_log("performance")

    def complaints(self):
        """Errors, violations of the policy and requests for anything except the file."""
        reported = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith((f"file://{self.path}", "about:", "data:")):
                    reported.append(f"asked for {url}")
        return reported
