"""A libzmq ROUTER that replays COUNT messages from the asked one on.

usage: router.py COUNT TOPIC?    (topic 1: replies have a topic frame)
Prints its port, then each request as it came, in hex.
"""
import sys

import zmq

count, with_topic = int(sys.argv[1]), sys.argv[2] == "1"
ctx = zmq.Context()
router = ctx.socket(zmq.ROUTER)
router.sndhwm = 100000
router.linger = 5000
port = router.bind_to_random_port("tcp://127.0.0.1")
print(port, flush=True)
while True:
    identity, *frames = router.recv_multipart()
    print(" ".join(f.hex() or "-" for f in frames), flush=True)
    topic = [b"kv@host"] if with_topic else []
    for seq in range(int.from_bytes(frames[-1], "big"), count):
        router.send_multipart([identity, b"", *topic, seq.to_bytes(8, "big"), b"y" * 300])
    router.send_multipart([identity, b"", *topic, b"\xff" * 8, b""])
