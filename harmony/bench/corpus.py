#!/usr/bin/env python3
"""Writes the benchmark texts: prose, code, json and multi, each split into
rounds of equal size, so that every round measures new text.

    python3 corpus.py Django-5.2.tar.gz botocore-1.40.0-py3-none-any.whl OUT

Both archives come from PyPI (pip download). Prose is Django's documentation,
code its Python and JavaScript, multi its translations into 44 languages, most
of them not in Latin script; json is the API descriptions of botocore.
"""

import gzip
import io
import pathlib
import random
import re
import sys
import tarfile
import zipfile

ROUNDS = 6  # the first warms up
SIZE = {"prose": 1_000_000, "code": 1_000_000, "json": 1_000_000, "multi": 280_000}
LANGUAGES = """ar be bg bn ckb de el es fa fr he hi hy ja ka kk km kn ko ky mk ml mn mr my ne
os pa pl ru sr ta te tg th tr tt udm ug uk ur vi zh_Hans zh_Hant""".split()


def django(path):
    prose, code, multi = [], [], []
    with tarfile.open(path) as tar:
        for m in sorted(tar.getmembers(), key=lambda m: m.name):
            name = m.name.split("/", 1)[-1]
            if not m.isfile():
                continue
            text = lambda: tar.extractfile(m).read().decode("utf-8")
            locale = re.search(r"/locale/(\w+)/LC_MESSAGES/\w+\.po$", name)
            if name.startswith("docs/") and name.endswith(".txt"):
                prose.append(text())
            elif name.startswith("django/") and name.endswith((".py", ".js")):
                code.append(text())
            elif locale and locale[1] in LANGUAGES:
                multi.append("\n".join(messages(text())))
    return {"prose": prose, "code": code, "multi": multi}


def messages(po):
    """The translations of a .po file."""
    for block in re.findall(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', po, re.M):
        s = "".join(re.findall(r'"(.*)"', block))
        s = s.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        if s:
            yield s


def botocore(path):
    with zipfile.ZipFile(path) as z:
        for name in sorted(z.namelist()):
            if name.endswith("service-2.json.gz"):
                yield gzip.GzipFile(fileobj=io.BytesIO(z.read(name))).read().decode("utf-8")
            elif name.endswith("service-2.json"):
                yield z.read(name).decode("utf-8")


def main(sdist, wheel, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    texts = django(sdist) | {"json": list(botocore(wheel))}
    for kind, files in sorted(texts.items()):
        random.Random(kind).shuffle(files)
        data = "\n".join(files)
        if kind == "multi":  # every round contains every language
            parts = [data[i:i + 4000] for i in range(0, len(data), 4000)]
            random.Random(1).shuffle(parts)
            data = "".join(parts)
        data = data.encode()
        size = SIZE[kind]
        if len(data) < size * ROUNDS:
            sys.exit(f"{kind}: {len(data)} bytes are too few")
        for r in range(ROUNDS):
            part = data[r * size:(r + 1) * size].decode("utf-8", "ignore")
            (out / f"{kind}.{r}").write_bytes(part.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
