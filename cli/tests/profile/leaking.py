# A service that leaks: leaking.py REQUESTS. It prints "ready" after REQUESTS requests, and goes on, a thousand a
# second, until its standard input ends. Some of what it does is done in a thread, and some is called back from C.
# SPDX-License-Identifier: MIT
import os
import select
import sys
import threading
import time

held = []


class Service:
    def request(self, number):
        held.append(bytes(3000))  # LEAK

    def weigh(self, number):
        self.last = bytearray(2000 + number)  # CALLED BACK
        return -number

    def größe(self):
        parts = []
        for _ in range(40):
            parts.append(
                bytes(4000)  # PARTS
            )
        return parts


def serve(requests):
    service = Service()
    for number in range(requests):
        service.request(number)
    sorted(range(requests // 4), key=service.weigh)


serve(int(sys.argv[1]))
thread = threading.Thread(target=lambda: held.append(Service().größe()))
thread.start()
thread.join()
# CPython 3.10 returns from join before the thread has read its last from the interpreter's state, which the end of the
# program frees: HAKMEM shuts such a block, and the thread's access ends the program.
while os.path.exists(f"/proc/self/task/{thread.native_id}"):
    time.sleep(0.001)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    serve(1)
