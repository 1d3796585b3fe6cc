"""Finds the stages that must run in full: those whose code has changed since they last passed in full.

    covered.py changed            lists the changes since then: a stage and a path on each line
    covered.py record STAGE...    records that these stages passed in full with the current files: writes .ci/passed, to be committed

.ci/stages.toml lists the crates and other paths of each stage. The crates' dependencies are included; Cargo.toml and
Cargo.lock belong to every stage. .ci/passed has the git ids of these files and folders. A path that is not in the repository
counts as changed, so that a stage whose code moved runs in full until its list is corrected.
"""

import os
import subprocess
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PASSED = os.path.join(HERE, "passed")
EVERYWHERE = ["Cargo.toml", "Cargo.lock"]


def load(path):
    with open(path, "rb") as file:
        return tomllib.load(file)


STAGES = load(os.path.join(HERE, "stages.toml"))


def with_dependencies(crates):
    """The sources of these crates and of all their dependencies in this workspace."""
    found, todo = set(), list(crates)
    while todo:
        crate = todo.pop()
        if crate not in found:
            found.add(crate)
            manifest = load(os.path.join(ROOT, "crates", crate, "Cargo.toml"))
            for kind in ("dependencies", "build-dependencies"):
                todo += [name for name in manifest.get(kind, {}) if name.startswith("brunt-")]
    return [f"crates/{crate}/{part}" for crate in found for part in ("Cargo.toml", "src")]


def git(*words, **environment):
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **environment})
    return done.stdout


def ids_of_stages(stages):
    """For each stage, its paths with their git ids, from the working tree, committed or not."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        git("read-tree", "HEAD", **index)
        git("add", "--all", **index)
        tree = git("write-tree", **index).strip()
    known = {}
    for line in git("ls-tree", "-r", "-t", tree).splitlines():
        about, path = line.split("\t")
        known[path] = about.split()[2]
    return {stage: {path: known.get(path, "missing") for path in paths_of(stage)} for stage in stages}


def paths_of(stage):
    listed = STAGES[stage]
    return sorted({*EVERYWHERE, *listed["paths"], *with_dependencies(listed.get("crates", []))})


def passed():
    """The recorded ids by stage and path."""
    try:
        with open(PASSED) as file:
            return {(stage, path): known for stage, path, known in (line.split() for line in file if line[0] != "#")}
    except FileNotFoundError:
        return {}


def changed():
    before = passed()
    for stage, paths in ids_of_stages(STAGES).items():
        for path, now in paths.items():
            if now == "missing" or before.get((stage, path)) != now:
                print(stage, path)


def record(stages):
    kept = {key: known for key, known in passed().items() if key[0] not in stages}
    for stage, paths in ids_of_stages(stages).items():
        kept |= {(stage, path): now for path, now in paths.items()}
    with open(PASSED, "w") as file:
        print("# Git's ids of what each stage of .ci/run covers, as it was when the stage last passed in full. Written by", file=file)
        print("# `.ci/run --all` and `.ci/run --full STAGE`; never by hand.", file=file)
        for (stage, path), known in sorted(kept.items()):
            print(stage, path, known, file=file)


match sys.argv[1:]:
    case ["changed"]:
        changed()
    case ["record", *stages]:
        record(stages)
    case _:
        sys.exit(__doc__)
