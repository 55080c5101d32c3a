"""Run on a host: which of these TCP ports answer it. JSON in and out; imports nothing of ours.

In: a list of [address, port]. Out: for each "open", "refused" (the packet came through and nobody
listens) or "blocked" (the network said no, or nothing).
"""

import asyncio
import errno
import json
import sys

# Nothing comes later than this on one machine, however busy.
SILENCE_S = float(sys.argv[1])


async def ask(address: str, port: int) -> str:
    try:
        async with asyncio.timeout(SILENCE_S):
            _, writer = await asyncio.open_connection(address, port)
    except TimeoutError:
        return "blocked"
    except ConnectionRefusedError:
        return "refused"
    except OSError as error:
        if error.errno not in (errno.EHOSTUNREACH, errno.EACCES):
            raise
        return "blocked"
    writer.close()
    return "open"


async def main() -> list[str]:
    return await asyncio.gather(*(ask(address, port) for address, port in json.load(sys.stdin)))


print(json.dumps(asyncio.run(main())))
