# SPDX-License-Identifier: Apache-2.0
"""Threads on one model, Ctrl-C, close() from elsewhere, fork, the interpreter's end. No test measures time;
limits are those after which something hangs."""
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import rapt

LONG = "To be, or not to be, that is the question. "


def run(code, *words, **more):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *words], capture_output=True,
                          text=True, timeout=120, **more)
    return done.returncode, done.stdout, done.stderr


def together(work, n):
    out, errors = [None] * n, []

    def one(i):
        try:
            out[i] = work(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not errors and not any(t.is_alive() for t in threads)
    return out


def test_eight_threads_have_the_bits_of_each_alone(model):
    prompts = [LONG * (1 + i % 3) + str(i) for i in range(8)]
    alone = [rapt.load("default").generate(p, max_tokens=16, seed=i, logprobs=True)
             for i, p in enumerate(prompts)]
    for _ in range(3):
        mixed = together(lambda i: model.generate(prompts[i], max_tokens=16, seed=i, logprobs=True), 8)
        assert mixed == alone
        assert [list(a.logprobs) for a in mixed] == [list(a.logprobs) for a in alone]


def test_streams_of_threads(model):
    alone = [str(model.generate(LONG + str(i), max_tokens=20, seed=i)) for i in range(6)]
    assert together(lambda i: "".join(model.stream(LONG + str(i), max_tokens=20, seed=i)), 6) == alone


def test_all_kinds_of_calls_at_once(model):
    calls = [lambda: model.generate(LONG, max_tokens=8, seed=1).ids,
             lambda: [float(x) for x in model.score(LONG).logprobs[1:]],
             lambda: memoryview(model.embed("a cat")).tolist(),
             lambda: memoryview(model.logits("To be", last_only=True)).tolist(),
             lambda: [a.ids for a in model.batch(["a", "b"], max_tokens=5, seed=1)],
             lambda: model.tokenizer.encode(LONG)]
    alone = [c() for c in calls]
    assert together(lambda i: calls[i % len(calls)](), 18) == alone * 3


def test_a_stream_that_nobody_pulls_holds_nobody_up(model):
    s = model.stream(LONG, max_tokens=400, ignore_eos=True, temperature=0)
    first = next(s)
    for _ in range(5):
        assert len(model.generate("a", max_tokens=100, ignore_eos=True).ids) == 100
    assert first + "".join(s) == str(model.generate(LONG, max_tokens=400, ignore_eos=True, temperature=0))


def test_a_chat_belongs_to_one_thread(model):
    chat = model.chat(temperature=0, max_tokens=60, ignore_eos=True)
    inside, go_on = threading.Event(), threading.Event()
    errors = []

    def talk():
        for _ in chat.stream("To be"):
            inside.set()
            go_on.wait(60)

    t = threading.Thread(target=talk)
    t.start()
    assert inside.wait(60)
    with pytest.raises(rapt.UsageError, match="answers already"):
        chat("at once")
    go_on.set()
    t.join(60)
    assert not errors and len(chat("and now").ids) > 0


def test_close_from_another_thread_while_a_prompt_is_read():
    m = rapt.load("default", context=20000, streaming=(4, 400))
    s = m.stream([5] * 15000, max_tokens=10)
    started, pieces = threading.Event(), []

    def pull():
        started.set()
        pieces.extend(s)

    t = threading.Thread(target=pull)
    t.start()
    started.wait(60)
    s.close()
    t.join(60)
    assert not t.is_alive() and len(pieces) < 10
    assert len(m.generate("a", max_tokens=3, ignore_eos=True).ids) == 3


INTERRUPTED = """
    import os, signal, sys, threading, time
    import rapt
    m = rapt.load("default", context=40000, streaming=(4, 500))
    work = {
        "prompt": lambda: m.generate([5] * 30000, max_tokens=2),
        "stream": lambda: list(m.stream([5] * 30000, max_tokens=2)),
        "decode": lambda: m.generate("a", max_tokens=10**6, ignore_eos=True),
        "batch": lambda: m.batch(["a b c"] * 64, max_tokens=10**5, ignore_eos=True),
        "score": lambda: m.score([5] * 30000),
        "embed": lambda: m.embed(["a word or two " * 30] * 20000),
        "logits": lambda: [m.logits([5] * 500) for _ in range(10**6)],
        "perplexity": lambda: m.perplexity("To be, or not to be. " * 20000, window=512),
    }[sys.argv[1]]
    expected = m.generate("To be", max_tokens=8, temperature=0)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        work()
    except KeyboardInterrupt:
        print("interrupted", m.generate("To be", max_tokens=8, temperature=0) == expected)
"""


@pytest.mark.parametrize("what", ["prompt", "stream", "decode", "batch", "score", "embed", "logits",
                                  "perplexity"])
def test_ctrl_c(what):
    assert run(INTERRUPTED, what) == (0, "interrupted True\n", "")


def test_ctrl_c_while_another_thread_computes():
    code = """
        import os, signal, threading
        import rapt
        m = rapt.load("default", context=40000, streaming=(4, 500))
        out = []
        options = dict(max_tokens=3000, ignore_eos=True, seed=1)
        t = threading.Thread(target=lambda: out.append(m.generate("To be", **options)))
        t.start()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            m.generate("a", max_tokens=10**6, ignore_eos=True)
        except KeyboardInterrupt:
            t.join()
            alone = rapt.load("default", context=40000, streaming=(4, 500))
            print(out[0] == alone.generate("To be", **options))
    """
    assert run(code) == (0, "True\n", "")


def test_a_signal_handler_of_one_s_own_runs_and_may_raise():
    code = """
        import os, signal, threading
        import rapt
        class Enough(Exception): pass
        heard = []
        def hear(number, frame):
            heard.append(number)
            if len(heard) == 2: raise Enough
        signal.signal(signal.SIGUSR1, hear)
        m = rapt.load("default", context=40000, streaming=(4, 500))
        for after in (0.2, 0.4):
            threading.Timer(after, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        try:
            m.generate("a", max_tokens=10**6, ignore_eos=True)
        except Enough:
            print(len(heard))
    """
    assert run(code) == (0, "2\n", "")


def in_child(f):
    """What f gives in a child of fork()."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, repr(f()).encode())
        except BaseException as e:
            os.write(write, f"{type(e).__name__}: {e}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        out = file.read().decode()
    os.waitpid(pid, 0)
    return out


def test_fork_before_and_after_use():
    m = rapt.load("default")
    work = lambda: m.generate(LONG, max_tokens=12, seed=3).ids
    first = in_child(work)  # before anything was computed here
    expected = repr(work())
    assert first == expected and in_child(work) == expected and repr(work()) == expected
    s = m.stream(LONG, max_tokens=12, seed=3)
    head = [next(s) for _ in range(4)]
    rest = in_child(lambda: "".join(s))
    assert "".join(head) + eval(rest) == "".join(head) + "".join(s)


def test_fork_while_a_thread_computes_is_refused_in_the_child():
    m = rapt.load("default", context=20000, streaming=(4, 400))
    halfway, stop = threading.Event(), threading.Event()

    def busy():
        for _ in m.stream("a", max_tokens=10**6, ignore_eos=True):
            halfway.set()
            if stop.is_set():
                break

    t = threading.Thread(target=busy)
    t.start()
    halfway.wait(60)
    said = {in_child(lambda: len(m.generate("a", max_tokens=3, ignore_eos=True).ids)) for _ in range(20)}
    fresh = in_child(lambda: len(rapt.load("default").generate("a", max_tokens=3, ignore_eos=True).ids))
    stop.set()
    t.join(60)
    # Between two steps there is nothing to refuse.
    assert all(s == "3" or s.startswith("Error: this process was forked") for s in said) and fresh == "3"
    assert len(m.generate("a", max_tokens=3, ignore_eos=True).ids) == 3


def test_multiprocessing():
    code = """
        import multiprocessing, sys
        import rapt
        def work(m): return m.generate("To be", max_tokens=6, temperature=0).ids
        if __name__ == "__main__":
            m = rapt.load("default")
            expected = work(m)
            for way in ("fork", "spawn"):
                with multiprocessing.get_context(way).Pool(2) as pool:
                    assert pool.map(work, [m, m]) == [expected] * 2
            print("done")
    """
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "main.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(code))
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("how", ["stream", "reading", "thread", "chat", "server", "none"])
def test_the_interpreter_ends_with_work_under_way(how):
    code = """
        import sys, threading, time
        import rapt
        m = rapt.load("default", context=40000, streaming=(4, 500))
        how = sys.argv[1]
        if how == "stream":
            kept = m.stream("a", max_tokens=1000, ignore_eos=True); next(kept)
        elif how in ("reading", "thread"):
            prompt = [5] * 30000 if how == "reading" else "a"
            def work():
                for _ in m.stream(prompt, max_tokens=10**6, ignore_eos=True): pass
            threading.Thread(target=work, daemon=True).start()
            time.sleep(0.2)
        elif how == "chat":
            chat = m.chat(); kept = chat.stream("a", ignore_eos=True, max_tokens=1000); next(kept)
        elif how == "server":
            kept = rapt.serve(rapt.load("default"))
        print("end", flush=True)
    """
    assert run(code, how) == (0, "end\n", "")


@pytest.mark.parametrize("where", ["on_token", "hooks", "training", "tokens"])
def test_the_interpreter_ends_while_a_thread_is_on_its_way_to_it(where, tmp_path):
    (tmp_path / "text.txt").write_text(LONG * 20)
    code = """
        import sys, threading, time
        import rapt
        m = rapt.load("default")
        inside = threading.Event()
        def stays(*words):
            inside.set()
            while True: time.sleep(0.001)  # asks for the interpreter's lock all the time
        def encode():
            while True:
                m.tokenizer.encode("To be, or not to be. " * 300)
                inside.set()
        def train():
            recipe = rapt.Recipe("gpt-char", width=16, layers=1, heads=2)
            for s in rapt.Trainer(recipe, data=sys.argv[2], vocab="characters", length=16, steps=10**6):
                inside.set()
        work = {"on_token": lambda: m.generate("a", max_tokens=9, on_token=stays),
                "hooks": lambda: m.run_with_hooks("To be", {"z.1": stays}),
                "training": train, "tokens": encode}[sys.argv[1]]
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        inside.wait()
        print("end", flush=True)
    """
    assert run(code, where, tmp_path / "text.txt") == (0, "end\n", "")
