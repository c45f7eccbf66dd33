# SPDX-License-Identifier: Apache-2.0
# The page of `rapt inspect report` in a real browser, offline: page_test.py MAKE_PAGE, where MAKE_PAGE writes
# the sample (make_page.cc). What a pixel must be is computed here, from the same formulas as there. Exit code
# 77: there is no browser.
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import chromium

LAYERS, HEADS, TOKENS = 3, 4, 24
failed = []


def check(what, got, wanted=True):
    if got != wanted:
        failed.append(what)
        print(f"FAILED: {what}\n  got    {got!r}\n  wanted {wanted!r}")


def colour(index, dark):
    """The colour map of colors.h, written a second time from its comment."""
    light = 0.215 + 0.745 * index / 255 if dark else 0.985 - 0.735 * index / 255
    u = (light - 0.2) / 0.78
    chroma = 0.19 * math.sin(math.pi * min(1, max(0, u))) ** 0.8 + 0.012
    hue = math.radians(280 + 175 * u)
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    s = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
              -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
              -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)
    clipped = [min(1, max(0, x)) for x in linear]
    return [math.floor(255 * (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055) + 0.5)
            for c in clipped] + [255]


def rounded(x):
    return math.floor(x + 0.5)


def pixel(l, h, r, k):
    return (37 * l + 59 * h + 11 * r + 7 * k) % 256 if k <= r else 0


def root(p):
    return rounded(255 * math.sqrt(p / 255))


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1 for x, y in zip(a, b))


class Page(chromium.Tab):
    def pixel(self, host, x, y):
        return self.run(
            f"[...document.querySelector('#{host} canvas').getContext('2d').getImageData({x}, {y}, 1, "
            "1).data]")

    def text(self, selector):
        return self.run(f"document.querySelector({selector!r}).textContent")

    def hash(self):
        return self.run("location.hash")

    def click_cell(self, host, x, y, columns, rows):
        box = self.run(f"(() => {{ const c = document.querySelector('#{host} canvas');"
                       " c.scrollIntoView({block: 'center'}); const r = c.getBoundingClientRect();"
                       " return [r.left, r.top, r.width, r.height]; })()")
        self.click(box[0] + (x + 0.5) / columns * box[2], box[1] + (y + 0.5) / rows * box[3])

    def focus(self, selector):
        self.run(f"document.querySelector({selector!r}).focus()")


def check_pixels(page, dark):
    theme = "dark" if dark else "light"
    for l, h in ((0, 0), (1, 2), (2, 2)):
        got, wanted = page.pixel("heads-heat", h, l), colour(rounded(255 * (l * HEADS + h) / 11), dark)
        check(f"heads, {theme}, cell {l},{h}: {got} for {wanted}", near(got, wanted))
    check("a head that is not there is empty", page.pixel("heads-heat", 3, 2), [0, 0, 0, 0])
    for r, k in ((0, 0), (5, 3), (23, 23), (3, 9)):  # the last one lies in the future
        got, wanted = page.pixel("map-heat", k, r), colour(root(pixel(2, 2, r, k)), dark)
        check(f"map, {theme}, cell {r},{k}: {got} for {wanted}", near(got, wanted))
    for row, t in ((0, 0), (2, 7), (3, 23)):
        got, wanted = page.pixel("grid-heat", t, row), colour(rounded(255 * (row * 10 + t) / 53), dark)
        check(f"grid, {theme}, cell {row},{t}: {got} for {wanted}", near(got, wanted))
    got = page.run(
        "[...document.querySelector('canvas.plain').getContext('2d').getImageData(1, 0, 1, 1).data]")
    check(f"map of a document, {theme}", near(got, colour(128, dark)))


