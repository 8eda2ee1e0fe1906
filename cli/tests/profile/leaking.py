# A service that leaks: leaking.py REQUESTS. It prints "ready" after REQUESTS requests, and goes on, a thousand a second, until
# its standard input ends. Some of what it does is done in a thread, and some is called back from C.
# SPDX-License-Identifier: MIT
import select
import sys
import threading

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
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    serve(1)
