"""The Pulumi program: reads the stack, builds it, exports what a user needs."""

import atexit
import gc

import pulumi

from infra.program import build, configured_stack
from sunspot.errors import UsageError
from sunspot.targets.azure.scaling import capacity, running

# Before it ends, Python would look at every object several times: a third of the program's time.
atexit.register(gc.freeze)

try:
    outputs = build(configured_stack(), read=running, capacity=capacity)
except UsageError as error:
    raise pulumi.RunError(str(error)) from None

for name, value in outputs.items():
    pulumi.export(name, value)