def check_page(page, address):
    page.size(1280, 900)
    page.theme("light")
    page.open(address)

    check("title", page.run("document.title"), 'Sample <b>page</b> & "more"')
    check("begins at the clearest head that is no sink, and the last token",
          page.run("document.querySelector('#bar').innerText.replace(/\\s+/g, ' ')"),
          "‹ Layer 1 › ‹ Head 1 › ‹ 23 “␣w23” › previous token 0.92")
    check("words at the sides of a small map",
          page.run("[document.querySelectorAll('#map .side-left span').length,"
          " document.querySelectorAll('#map .side-top span')[23].textContent]"), [24, "␣w23"])
    check("cells of a table as they are shown",
          page.run("[...document.querySelectorAll('.document td')].map((e) => e.textContent)"),
          ["0", "0.250", "1", "1234.500"])
    check("a map of a document has its scale",
          page.run("[...document.querySelectorAll('.document .legend span')].map((e) => e.textContent)"),
          ["0.000", "0.500", "1.00"])
    page.open(address + "#l=2&h=2&t=23")
    check_pixels(page, False)

    # A click on a head: map, title and address follow.
    page.click_cell("heads-heat", 1, 1, HEADS, LAYERS)
    check("hash after a click", page.hash(), "#l=1&h=1&t=23")
    check("title of the map", page.text("#map-title"), "Layer 1, head 1 · previous token 0.92")
    check("map of the head clicked at", near(page.pixel("map-heat", 3, 5),
                                             colour(root(pixel(1, 1, 5, 3)), False)))
    check("strongest keys",
          page.run(
              "[...document.querySelectorAll('#arcs-out button')].map((b) => b.innerText.replace(/\\s+/g, ' "
              "'))"),
          ["␣w23 23 0.500", "␣w21 21 0.250", "␣w19 19 0.167"])
    check("arcs", page.run("document.querySelectorAll('.arc.out').length"), 3)
    # A pooled map: the readout says so where the weight is none of the strongest.
    page.click_cell("heads-heat", 0, 0, HEADS, LAYERS)
    check("pooled map", page.run("document.querySelector('#map-heat canvas').width"), 12)
    page.click_cell("map-heat", 5, 19, TOKENS, TOKENS)
    check("a click on the map", page.hash(), "#l=0&h=0&t=19&k=5")
    check("readout of a pooled cell", page.text("#map-read"),
          f"19 “␣w19” → 5 “�� broken ��”: {pixel(0, 0, 9, 2) / 255:.3f} (largest of 4 tokens)")
    page.click_cell("map-heat", 17, 19, TOKENS, TOKENS)
    check("readout of an exact weight", page.text("#map-read"), "19 “␣w19” → 17 “␣w17”: 0.167")
    # A click on a token and on the overview of all heads.
    page.run("document.querySelector('#token-10').click()")
    check("token clicked", page.run("[location.hash, document.querySelector('#strip .on').textContent]"),
          ["#l=0&h=0&t=10&k=17", " the"])
    page.click_cell("all-heat", 2, 1, HEADS, LAYERS)
    check("small map clicked", page.hash(), "#l=1&h=2&t=10&k=17")
    page.click_cell("grid-heat", 4, 3, TOKENS, LAYERS + 1)
    check("grid clicked", page.hash(), "#l=2&h=2&t=4&k=17")

    # Keyboard.
    page.focus("#heads-heat canvas")
    for key in ("ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight"):
        page.key(key)
    check("arrows move through heads and stop at the border", page.hash(), "#l=1&h=1&t=4&k=17")
    check("the canvas says what it shows", page.run("document.activeElement.getAttribute('aria-label')"),
          "Heads by Weight on the first token. Layer 1, head 1: 0.455 · previous token 0.92")
    page.focus("#strip .on")
    page.key("ArrowRight")
    page.key("ArrowRight")
    check("arrows move through tokens, and the focus with them",
          page.run("[location.hash, document.activeElement.id]"),
          ["#l=1&h=1&t=6&k=17", "token-6"])
    page.key("End")
    page.key("Tab")
    check("tab leaves the text for the heads", page.run("document.activeElement.id"), "metric")
    page.key("Tab")
    check("tab goes on to the picture", page.run("document.activeElement.parentElement.parentElement.id"),
          "heads-heat")
    check("focus is seen", page.run("getComputedStyle(document.activeElement).outlineStyle"), "solid")
    check("every canvas that is no decoration has a name and a description", page.run(
        "[...document.querySelectorAll('canvas:not([aria-hidden])')].every((c) => "
        "c.getAttribute('aria-label') && "
        "document.getElementById(c.getAttribute('aria-describedby')))"))
    page.run("document.querySelector('#heads-table').open = true")
    page.wait("!!document.querySelector('#heads-table table')")
    check("table twin",
          page.run("[...document.querySelectorAll('#heads-table tbody tr')][1].innerText.split('\\t')"),
          ["1", "0.364", "0.455", "0.545", "0.636"])

    # Choices: figure, scale, grid with texts, colour of the text.
    choose = ("(id, v) => { const s = document.getElementById(id); s.value = v; s.dispatchEvent(new "
              "Event('change')); }")
    page.run(f"({choose})('metric', 'entropy')")
    check("another figure", near(page.pixel("heads-heat", 0, 0), colour(255, False)))
    page.run(f"({choose})('scale', 'linear')")
    check("linear scale", near(page.pixel("map-heat", 3, 5), colour(pixel(1, 1, 5, 3), False)))
    page.run(f"({choose})('grid-choice', 'lens')")
    page.run("document.querySelector('#token-3').click()")
    check("what a cell says, as text",
          page.run("document.querySelector('.around tbody tr.on td.on').textContent"), "<i>say</i>")
    check("readout of the grid", page.text("#grid-read"), "Layer 1, 3 “<!--”: 0.020, says “<i>say</i>”")
    page.run(f"({choose})('strip-colour', 'massive')")
    check("colour of a token", page.run("document.querySelector('#token-23').style.backgroundColor"),
          "rgb({}, {}, {})".format(*colour(rounded(255 * 43 / 53), False)))
    check("all of it is in the address", page.hash(), "#l=1&h=1&t=3&k=17&m=entropy&g=lens&c=massive&s=linear")

    # Hostile tokens are text: as many elements as before, nothing ran.
    check("markup in a token is text", page.text("#token-1"), "<img src=x onerror=alert(1)>")
    check("a script's end in a token is text", page.text("#token-2"), "</script><script>alert(2)</script>")
    check("broken bytes", page.text("#token-5"), "�� broken ��")
    check("what turns text around is shown as a sign", page.text("#token-6"), "�over")
    check("a control character is a sign", page.text("#token-13"), "a␀b")
    check("an empty token is seen", page.text("#token-11"), "∅")
    check("no picture came from a token",
          page.run("document.querySelectorAll('img, iframe, object, b, i').length"), 0)
    check("scripts are those of the page", page.run("document.scripts.length"), 3)
    check("the policy forbids more", page.run(
        "new Promise((done) => { document.addEventListener('securitypolicyviolation', (e) => "
        "done(e.effectiveDirective));"
        " const s = document.createElement('script'); s.textContent = 'window.broken = 1'; "
        "document.body.append(s);"
        " setTimeout(() => done('allowed'), 500); })"), "script-src-elem")
    check("a script that was added did not run", page.run("window.broken === undefined"))

    # Language and theme.
    page.run("document.getElementById('lang').click()")
    check("Chinese",
          page.run("[document.documentElement.lang, document.querySelector('#heads h2').textContent,"
                              " document.querySelector('#map-title').textContent, "
                              "document.querySelector('#metric').selectedOptions[0].text]"),
          ["zh-Hans", "注意力头", "第 1 层，第 1 头 · 前一词元 0.92", "熵（奈特）"])
    page.run("document.getElementById('lang').click()")
    check("English again", page.text("#heads h2"), "Heads")
    page.open(address + "#l=2&h=2&t=3")
    page.run("document.getElementById('theme').click()")
    check("theme in the address", page.hash(), "#l=2&h=2&t=3&theme=dark")
    check_pixels(page, True)

    # The address alone restores everything; nonsense in it does no harm.
    page.open(address + "#l=1&h=3&t=7&m=entropy&lang=zh")
    check("restored", page.run("document.querySelector('#bar').innerText.replace(/\\s+/g, ' ')"),
          "‹ 层 1 › ‹ 头 3 › ‹ 7 “שלום” ›")
    page.run("location.hash = '#l=0&h=1&t=2'")
    page.wait("document.querySelector('#bar').innerText.includes('Layer 0')")
    check("a changed hash is followed", near(page.pixel("map-heat", 3, 5),
                                             colour(root(pixel(0, 1, 5, 3)), False)))
    page.open(address + "#l=99&h=-4&t=x&m=__proto__&g=nothing&%%&lang=xx")
    check("nonsense", page.run("document.querySelector('#bar').innerText.replace(/\\s+/g, ' ')"),
          "‹ Layer 2 › ‹ Head 0 › ‹ 23 “␣w23” ›")

    # Widths.
    for width in (390, 1280):
        page.size(width, 800)
        page.open(address)
        check(f"nothing sticks out at {width} pixels", page.run("document.documentElement.scrollWidth"),
              width)
    check("documents",
          page.run("[...document.querySelectorAll('.document > *')].map((e) => e.tagName).join(' ')"),
          "H2 P FIGURE FIGURE FIGURE")
    check("markup in a document is text", page.text(".document p"), "Words with <b>markup</b>.")
    check("curves", page.run("document.querySelectorAll('.curve').length"), 2)

    asked = {e["request"]["url"].split("#")[0] for e in page.seen("Network.requestWillBeSent")}
    check("nothing is asked for but the file", asked, {address, "about:blank"} & asked | {address})
    complaints = [c for c in page.complaints() if "Content Security Policy" not in c or "window.broken" in c]
    policy = [c for c in page.complaints() if c not in complaints]
    check("no complaint on the console", complaints, [])
    check("one complaint of the policy: the script that this test adds", len(policy), 1)


def main():
    path = chromium.program()
    if not path:
        print("skipped: no chromium-headless-shell or chromium is installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "page.html")
        subprocess.run([sys.argv[1], file], check=True)
        browser = chromium.Browser(path)
        try:
            page = Page(browser)
            check_page(page, file.as_uri())
            if os.environ.get("RAPT_PICTURES"):
                for width in (390, 1280):
                    page.size(width, 900)
                    page.open(file.as_uri() + "#l=1&h=1&t=20")
                    page.picture(os.path.join(os.environ["RAPT_PICTURES"], f"sample-{width}.png"))
        finally:
            browser.close()
    print(f"{len(failed)} failed")
    return 1 if failed else 0


sys.exit(main())
