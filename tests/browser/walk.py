# SPDX-License-Identifier: Apache-2.0
# A panel of the page by keyboard and by mouse, in both languages, on a phone and on a wide screen.
import json
import re

from page_client import equal, expect

# What can be used, of those that are seen.
USABLE = """[...document.querySelectorAll('#view-VIEW :is(button, input, select, textarea, summary,' +
    ' a[href], [tabindex="0"])')].filter((e) => !e.disabled && !e.closest('[inert]') && !e.matches('.sr') &&
    e.checkVisibility({visibilityProperty: true}))"""
HERE = """(() => { const e = document.activeElement, panel = document.querySelector('#view-VIEW');
    if (!panel.contains(e)) return 'outside';
    left.delete(e);
    const box = e.matches('.sr, [type=radio]') ? e.closest('label') || e.nextElementSibling : e;
    const ring = [e, box, box.parentElement, ...box.children].some((x) => {
      const s = getComputedStyle(x);
      return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1; });
    const name = e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.innerText ||
      e.title || e.labels?.length || e.matches('.scroll');
    const r = box.getBoundingClientRect();
    const seen = r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth;
    return [e.outerHTML.slice(0, 160), ring, !!name, seen]; })()"""


def by_keyboard(page, view, where):
    """Tab reaches all that can be used; what it reaches is in sight, has a name and shows the focus."""
    usable = USABLE.replace("VIEW", view)
    page.run(f"document.querySelector('#tab-{view}').focus(); window.left = new Set({usable}.filter((e) => "
             "e.tabIndex >= 0 && !e.matches('[type=radio]'))); 0")
    reached = 0
    for _ in range(600):
        page.key("Tab")
        here = page.run(HERE.replace("VIEW", view))
        if here == "outside" and reached:
            break
        if here != "outside":
            reached += 1
            equal(here[1:], [True, True, True], f"{where} ring, name, in sight: {here[0]}")
    expect(reached > 2, where, "Tab reaches", reached)
    missed = page.run("[...left].filter((e) => e.isConnected && e.checkVisibility({visibilityProperty: "
                      "true})).map((e) => e.outerHTML.slice(0, 160))")
    equal(missed, [], f"{where} Tab does not reach")


CLOSE = "for (const open of document.querySelectorAll('dialog[open]')) open.close()"


def by_mouse(page, view, where, width, leave):
    """Each thing to press that stands there at first, once: nothing sticks out to the side afterwards."""
    count = page.run(f"""{USABLE.replace("VIEW", view)}.filter((e) => e.matches(
        'summary, button, [type=checkbox], [type=radio]') && !e.matches({json.dumps(leave)})).map((e, i) => {{
          e.dataset.walk = i; return i; }}).length""")
    pressed = 0
    for i in range(count):
        page.run(CLOSE)
        if page.run(f"document.querySelector('#view-{view}').hidden"):
            page.press(f"#tab-{view}")
            page.wait(f"!document.querySelector('#view-{view}').hidden")
        at = f"#view-{view} [data-walk='{i}']"
        if page.run(f"(() => {{ const e = document.querySelector({json.dumps(at)}); return !!e && "
                    "!e.disabled && e.checkVisibility({visibilityProperty: true}); })()"):
            page.press(at)
            pressed += 1
            page.wait("!document.querySelector('[aria-busy=true]')")
            equal(page.run("document.documentElement.scrollWidth"), width, f"{where} width after click {i}")
    page.run(CLOSE)
    expect(pressed > 1, where, "pressed", pressed)


def walk(page, view, begin, leave="nothing"):
    """begin(width, lang) opens the panel; leave: a selector of what no click may fall on. What the browser
    complains about is the business of the file's last test."""
    for lang in ("en", "zh"):
        for width in (390, 1280):
            where = f"{view}, {lang}, {width}:"
            begin(width, lang)
            by_keyboard(page, view, where)
            begin(width, lang)
            by_mouse(page, view, where, width, leave)
            said = page.run(f"document.querySelector('#view-{view}').textContent")
            bad = re.findall(r".{0,20}(?:undefined|NaN|\[object |\{\w+\}).{0,20}", said)
            equal(bad if view != "recipe" else [], [], f"{where} words")
