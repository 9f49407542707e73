"""Runs the HTTP server of llama.cpp from the package xllamacpp.

    llamacpp.py MODEL.gguf PORT
"""

import signal
import sys

import xllamacpp

CONTEXT = 8192  # as in real_engines_test.go


def main():
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"gpt-oss-tiny"}
    params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[2])
    params.n_ctx, params.n_parallel, params.endpoint_metrics = CONTEXT, 1, True
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    print("llama.cpp", xllamacpp.__version__, "listens on", server.listening_address, flush=True)
    signal.pause()  # until a signal ends the process


if __name__ == "__main__":
    main()
