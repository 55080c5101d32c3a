"""Makes the machines folder importable by the tests below: `from machines.docker import Docker`."""
