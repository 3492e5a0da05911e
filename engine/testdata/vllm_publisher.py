"""Publishes KV events over libzmq the way vLLM's publisher thread does.

usage: vllm_publisher.py EVENTS REPLAY TOPIC RING    (endpoints; replay "-": none)
stdin: "publish COUNT" | "quit". Prints both ports, then "done" for each line.
Each batch removes one block whose hash is the batch's number. With a topic,
replies carry it, as from vLLM 0.25 on.
"""
import collections
import queue
import struct
import sys
import threading
import time

import zmq

events, replay, topic, ring = sys.argv[1], sys.argv[2], sys.argv[3].encode(), int(sys.argv[4])
START = time.time()


def encode(seq):
    """[ts, [["BlockRemoved", [seq], "GPU"]], 0] in msgpack."""
    event = b"\x93\xacBlockRemoved\x91\xcf" + struct.pack(">Q", seq) + b"\xa3GPU"
    return b"\x93\xcb" + struct.pack(">d", START) + b"\x91" + event + b"\x00"


def bind(kind, endpoint):
    sock = ctx.socket(kind)
    sock.linger = 2000
    if "*" in endpoint:
        sock.bind(endpoint)
    elif kind == zmq.PUB and endpoint.startswith("dial:"):
        sock.connect(endpoint.removeprefix("dial:"))
    else:
        sock.bind(endpoint)
    return sock, sock.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1]


class Publisher(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.work = queue.Queue()
        self.buffer = collections.deque(maxlen=ring)
        self.pub, port = bind(zmq.PUB, events)
        self.pub.sndhwm = 100000
        self.router, replay_port = bind(zmq.ROUTER, replay) if replay != "-" else (None, "-")
        print(port, replay_port, flush=True)

    def run(self):
        seq = 0
        while True:
            if self.router is not None and self.router.poll(0):
                self.serve()
            try:
                item = self.work.get(timeout=0.02)
            except queue.Empty:
                continue
            if item is None:
                return
            if item == "done":
                print("done", flush=True)
                continue
            payload = encode(seq)
            number = seq.to_bytes(8, "big")
            self.pub.send_multipart([topic, number, payload])
            self.buffer.append((number, payload))
            seq += 1

    def serve(self):
        frames = self.router.recv_multipart()
        if len(frames) != 3:
            return
        client, _, start = frames
        head = [client, b""] + ([topic] if topic else [])
        first = int.from_bytes(start, "big")
        for number, payload in self.buffer:
            if int.from_bytes(number, "big") >= first:
                self.router.send_multipart(head + [number, payload])
        self.router.send_multipart(head + [b"\xff" * 8, b""])


ctx = zmq.Context()
publisher = Publisher()
publisher.start()
for line in sys.stdin:
    words = line.split()
    if words[0] == "publish":
        for _ in range(int(words[1])):
            publisher.work.put("batch")
        publisher.work.put("done")
    else:
        publisher.work.put(None)
        publisher.join()
        break
