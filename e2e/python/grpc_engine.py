"""An independent client of the simulated engine's gRPC APIs.

It uses the message classes of the package smg-grpc-proto, which the engines' gRPC
servers use too. It reads cases as JSON lines, {"kind", "request": base64 of a
GenerateRequest of the filter}, sends each to $ENGINE by gRPC, and prints a JSON line
with the fields of the request, of the replies and of the reply to GetModelInfo.
"""

import base64
import json
import os
import sys

import grpc
from google.protobuf import json_format
from smg_grpc_proto import sglang_scheduler_pb2, sglang_scheduler_pb2_grpc, trtllm_service_pb2, trtllm_service_pb2_grpc, vllm_engine_pb2, vllm_engine_pb2_grpc

SERVICES = {
    "vllm-grpc": (vllm_engine_pb2, vllm_engine_pb2_grpc.VllmEngineStub),
    "sglang-grpc": (sglang_scheduler_pb2, sglang_scheduler_pb2_grpc.SglangSchedulerStub),
    "trtllm-grpc": (trtllm_service_pb2, trtllm_service_pb2_grpc.TrtllmServiceStub),
}


def unknown(message):
    """Returns the field numbers that the message class does not have, at any depth."""
    from google.protobuf import unknown_fields

    found = [f.field_number for f in unknown_fields.UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if field.is_repeated else [value]:
            found += unknown(inner)
    return found


def plain(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def call(stub, request):
    replies = []
    try:
        for reply in stub.Generate(request):
            if found := unknown(reply):
                raise SystemExit(f"a reply has unknown fields {found}")
            replies.append({reply.WhichOneof("response"): plain(getattr(reply, reply.WhichOneof("response")))})
    except grpc.RpcError as err:
        return {"replies": replies, "code": err.code().name, "details": err.details()}
    return {"replies": replies, "code": "OK", "details": ""}


def main():
    with grpc.insecure_channel(os.environ["ENGINE"]) as channel:
        for line in sys.stdin:
            case = json.loads(line)
            messages, stub = SERVICES[case["kind"]]
            request = messages.GenerateRequest.FromString(base64.b64decode(case["request"]))
            if found := unknown(request):
                raise SystemExit(f"{case['kind']}: the request has unknown fields {found}")
            model = plain(stub(channel).GetModelInfo(messages.GetModelInfoRequest()))
            print(json.dumps({"request": plain(request), "model": model, **call(stub(channel), request)}), flush=True)


main()
