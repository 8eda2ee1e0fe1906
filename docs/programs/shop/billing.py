"""The customers and the billing of the shop, with a fault: billing.py SOCKET; with LINE… it says only these lines."""
# SPDX-License-Identifier: MIT
import os
import socket
import sys
import time

invoices = {}


def ask(shop, line):
    shop.write(line + "\n")
    shop.flush()
    answer = shop.readline()
    if not answer:
        raise ConnectionError
    return answer.strip()


def render(number, item):
    return "\n".join(f"invoice {number}.{row}: {item} and what belongs to it" for row in range(20))


def bill(number, item):
    invoices[number] = render(number, item)  # and nobody takes it out again


def trade(shop):
    number = 0
    while True:
        for _ in range(20):
            number += 1
            ask(shop, f"PRICE article {number}")
            bill(number, f"article {number}")
        time.sleep(0.01)


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    shop = connection.makefile("rw")
    if len(sys.argv) == 2:
        trade(shop)
    for line in sys.argv[2:]:
        print(ask(shop, line))


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:
        sys.stderr.write("the shop does not answer any more\n")
        os._exit(1)
