"""A libzmq PUB. Prints its port, sends probes until told to go, then obeys.

usage: pub.py PORT HEARTBEAT_MS    (port 0: any; connect:N dials; heartbeat 0: none)
stdin: "send COUNT BYTES TOPIC" | "idle MS" | "quit"
"""
import select
import sys
import time

import zmq

port, heartbeat = sys.argv[1], int(sys.argv[2])
ctx = zmq.Context()
pub = ctx.socket(zmq.PUB)
pub.sndhwm = 200000
pub.linger = 5000
if heartbeat:
    pub.setsockopt(zmq.HEARTBEAT_IVL, heartbeat)
    pub.setsockopt(zmq.HEARTBEAT_TIMEOUT, 20 * heartbeat)
    pub.setsockopt(zmq.HEARTBEAT_TTL, 60 * heartbeat)
if port.startswith("connect:"):
    pub.connect("tcp://127.0.0.1:" + port.removeprefix("connect:"))
else:
    pub.bind("tcp://127.0.0.1:" + ("*" if port == "0" else port))
print(pub.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1], flush=True)

while not select.select([sys.stdin], [], [], 0.01)[0]:
    pub.send(b"probe")
    pub.send(b"kv@probe")

for line in sys.stdin:
    words = line.split()
    if words[0] == "send":
        count, size, topic = int(words[1]), int(words[2]), " ".join(words[3:]).encode()
        for i in range(count):
            pub.send_multipart([topic, i.to_bytes(8, "big"), b"x" * size])
    elif words[0] == "idle":
        time.sleep(int(words[1]) / 1000)
    else:
        break
pub.close()
ctx.term()
