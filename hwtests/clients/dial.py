"""Dials a socket of Drivebay's the way Python programs do, and ends with an error unless every call is answered.

dial.py registration SOCKET
dial.py csi SOCKET [node] [controller]

grpcio sends the socket's path as :authority, percent-encoded since 1.57. Requests are empty messages, so that no
generated code is needed.
"""

import sys

import grpc

DEADLINE = 30
# On one connection, one after the other: the encoder's dynamic table is used and overflows.
IN_TURN = 300
# On one connection.
AT_ONCE = 64
# More than the 4 KiB of the dynamic table.
LARGE_METADATA = 6000

METHODS = {
    "registration": ["/pluginregistration.Registration/GetInfo"],
    "csi": ["/csi.v1.Identity/GetPluginInfo", "/csi.v1.Identity/GetPluginCapabilities"],
    "node": ["/csi.v1.Node/NodeGetCapabilities"],
    "controller": ["/csi.v1.Controller/ControllerGetCapabilities"],
}


def dial(target, methods, options=()):
    with grpc.insecure_channel(target, options=list(options)) as channel:
        calls = [channel.unary_unary(method) for method in methods]
        for method, call in zip(methods, calls):
            if not call(b"", timeout=DEADLINE):
                raise ValueError(f"{method} answers nothing")
        for n in range(IN_TURN):
            # New values push older ones out of the dynamic table.
            calls[0](b"", timeout=DEADLINE, metadata=[("x-number", str(n)), ("x-filler", "f" * n)])
        running = [
            calls[0].future(b"", timeout=DEADLINE, metadata=[("x-large", "l" * (LARGE_METADATA + n))])
            for n in range(AT_ONCE)
        ]
        for answer in running:
            answer.result()


def main(kind, socket, *services):
    methods = [method for part in (kind, *services) for method in METHODS[part]]
    ways = {
        "unix:": (f"unix:{socket}", ()),
        "unix://": (f"unix://{socket}", ()),
        "an authority that is no host": (f"unix:{socket}", [("grpc.default_authority", "/no host/%zz")]),
    }
    for name, (target, options) in ways.items():
        try:
            dial(target, methods, options)
        except (grpc.RpcError, ValueError) as error:
            sys.exit(f"{socket}: {name}: {error}")
        print(f"ok {name}")


if __name__ == "__main__":
    if len(sys.argv) < 3 or not {sys.argv[1], *sys.argv[3:]} <= METHODS.keys():
        sys.exit(__doc__)
    main(*sys.argv[1:])
