#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of examples/cluster are what they say: every command of rapt in them has only flags that `rapt
help` names, Kubernetes' objects point at each other, units, scripts and HAProxy's file pass their own
programs' checks. What is not installed is skipped, aloud. No cluster is asked.

  tests/cluster_test.py [--rapt build/rapt]
"""
import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "examples" / "cluster"
faults, skipped = [], []


def check(condition, *what):
    if not condition:
        faults.append(" ".join(map(str, what)))


def run(*words, **more):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60, **more)


# ------------------------------------------------------------------------------------------------- commands
def check_command(rapt, words, where):
    """words: what stands behind `rapt`."""
    verb = words[0]
    help = run(rapt, "help", verb)
    if help.returncode != 0:
        return check(False, f"{where}: `rapt {verb}` is not known")
    for word in words[1:]:
        if word.startswith("-"):
            flag = word.split("=")[0]
            check(re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help.stdout),
                  f"{where}: `rapt {verb}` has no flag {flag}")


def commands_of(text):
    """The commands of rapt in a script or a unit, lines joined where they go on."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        m = re.search(r"(?:^|[\s/=])rapt ((?:serve|train|run) .*)", line)
        if m and not line.lstrip().startswith("#"):
            yield shlex.split(m[1])


def check_variables(text, where):
    for name in re.findall(r"\bRAPT_\w+", text):
        known = run("grep", "-rq", "--include=*.cc", "--include=*.md", name, ROOT / "rapt", ROOT / "docs",
                    ROOT / "README.md").returncode == 0
        twin = name.startswith("RAPT_SERVE_")
        check(known or twin, f"{where}: nobody reads {name}")


# ----------------------------------------------------------------------------------------------- Kubernetes
def check_kubernetes(rapt):
    try:
        import yaml
    except ImportError:
        skipped.append("YAML: python3-yaml is not installed")
        return
    for path in sorted((CLUSTER / "kubernetes").glob("*.yaml")):
        objects = [o for o in yaml.safe_load_all(path.read_text()) if o]
        kinds = {o["kind"]: o for o in objects}
        names = {(o["kind"], o["metadata"]["name"]) for o in objects}
        for o in objects:
            check(re.fullmatch(r"(?:[a-z.]+/)?v\d\w*", o["apiVersion"]), path.name, o["apiVersion"])
        work = kinds.get("Deployment") or kinds["Job"]
        pod = work["spec"]["template"]["spec"]
        container, = pod["containers"]
        check_command(rapt, container["command"][1:], path.name)
        check(container["command"][0] == "rapt", path.name, "command")
        check({m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]},
              path.name, "volumes and their mounts")
        check(container["resources"]["requests"] == container["resources"]["limits"], path.name,
              "requests = limits, or no core is the pod's own")
        variables = {e["name"]: e.get("value") for e in container["env"]}
        check(variables["RAPT_THREADS"] == container["resources"]["limits"]["cpu"], path.name,
              "threads = cores")
        command = container["command"]
        if work["kind"] == "Job":
            spec = work["spec"]
            check(spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] ==
                  int(variables["WORLD_SIZE"]), "train.yaml: number of ranks")
            service = kinds["Service"]
            check(service["spec"]["clusterIP"] == "None" and pod["subdomain"] == service["metadata"]["name"],
                  "train.yaml: headless service")
            check(service["spec"]["selector"] == {"job-name": work["metadata"]["name"]},
                  "train.yaml: selector")
            check(variables["MASTER_ADDR"] == f"{work['metadata']['name']}-0.{pod['subdomain']}",
                  "train.yaml: rank 0's name")
            check(str(service["spec"]["ports"][0]["port"]) == variables["MASTER_PORT"], "train.yaml: port")
            claim = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
            check(("PersistentVolumeClaim", claim) in names and
                  kinds["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"],
                  "train.yaml: claim")
            check(command[command.index("--out") + 1].startswith(container["volumeMounts"][0]["mountPath"]),
                  "train.yaml: --out is on the shared volume")
        else:
            labels = work["spec"]["template"]["metadata"]["labels"]
            for selector in (work["spec"]["selector"]["matchLabels"], kinds["Service"]["spec"]["selector"],
                             kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
                check(selector == labels, "serve.yaml: selectors")
            check(kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <=
                  kinds["Service"]["metadata"]["labels"].items(), "serve.yaml: the monitor finds the service")
            port = container["ports"][0]["containerPort"]
            check(command[command.index("--port") + 1] == str(port), "serve.yaml: port")
            check(command[command.index("--allow-host") + 1] == kinds["Service"]["metadata"]["name"],
                  "serve.yaml: the service's name is allowed")
            check(kinds["PodDisruptionBudget"]["spec"]["minAvailable"] < work["spec"]["replicas"],
                  "serve.yaml: a budget that lets nothing go")
            drain = int(command[command.index("--drain") + 1])
            stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
            check(pod["terminationGracePeriodSeconds"] > drain + stop, "serve.yaml: grace period")
            for probe in ("startupProbe", "readinessProbe"):
                check(container[probe]["httpGet"]["path"] == "/health", probe)
            check(kinds["ServiceMonitor"]["spec"]["endpoints"][0]["path"] == "/metrics",
                  "serve.yaml: metrics")


# -------------------------------------------------------------------------------------------- their programs
def check_with(name, *words, about=None):
    """`about`: of a program that says more than it is asked only lines with this count, but any of them."""
    program = shutil.which(words[0], path=os.environ["PATH"] + ":/usr/sbin")
    if not program:
        skipped.append(f"{name}: {words[0]} is not installed")
        return
    done = run(program, *words[1:])
    said = [line for line in (done.stdout + done.stderr).splitlines() if not about or about in line]
    check(not said if about else done.returncode == 0, f"{name}:", *(said or [done.returncode]))


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rapt", type=pathlib.Path, default=ROOT / "build" / "rapt")
    rapt = parse.parse_args().rapt.resolve()
    files = [p for p in sorted(CLUSTER.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    found = 0
    for path in files:
        text = path.read_text()
        check("SPDX-License-Identifier: Apache-2.0" in text[:200], path.name, "has no licence line")
        check_variables(text, path.name)
        if path.suffix in (".sbatch", ".service"):
            for words in commands_of(text):
                check_command(rapt, words, path.name)
                found += 1
    check(found == 3, f"{found} commands of rapt in units and scripts")
    check_kubernetes(rapt)
    check_with("haproxy.cfg", "haproxy", "-c", "-f", CLUSTER / "haproxy.cfg")
    check_with("train.sbatch", "bash", "-n", CLUSTER / "train.sbatch")
    with tempfile.TemporaryDirectory() as at:  # verify looks at the programs that are started: this one
        for path in CLUSTER.glob("*.service"):
            text = path.read_text().replace("/usr/local/bin/rapt", str(rapt))
            unit = pathlib.Path(at) / path.name.replace("@.", "@8642.")
            unit.write_text(text)
            check_with(path.name, "systemd-analyze", "verify", "--man=no", unit, about=unit.name)
    for why in skipped:
        print(f"skipped: {why}")
    for fault in faults:
        print(f"FAILED: {fault}")
    print(f"{len(files)} files of examples/cluster, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
