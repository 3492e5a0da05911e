"""A libzmq SUB. Prints "up" at the first message, then a summary at "end".

usage: sub.py PORT TOPIC HEARTBEAT_MS
Messages are [topic, seq8, payload]; the summary is "COUNT GAPS LAST_TOPIC".
"""
import sys

import zmq

port, topic, heartbeat = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
ctx = zmq.Context()
sub = ctx.socket(zmq.SUB)
sub.rcvhwm = 0
if heartbeat:
    sub.setsockopt(zmq.HEARTBEAT_IVL, heartbeat)
    sub.setsockopt(zmq.HEARTBEAT_TIMEOUT, 600 * heartbeat)
sub.subscribe(topic)
sub.connect("tcp://127.0.0.1:" + port)
up, count, gaps, want, last = False, 0, 0, 0, b""
while True:
    frames = sub.recv_multipart()
    if not up:
        up = True
        print("up", flush=True)
    if frames[-1] == b"end":
        break
    if len(frames) != 3:
        continue
    seq = int.from_bytes(frames[1], "big")
    gaps += seq != want
    want, count, last = seq + 1, count + 1, frames[0]
print(count, gaps, last.decode() or "-", flush=True)
sub.close(0)
ctx.term()
