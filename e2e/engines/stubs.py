"""Makes stub CUDA libraries, so that torch from PyPI runs without CUDA.

    stubs.py SITE-PACKAGES

PyPI's torch for x86-64 is the CUDA build: it does not load without two gigabytes of
NVIDIA's libraries, which are not used on a CPU. This script builds each missing
library with the symbols that torch requires. Each symbol is a function that fails.
It needs gcc, and nm and objdump of binutils.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    torch = Path(sys.argv[1]) / "torch"
    binaries = [*torch.glob("lib/*.so*"), *torch.glob("*.so")]
    shipped = {binary.name for binary in binaries}
    missing, library_of = set(), {}  # names of libraries; library by symbol version
    undefined, defined = set(), set()
    for binary in binaries:
        library = None
        for line in output("objdump", "-p", binary).splitlines():
            if needed := re.match(r"\s+NEEDED\s+(lib(?:cu|nv|nccl).*)", line):
                missing.add(needed[1])
            elif required := re.match(r"\s+required from (\S+):", line):
                library = required[1]
            elif library and (version := re.match(r"\s+0x\S+ 0x\S+ \d+ (\S+)", line)):
                library_of[version[1]] = library
        undefined |= {line.split()[-1] for line in output("nm", "-D", "--undefined-only", binary).splitlines()}
        defined |= {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", binary).splitlines()}
    missing -= shipped | {"libcuda.so.1"}
    if not missing:
        return
    symbols = defaultdict(lambda: defaultdict(set))  # by library and version
    for symbol in undefined:
        name, _, version = symbol.partition("@")
        library = library_of.get(version)
        if library in missing:
            symbols[library][version].add(name)
        elif not version and name not in defined and re.match(r"cu|nv|nccl|Cu|__cuda", name):
            symbols[min(missing)][""].add(name)  # any library will do
    for library in sorted(missing):
        build(torch / "lib" / library, symbols[library])
        print(f"stub of {library}", flush=True)


def build(path, versions):
    names = {name for group in versions.values() for name in group}
    code = "".join(f"int {name}(void) {{ return 999; }}\n" for name in sorted(names)) or "int no_symbol;\n"
    script = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in sorted(group))} }};\n" for version, group in versions.items() if version
    )
    with tempfile.TemporaryDirectory() as folder:
        source, exports = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text(code)
        exports.write_text(script)
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", "-o", path, source]
        if script:
            command.append(f"-Wl,--version-script,{exports}")
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
