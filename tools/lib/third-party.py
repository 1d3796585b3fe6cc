"""Lists the third-party code linked into brunt: each crate's name, version, licence, authors and licence texts.

    third-party.py TARGET_TRIPLE

Reads `cargo metadata`; crates of this workspace, and crates that are only used to build or test it, are left out. Equal
texts are printed once.
"""

import json
import pathlib
import subprocess
import sys

TEXTS = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def linked(metadata):
    """Packages that `brunt` reaches through normal dependencies, except procedural macros."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == "brunt")
    found, todo = set(), [root]
    while todo:
        here = todo.pop()
        if here in found:
            continue
        kinds = {kind for target in packages[here]["targets"] for kind in target["kind"]}
        if "proc-macro" in kinds:
            continue
        found.add(here)
        for dependency in nodes[here]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    outside = [packages[id] for id in found if packages[id]["source"]]
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(TEXTS))
    return [path.read_text(errors="replace").strip() for path in files]


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", sys.argv[1]]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = linked(metadata)
    assert len(packages) > 50, "the dependencies were not found"
    by_text = {}
    print("Brunt is linked with these crates.\n")
    for package in packages:
        authors = ", ".join(package["authors"]) or "its authors"
        assert package["license"], f"{package['name']} states no licence"
        print(f"{package['name']} {package['version']}: {package['license']}; {authors}")
        for text in texts(package):
            by_text.setdefault(text, []).append(package["name"])
    for text, names in sorted(by_text.items(), key=lambda item: item[1]):
        print(f"\n{'-' * 80}\nOf {', '.join(sorted(set(names)))}:\n\n{text}")


main()
