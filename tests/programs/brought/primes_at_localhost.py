"""Counts primes: a task for each range, on the cluster of this machine."""

import time

import ray


@ray.remote
def count_primes(first, last):
    found = 0
    for number in range(max(first, 2), last):
        for divisor in range(2, int(number**0.5) + 1):
            if number % divisor == 0:
                break
        else:
            found += 1
    return found


if __name__ == "__main__":
    ray.init("localhost:6379")
    start = time.time()
    ranges = [(first, first + 100) for first in range(0, 1000, 100)]
    total = sum(ray.get([count_primes.remote(*one) for one in ranges]))
    print(f"{total} primes in {time.time() - start:.1f} s")
