# SPDX-License-Identifier: Apache-2.0
# Texts that want to become something else than text, and what shows that none did.
import json
import random

from page_client import equal

REPEATED = ("*", "_", "`", "[", "![", "](", "<", "> ", "- ", "|", "$", "\\", "~~", "*a ", "**a*", "[a](",
            "`` ` ", "http://", "\n> ", "\n- ", "(", "$a", "\\(")


def corpus():
    """Texts that want to become something else, alone and inside each kind of block."""
    raw = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>",
           "<iframe src=javascript:alert(1)>",
           "<a href=javascript:alert(1)>x</a>", "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))",
           "[x](java\tscript:alert(1))",
           "[x](&#106;avascript:alert(1))", "[x](data:text/html,<script>alert(1)</script>)",
           "[x](vbscript:msgbox(1))",
           "[x](blob:http://127.0.0.1/x)", "[x](file:///etc/passwd)", "[x](//evil.example/x)",
           "[x](/v1/models)", "[x](\\evil.example)",
           "![x](http://evil.example/p.png)", "![x](javascript:alert(1))",
           "![](http://evil.example/a?q=secret)", "<javascript:alert(1)>",
           "<http://evil.example/\"onmouseover=alert(1)>", "[x](http://evil.example/\"onclick=\"alert(1))",
           "[x](<javascript:alert(1)>)",
           "[x](http://user:pass@evil.example)", "[http://good.example](http://evil.example)",
           "[a](http://a.example 'b\" onx=\"c')",
           "http://evil.example/<script>", "https://evil.example/'onx='a", "mailto:a@b.example",
           "<mailto:a@b.example?subject=<b>>",
           "`<b>`", "```html\n<script>alert(1)</script>\n```", "```\"><img src=x>\ncode\n```",
           "~~~js onx=1\nalert(1)\n", "# <h1 onx=1>",
           "> <form action=x><input>", "- <style>*{display:none}</style>",
           "| <b> | <i> |\n|---|---|\n| <u> | [x](javascript:1) |",
           "$<b>$", "$$\n</code><script>\n$$", "\\(<img>\\)", "<!-- -->", "<![CDATA[x]]>", "<?xml?>",
           "&lt;b&gt;", "\u202egnp.exe", "\u0000\u0001\u0007",
           "{{constructor.constructor('alert(1)')()}}", "${alert(1)}", "<br onload=x>", "<br>",
           "<math><mtext></mtext></math>",
           "[x]: javascript:alert(1)\n[x]", "<details open ontoggle=alert(1)>", "<base href=//evil.example>",
           "<meta http-equiv=refresh content=0>",
           "<link rel=stylesheet href=//evil.example>", "<object data=x>", "<embed src=x>",
           "<template><img></template>", "[a](http://[::1]/)",
           "[x](http://evil.example\u0000/)", "[x](ht\u200btp://evil.example)",
           "[x](http:javascript:alert(1))"]
    inside = ["{}", "**{}**", "*a {} b*", "# {}", "> {}", "- {}\n  - {}", "1. {}",
              "| {} | b |\n|---|---|\n| c | {} |", "~~{}~~ text", "a\n{}\nb"]
    out = [form.replace("{}", text) for text in raw for form in inside]
    signs = ["*", "_", "`", "[", "](", ")", "!", "<", ">", "#", "-", "|", "\n", " ", "$", "\\", "~~", "```",
             "a", "字", "javascript:", "http://x.example", "&", "\"", "'", "\n\n", "1. "]
    draw = random.Random(1)
    out += ["".join(draw.choice(signs) for _ in range(draw.randrange(3, 60))) for _ in range(300)]
    return out + [sign * 20000 for sign in REPEATED]


def short():
    return [text for text in corpus() if len(text) < 200]


# What no text may become, wherever it is shown.
FOREIGN = """(() => { const wrong = [];
    for (const e of document.body.querySelectorAll('*')) {
      if (/^(script|iframe|frame|object|embed|base|meta|link|style|math|template|form|marquee|b|i|u|font)$/i
            .test(e.tagName) && !/^((lab|train|recipe)-form|play-controls)$/.test(e.className))
        wrong.push(e.outerHTML.slice(0, 200));
      for (const a of e.attributes)
        if (/^on|^style$|^srcdoc$/.test(a.name) && !(a.name === 'style' && e.style.cssText === a.value) ||
            /^(href|src|action|formaction)$/.test(a.name) &&
            !/^(https?:|mailto:|#|blob:|data:image\\/png)/.test(a.value))
          wrong.push(`${a.name}=${a.value}`.slice(0, 200));
    }
    if (window.alerted) wrong.push('alert');
    return wrong.slice(0, 5); })()"""


def nothing_foreign(page, what):
    equal(page.run(FOREIGN), [], f"{what}: what texts became")


def from_server(page, paths, keep):
    """Every string in these replies and events is hostile, but for those of the keys that are kept (words
    with spaces between) and names that are identifiers. window.said: how many were put in."""
    page.run(f"""(() => {{ window.ownFetch ||= window.fetch; window.said = 0;
        window.alert = () => {{ window.alerted = true; }};
        const texts = {json.dumps(short())}, keep = new Set({json.dumps(keep.split())});
        const change = (x, key) => typeof x === 'string' ?
          (keep.has(key) || (key === 'name' && /^[\\w.-]+$/.test(x)) ? x : texts[said++ % texts.length]) :
          Array.isArray(x) ? x.map((y) => change(y, key)) : x && typeof x === 'object' ?
          Object.fromEntries(Object.entries(x).map(([k, v]) => [k, change(v, k)])) : x;
        window.fetch = async (path, o = {{}}) => {{
          const reply = await ownFetch(path, o);
          if (!new RegExp({json.dumps(paths)}).test(path) || !reply.ok || (o.method || 'GET') !== 'GET')
            return reply;
          const text = await reply.text(), events = /event-stream/.test(reply.headers.get('content-type'));
          const out = events ? text.replace(/^data: (\\{{.*)$/gm, (_, data) => 'data: ' + JSON.stringify(
            change(JSON.parse(data), ''))) : JSON.stringify(change(JSON.parse(text), ''));
          return new Response(out, {{status: reply.status, headers: reply.headers}}); }}; }})()""")
