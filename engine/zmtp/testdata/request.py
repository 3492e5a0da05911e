"""libzmq requesters against a ROUTER.

usage: request.py PORT
A DEALER named "me" asks for three replies, then a REQ for one. Prints each
reply's frames in hex.
"""
import sys

import zmq

endpoint = "tcp://127.0.0.1:" + sys.argv[1]
ctx = zmq.Context()


def show(frames):
    print(" ".join(f.hex() or "-" for f in frames), flush=True)


dealer = ctx.socket(zmq.DEALER)
dealer.identity = b"me"
dealer.connect(endpoint)
dealer.send_multipart([b"", (3).to_bytes(8, "big")])
for _ in range(3):
    show(dealer.recv_multipart())
req = ctx.socket(zmq.REQ)
req.connect(endpoint)
req.send((1).to_bytes(8, "big"))
show(req.recv_multipart())
dealer.close(0)
req.close(0)
ctx.term()
